// SPDX-License-Identifier: MIT
// 2023/ggml/ggml-backend-impl.h: for programs that include "ggml/ggml-backend-impl.h".
#pragma once

#include "../ggml-backend-impl.h"
