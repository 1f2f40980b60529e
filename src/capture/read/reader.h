// SPDX-License-Identifier: MIT
// reader.h: what the parts of the reader of captured graphs share: the file with its lines and fields (text.c), and the graph
// (read.c).
#pragma once

#include "base/base.h"
#include "capture/ggraph.h"

struct ggraph_reader {
    struct ggraph *g;
    const char *path;
    void *file; // text.c's
    char *text; // [size], terminated: what is unpacked and not yet read, from `at`
    size_t size, at, text_cap;
    bool is_end;             // of the file
    enum ggml_status status; // of reading
    char *line;
    int64_t i_line;
    int64_t n_nodes, n_leafs, n_other;
    struct ggml_tensor **tensors; // by id
    int32_t *bufs;                // by id
    size_t tensors_cap, bufs_cap, places_cap, ctxs_cap;
    int32_t *links; // view source, number of sources, and the sources of each tensor, in order
    size_t n_links, links_cap;
    char *leaf_order;
    struct ggraph_item *lives; // [g->n_items] as they come
    size_t lives_cap;
};

// The first line says that it is a captured graph.
enum ggml_status ggraph_text_open(struct ggraph_reader *r) BERTH_MUST_USE;
void ggraph_text_close(struct ggraph_reader *r); // also after a failure
// The next line, without its line end, until the next call; false at the end of the text, or where it cannot be read.
bool ggraph_line(struct ggraph_reader *r);
// The failure of a text that has no such line: it cannot be read, else `what`.
enum ggml_status ggraph_no_line(const struct ggraph_reader *r, const char *what) BERTH_MUST_USE;
// A failure that names the file and the current line.
enum ggml_status ggraph_refuse(const struct ggraph_reader *r, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Splits in place at blanks; returns how many fields there are, at most n_max.
int ggraph_split(char *line, char **fields, int n_max);
// A whole number that ends its field, or stands before ',' or ':'.
bool ggraph_number(const char *text, int64_t *out);
bool ggraph_four(const char *text, int64_t out[4]); // a,b,c,d, from 0
// Of key=value; SIZE_MAX if it is another key.
size_t ggraph_value(const char *text, const char *key);
