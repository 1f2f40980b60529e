// SPDX-License-Identifier: MIT
// galloc_plan.h: planning, as the allocator and its checks use it.
#pragma once

#include "alloc/galloc.h"

struct record_rules berth_galloc_record_rules(struct ggml_gallocr *galloc);
struct lifetime_rules berth_galloc_lifetime_rules(const struct ggml_gallocr *galloc);
