// SPDX-License-Identifier: MIT
// 2023/ggml/ggml-impl.h: for programs that include "ggml/ggml-impl.h".
#pragma once

#include "../ggml-impl.h"
