// SPDX-License-Identifier: MIT
// 2023/berth.h: what Berth offers beyond ggml, without what belongs to today's allocators and backends.
#pragma once

#include "ggml.h"

#include "../berth.h"
