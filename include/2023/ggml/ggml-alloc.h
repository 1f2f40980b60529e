// SPDX-License-Identifier: MIT
// 2023/ggml/ggml-alloc.h: for programs that include "ggml/ggml-alloc.h".
#pragma once

#include "../ggml-alloc.h"
