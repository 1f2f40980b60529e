// SPDX-License-Identifier: MIT
// fit_cluster.h: `berth fit MODEL --cluster FILE`.
#pragma once

#include "cli/models.h"

// The exit code; what was found is printed.
int fit_cluster(const struct model_options *options, const char *file, bool json);
