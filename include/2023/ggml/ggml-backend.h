// SPDX-License-Identifier: MIT
// 2023/ggml/ggml-backend.h: for programs that include "ggml/ggml-backend.h".
#pragma once

#include "../ggml-backend.h"
