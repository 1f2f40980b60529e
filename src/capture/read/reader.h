// SPDX-License-Identifier: MIT
// reader.h: what the parts of the reader of captured graphs share: the file (unpack.c), lines and fields (text.c), edges
// (link.c), header and tensors (read.c).
#pragma once

#include "base/base.h"
#include "capture/ggraph.h"

struct ggraph_reader {
    struct ggraph *g;
    const char *path;
    void *file; // unpack.c's
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

// ---- unpack.c ----

enum ggml_status ggraph_file_open(struct ggraph_reader *r) BERTH_MUST_USE;
// Returns how many bytes came: 0 at the end of the file, and where r->status says that it cannot be read.
size_t ggraph_file_read(struct ggraph_reader *r, void *to, unsigned size);
// What to add where the first bytes are not those of a captured graph.
const char *ggraph_file_hint(const struct ggraph_reader *r);
void ggraph_file_close(struct ggraph_reader *r); // also after a failure

// ---- text.c ----

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

// ---- items.c ----

// The columns item and life of the current line.
enum ggml_status ggraph_item_read(struct ggraph_reader *r, int64_t id, const char *item, const char *life) BERTH_MUST_USE;
// Puts the items in order, after the last line.
enum ggml_status ggraph_items_all(struct ggraph_reader *r, int64_t n_all) BERTH_MUST_USE;

// ---- link.c ----

// Keeps what the current line's tensor names, by id: the tensors may follow.
enum ggml_status ggraph_link_read(struct ggraph_reader *r, const char *view_src, const char *srcs) BERTH_MUST_USE;
// Sets view_src and src of all tensors, after the last line; refuses what no program can have run.
enum ggml_status ggraph_link_all(struct ggraph_reader *r, int64_t n_all) BERTH_MUST_USE;
