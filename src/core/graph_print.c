// SPDX-License-Identifier: MIT
// graph_print.c: prints a graph as log lines, or writes it as a file for Graphviz's dot.

#include "core/graph.h"
#include "core/op.h"

#include <stdio.h>

static const char *node_mark(const struct ggml_cgraph *g, const struct ggml_tensor *t) {
    if ((t->flags & GGML_TENSOR_FLAG_PARAM) != 0) {
        return "x";
    }
    return ggml_graph_get_grad(g, t) != NULL ? "g" : " ";
}

void ggml_graph_print(const struct ggml_cgraph *cgraph) {
    if (cgraph == NULL) {
        return;
    }
    berth_log(GGML_LOG_LEVEL_INFO, "graph of %d nodes and %d leafs\n", cgraph->n_nodes, cgraph->n_leafs);
    for (int i = 0; i < cgraph->n_nodes; i++) {
        const struct ggml_tensor *t = cgraph->nodes[i];
        berth_log(GGML_LOG_LEVEL_INFO, " node %6d: " BERTH_SHAPE " %8s %16s %s %s\n", i, BERTH_NE(t), ggml_type_name(t->type),
            ggml_op_desc(t), node_mark(cgraph, t), t->name);
    }
    for (int i = 0; i < cgraph->n_leafs; i++) {
        const struct ggml_tensor *t = cgraph->leafs[i];
        berth_log(GGML_LOG_LEVEL_INFO, " leaf %6d: " BERTH_SHAPE " %8s %s\n", i, BERTH_NE(t), ggml_type_name(t->type), t->name);
    }
}

// Escapes characters that end the string or a field of the record.
static void dot_text(FILE *f, const char *text) {
    for (; *text != '\0'; text++) {
        if (strchr("\\\"<>|{}", *text) != NULL) {
            fputc('\\', f);
        }
        fputc(*text, f);
    }
}

static void dot_tensor(FILE *f, const struct ggml_cgraph *gb, const struct ggml_tensor *t, bool is_leaf) {
    const char *color = is_leaf ? "pink" : "white";
    if ((t->flags & GGML_TENSOR_FLAG_PARAM) != 0) {
        color = "yellow";
    } else if (gb != NULL && ggml_graph_get_grad(gb, t) != NULL) {
        color = "lightblue";
    } else if ((t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) {
        color = "green";
    }
    fprintf(f, "  \"%p\" [style=filled; fillcolor=%s; shape=record; label=\"", (const void *) t, color);
    dot_text(f, t->name);
    fprintf(f, " (%s)|" BERTH_SHAPE, ggml_type_name(t->type), BERTH_NE(t));
    if (!is_leaf) {
        fputs("|", f);
        dot_text(f, t->op == GGML_OP_UNARY || t->op == GGML_OP_GLU ? ggml_op_desc(t) : ggml_op_symbol(t->op));
    }
    fputs("\"; ]\n", f);
}

static void dot_edges(FILE *f, const struct ggml_tensor *t) {
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (t->src[i] != NULL) {
            fprintf(f, "  \"%p\" -> \"%p\" [label=\"src %d\"; ]\n", (const void *) t->src[i], (const void *) t, i);
        }
    }
}

// gb may be NULL or a graph with gradients. Tensors of cgraph that have a gradient in gb get their own colour.
void ggml_graph_dump_dot(const struct ggml_cgraph *gb, const struct ggml_cgraph *cgraph, const char *filename) {
    const struct ggml_cgraph *g = cgraph != NULL ? cgraph : gb;
    if (g == NULL || filename == NULL) {
        berth_set_error("ggml_graph_dump_dot: no graph or no file name");
        return;
    }
    FILE *f = ggml_fopen(filename, "w");
    if (f == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_graph_dump_dot: cannot write %s", filename);
        return;
    }
    fputs("digraph G {\n  newrank = true;\n  rankdir = TB;\n", f);
    for (int i = 0; i < g->n_nodes; i++) {
        dot_tensor(f, gb, g->nodes[i], false);
    }
    for (int i = 0; i < g->n_leafs; i++) {
        dot_tensor(f, gb, g->leafs[i], true);
    }
    for (int i = 0; i < g->n_nodes; i++) {
        dot_edges(f, g->nodes[i]);
    }
    fputs("}\n", f);
    const bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad) {
        berth_fail(GGML_STATUS_FAILED, "ggml_graph_dump_dot: %s could not be written completely", filename);
    }
}
