// SPDX-License-Identifier: MIT
// reader.h: text.c reads lines and splits them; read.c builds the graph.
#pragma once

#include "base/base.h"
#include "capture/ggraph.h"

struct ggraph_reader {
    struct ggraph *g;
    const char *path;
    void *file; // owned by text.c
    char *text; // [size] text, then a NUL; text[at]: next line
    size_t size, at, text_cap;
    bool is_end;             // the file has no more bytes
    enum ggml_status status; // result of reading the file so far
    char *line;
    int64_t i_line;
    int64_t n_nodes, n_leafs, n_other;
    struct ggml_tensor **tensors; // [id]
    int32_t *buf_ids;             // [id] buffer id of the tensor
    size_t tensors_cap, buf_ids_cap, places_cap, ctxs_cap;
    int32_t *links; // per tensor: id of view_src, number and ids of sources
    size_t n_links, links_cap;
    char *leaf_order;                  // text of the line leaforder; NULL: none
    struct ggraph_item *items_by_line; // [g->n_items] in the order of lines
    size_t items_by_line_cap;
};

// Opens the file. Fails unless the first line is "ggraph 1".
enum ggml_status ggraph_text_open(struct ggraph_reader *r) BERTH_MUST_USE;
void ggraph_text_close(struct ggraph_reader *r); // also after a failure
// Reads the next line into r->line, without its line end. The line is valid until the next call. False: end of the text, or an
// error.
bool ggraph_line(struct ggraph_reader *r);
// Call if ggraph_line returned false. Returns the error of reading the file. Without an error, fails with `what`.
enum ggml_status ggraph_no_line(const struct ggraph_reader *r, const char *what) BERTH_MUST_USE;
// Fails with a message that starts with the file name and the number of the current line.
enum ggml_status ggraph_refuse(const struct ggraph_reader *r, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Splits at blanks, in place. Returns the number of fields, at most n_max.
int ggraph_split(char *line, char **fields, int n_max);
// Reads an integer. False unless the text contains an integer that is followed by ',', ':' or the end of the text.
bool ggraph_number(const char *text, int64_t *out);
bool ggraph_four(const char *text, int64_t out[4]); // a,b,c,d, each >= 0
// Returns the value of key=value; SIZE_MAX if the key differs.
size_t ggraph_value(const char *text, const char *key);
