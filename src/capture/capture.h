// SPDX-License-Identifier: MIT
// capture.h: writes the graphs of a running program to files. alloc/capture.c calls these functions. The reader is in read/. It
// is separate because it requires zlib.
//
// The format is text. Fields are separated by blanks. In the lines below, words in capitals stand for values:
//   ggraph 1
//   name NAME
//   source PROGRAM VERSION
//   ggml VERSION COMMIT
//   counts nodes=N leafs=N other=N bufs=N
//   buf I NAME align=BYTES max=BYTES same_as=J ggml_size=BYTES
//   leaforder ID:BUF,...
//   columns ...
// There is one line `buf` per buffer id:
// - `max` is the largest buffer of the type.
// - `same_as` is the first buffer id of the same type.
// - `ggml_size` is the memory that the captured program planned for the graph in this type; 0 unless same_as is I.
// A graph may list a tensor twice, for example as a node and as a leaf. Such a tensor has only one line. Only then, the line
// `leaforder` gives the id and the buffer id of every leaf in the order of the graph's list of leafs.
// The line `columns` names the fields of the lines after it. Each of these lines is one tensor.
//
// An item is a piece of memory that tensors use one after another. The column `item` is the number of the tensor's item; -1:
// none. The column `life` is FIRST,LAST,BYTES,BUFFER for the first tensor of an item, and "-" for other tensors. FIRST and LAST
// are the first and the last node that use the item. Old files lack the columns `item` and `life`. For old files the graph
// allocator computes the items, with the in-place rules of the file's ggml version.
#pragma once

#include "base/base.h"

#include <stdio.h>

struct capture_buf {
    const char *name;
    size_t align, chunk_limit; // bytes; chunk_limit 0: no limit
    int same_as;               // index of the first buffer of the same type
    size_t size;               // bytes of the plan; only in the first buffer of a type
};

// One tensor. Ids number the nodes in order, then the leafs, then the other tensors.
struct capture_tensor {
    const struct ggml_tensor *tensor;
    int32_t id;
    char kind; // 'N' node, 'L' leaf, 'X' neither
    enum ggml_op op;
    int32_t flags;      // GGML_TENSOR_FLAG_* bits
    int32_t view_src;   // id, -1: not a view
    bool has_memory;    // the caller owns its memory
    int32_t buf;        // buffer id that the caller gave, -1: none
    size_t alloc_size;  // bytes that the tensor needs in that buffer
    int64_t chunk, off; // position in the plan: index of the chunk, and bytes in the chunk; -1: not in the plan's memory
    int32_t item;       // number of the tensor's item, -1: none
    // Lifetime of the item; NULL unless this is the item's first tensor.
    const struct berth_plan_item *life;
    int32_t life_buf; // buffer id of the item
};

void berth_capture_write_head(FILE *f, int32_t n_nodes, int32_t n_leafs, int32_t n_other, int n_bufs);
void berth_capture_write_buf(FILE *f, int i, const struct capture_buf *buf);
void berth_capture_write_columns(FILE *f);
// srcs: ids of the n_srcs sources.
void berth_capture_write_tensor(FILE *f, const struct capture_tensor *c, const int32_t *srcs, int n_srcs);

// Returns the value of BERTH_CAPTURE; NULL: nothing is captured.
const char *berth_capture_dir(void);
// Writes the text to a file named by a hash of the text. The file is written completely or not at all. An existing file of this
// name has the same text and is kept. False: failed, with errno.
bool berth_capture_write_file(const char *dir, const char *text, size_t size) BERTH_MUST_USE;
