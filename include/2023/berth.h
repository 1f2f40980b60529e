// SPDX-License-Identifier: MIT
// 2023/berth.h: Berth's API beyond ggml's, without the parts for today's allocators and backends.
#pragma once

#include "ggml.h"

#include "../berth.h"
