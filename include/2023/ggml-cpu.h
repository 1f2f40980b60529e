// SPDX-License-Identifier: MIT
// 2023/ggml-cpu.h: part of ggml.h then. Declared there also when this header comes first.
#pragma once

#include "ggml.h"
