// SPDX-License-Identifier: MIT
// capture.h: graphs of running programs as files.
#pragma once

#include "alloc/galloc.h"

// With BERTH_CAPTURE=DIR in the environment: writes the graph of a plan to DIR as text (.ggraph), under a name made from its
// content, so that a graph that was captured before, by any process, is not written again. Never fails: the first trouble is one
// warning in the log, and nothing is captured from then on. An allocator asks when it is made.
bool berth_capture_is_on(void);
void berth_capture(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const struct record *rec);
