// SPDX-License-Identifier: MIT
// 2023/ggml-impl.h: what programs of 2023 took from ggml's inner header: the hash set of ggml_gallocr_alloc_graph_n.
#pragma once

#include "ggml-alloc.h"
