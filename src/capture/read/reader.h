// SPDX-License-Identifier: MIT
// reader.h: shared by the parts of the reader of captured graphs: the file with its lines and fields (text.c), and the graph
// (read.c).
#pragma once

#include "base/base.h"
#include "capture/ggraph.h"

struct ggraph_reader {
    struct ggraph *g;
    const char *path;
    void *file; // owned by text.c
    char *text; // [size], terminated; text[at...]: decompressed bytes that are not read yet
    size_t size, at, text_cap;
    bool is_end;             // the file has no more bytes
    enum ggml_status status; // of the last read
    char *line;
    int64_t i_line;
    int64_t n_nodes, n_leafs, n_other;
    struct ggml_tensor **tensors; // by id
    int32_t *bufs;                // by id
    size_t tensors_cap, bufs_cap, places_cap, ctxs_cap;
    int32_t *links; // per tensor, in order: view source, number of sources, sources
    size_t n_links, links_cap;
    char *leaf_order;
    struct ggraph_item *lives; // [g->n_items] in the order of the lines
    size_t lives_cap;
};

// Opens the file and checks that its first line is that of a captured graph.
enum ggml_status ggraph_text_open(struct ggraph_reader *r) BERTH_MUST_USE;
void ggraph_text_close(struct ggraph_reader *r); // also after a failure
// Reads the next line without its line end, valid until the next call. Returns false at the end of the text or on an error.
bool ggraph_line(struct ggraph_reader *r);
// Returns the failure for a missing line: the reading error if there is one, else `what`.
enum ggml_status ggraph_no_line(const struct ggraph_reader *r, const char *what) BERTH_MUST_USE;
// Returns a failure with the file and the number of the current line.
enum ggml_status ggraph_refuse(const struct ggraph_reader *r, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Splits at blanks, in place; returns the number of fields, at most n_max.
int ggraph_split(char *line, char **fields, int n_max);
// Reads an integer that ends its field or is followed by ',' or ':'.
bool ggraph_number(const char *text, int64_t *out);
bool ggraph_four(const char *text, int64_t out[4]); // a,b,c,d, each >= 0
// Returns the value of key=value; SIZE_MAX if the key differs.
size_t ggraph_value(const char *text, const char *key);
