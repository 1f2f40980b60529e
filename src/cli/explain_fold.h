// SPDX-License-Identifier: MIT
// explain_fold.h: the text of `berth explain` with layers that are alike told once.
#pragma once

#include <stdint.h>
#include <stdio.h>

#define EXPLAIN_FOLDED (-1) // a layer is told, and how many that follow are the same
#define EXPLAIN_ALL (-2)    // every line

// layer: one of these, or the only layer to tell. Lines of nodes belong to the layer that their tensor's name begins with
// (blk.3.ffn.up); others are told in any case. Returns how many lines belong to that layer.
size_t explain_fold(const char *text, int64_t layer, FILE *file);
