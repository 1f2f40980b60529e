// SPDX-License-Identifier: MIT
// 2023/gguf.h: in 2023 these functions were part of ggml.h, so this header includes it.
#pragma once

#include "ggml.h"
