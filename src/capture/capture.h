// SPDX-License-Identifier: MIT
// capture.h: graphs of running programs as files: what is written of each tensor, and into which folder. Who plans fills the
// records (alloc/capture.c); the reader is in read/, since it needs a library to unpack and only the program and tests read.
//
// The format: text, fields split by blanks.
//   ggraph 1
//   name, source, ggml VERSION COMMIT
//   counts nodes=N leafs=N other=N bufs=N
//   buf I NAME align=BYTES max=BYTES same_as=J ggml_size=BYTES     one a buffer id; same_as: the first one of its type
//   leaforder ID:BUF,...                                           only if a tensor is listed twice
//   columns ...                                                    then a line a tensor, the fields named there
// item is the number of the piece of memory that a tensor had, -1: none. The first tensor in a piece has its life: first and last
// node, both inclusive, bytes, buffer; others "-". Files of older writers end with the name: of those a reader has to guess both
// by the rules of memory of the ggml that they name.
#pragma once

#include "base/base.h"

#include <stdio.h>

struct capture_buf {
    const char *name;
    size_t align, max_chunk; // max_chunk 0: no limit
    int same_as;             // the first buffer of the same type
    size_t size;             // bytes that the plan takes, of the first buffer of a type
};

// One tensor. Ids: nodes in order, leafs, the others.
struct capture_tensor {
    const struct ggml_tensor *tensor;
    int32_t id;
    char kind; // 'N' node, 'L' leaf, 'X' neither
    enum ggml_op op;
    int32_t flags;      // of GGML_TENSOR_FLAG_*
    int32_t view_src;   // id, -1: no view
    bool has_memory;    // of somebody else
    int32_t buf;        // as the caller said, -1: not said
    size_t alloc_size;  // bytes in that buffer
    int64_t chunk, off; // -1: no memory of the plan
    int32_t item;       // its piece of memory, -1: none
    // The item's, if this is the first tensor in it: else NULL. Pools are buffers.
    const struct berth_plan_item *life;
    int32_t life_buf;
};

void berth_capture_write_head(FILE *f, int32_t n_nodes, int32_t n_leafs, int32_t n_other, int n_bufs);
void berth_capture_write_buf(FILE *f, int i, const struct capture_buf *buf);
void berth_capture_write_columns(FILE *f);
// srcs: ids of the sources, n_srcs of them.
void berth_capture_write_tensor(FILE *f, const struct capture_tensor *t, const int32_t *srcs, int n_srcs);

// BERTH_CAPTURE, NULL: nothing is captured.
const char *berth_capture_dir(void);
// The text becomes a file of a name made from it, whole or not at all; one that is there stays. False with errno.
bool berth_capture_write_file(const char *dir, const char *text, size_t size) BERTH_MUST_USE;
