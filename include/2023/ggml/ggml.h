// SPDX-License-Identifier: MIT
// 2023/ggml/ggml.h: for programs that include "ggml/ggml.h".
#pragma once

#include "../ggml.h"
