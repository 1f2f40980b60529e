// SPDX-License-Identifier: MIT
// layers.c: writes the explanation of a graph with equal layers once (plan.h). The lines of equal layers differ only in the numbers
// of nodes and layers. Takes time linear in the size of the text.

#include "view/plan.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// Consecutive lines of one layer.
struct block {
    const char *text, *end;
    int64_t layer;
    size_t n_lines;
};

// Parses "  node 5 blk.0.attn.q (ROPE". Returns the text after the layer's number; NULL: the line has no layer.
static const char *layer_of(const char *line, int64_t *layer) {
    const char *p = strncmp(line, "  node ", 7) == 0 ? line + 7 : NULL;
    if (p != NULL) {
        p += strspn(p, "0123456789");
        p = strncmp(p, " blk.", 5) == 0 ? p + 5 : NULL;
    }
    if (p == NULL || *p < '0' || *p > '9') {
        return NULL;
    }
    char *end;
    *layer = strtoll(p, &end, 10);
    return *end == '.' ? end : NULL;
}

static const char *next_line(const char *line) {
    const char *end = strchr(line, '\n');
    return end != NULL ? end + 1 : line + strlen(line);
}

// Returns the block that begins at a line, which must have a layer.
static struct block block_at(const char *line) {
    struct block b = {.text = line};
    int64_t layer;
    layer_of(line, &b.layer);
    for (; *line != '\0' && layer_of(line, &layer) != NULL && layer == b.layer; line = next_line(line)) {
        b.n_lines++;
    }
    b.end = line;
    return b;
}

// Returns whether two blocks differ only in the numbers of nodes and layers.
static bool blocks_equal(const struct block *a, const struct block *b) {
    const char *x = a->text, *y = b->text;
    bool same = a->n_lines == b->n_lines;
    for (size_t i = 0; i < a->n_lines && same; i++, x = next_line(x), y = next_line(y)) {
        int64_t layer;
        const char *p = layer_of(x, &layer), *q = layer_of(y, &layer);
        const size_t n = (size_t) (next_line(x) - p);
        same = n == (size_t) (next_line(y) - q) && memcmp(p, q, n) == 0;
    }
    return same;
}

// Writes one line for layers `from` to `to`, which equal the written block `first`. If to < from, writes nothing.
static void equal_layers_write(int64_t from, int64_t to, const struct block *first, FILE *file) {
    if (to == from) {
        fprintf(file, "  layer %" PRId64 ": the same %zu nodes as layer %" PRId64 "\n", to, first->n_lines, first->layer);
    } else if (to > from) {
        fprintf(file, "  layers %" PRId64 " to %" PRId64 ": %" PRId64 " x the same %zu nodes as layer %" PRId64 "\n", from, to,
            to - from + 1, first->n_lines, first->layer);
    }
}

size_t view_layers_write(const char *text, int64_t layer, FILE *file) {
    struct block first = {0};  // the last written block
    int64_t from = 0, to = -1; // the layers after it that are equal to it
    size_t n_written = 0;
    while (*text != '\0') {
        int64_t i;
        const char *next = next_line(text);
        const bool has_layer = layer_of(text, &i) != NULL;
        if (layer == VIEW_LAYERS_ALL || !has_layer) {
            equal_layers_write(from, to, &first, file);
            first = (struct block){0};
            to = from - 1;
            fwrite(text, 1, (size_t) (next - text), file);
            text = next;
            continue;
        }
        const struct block b = block_at(text);
        n_written += b.layer == layer ? b.n_lines : 0;
        if (layer >= 0 ? b.layer == layer : first.text == NULL || !blocks_equal(&first, &b)) {
            equal_layers_write(from, to, &first, file);
            fwrite(b.text, 1, (size_t) (b.end - b.text), file);
            first = b;
            from = b.layer + 1;
            to = b.layer;
        } else if (layer < 0) {
            to = b.layer;
        }
        text = b.end;
    }
    equal_layers_write(from, to, &first, file);
    return n_written;
}
