// SPDX-License-Identifier: MIT
// gen.h: generates random recipes (call.h) of three sorts for every function: valid, mutated (valid with one change) and wild
// (arbitrary arguments). calls.inc names the generator of valid recipes, and the kinds of the arguments.
#pragma once

#include "call.h"
#include "rng.h"

struct gen {
    struct rng rng;
    struct recipe *r;
};

enum recipe_sort {
    SORT_VALID,
    SORT_MUTATED,
    SORT_WILD,
    SORT_COUNT,
};

// Fills r with a recipe whose last call is id.
void gen_recipe(struct gen *g, enum call_id id, enum recipe_sort sort);
// Generates a graph of up to n_nodes nodes and random calls of the graph functions (gen_graph.c).
void gen_graph_recipe(struct gen *g, int n_nodes);

typedef void gen_function(struct gen *g, enum call_id id);

// ---- numbers ----

static inline int64_t pick(struct gen *g, int64_t lo, int64_t hi) {
    return rng_range(&g->rng, lo, hi);
}

static inline bool chance(struct gen *g, int percent) {
    return rng_chance(&g->rng, percent);
}

#define PICK_OF(g, array) ((array)[pick(g, 0, (int64_t) (sizeof(array) / sizeof((array)[0])) - 1)])

int64_t gen_dim(struct gen *g);               // a small extent
int64_t gen_float(struct gen *g);             // bits of a float, sometimes an edge case
enum ggml_type gen_type(struct gen *g);       // any existing type
enum ggml_type gen_type_float(struct gen *g); // F32, F16 or BF16, mostly F32
enum ggml_type gen_type_mat(struct gen *g);   // a type of weight matrices
bool type_exists(int64_t type);
int64_t type_block(enum ggml_type type); // elements per block, 1 for unknown types
int64_t type_bytes(enum ggml_type type); // bytes per block

// ---- tensors ----

enum layout {
    CONT, // contiguous
    ROWS, // contiguous rows, in any order and with any distance
    ANY,  // also transposed and permuted
};

struct shape {
    int64_t ne[4];
};

struct shape gen_shape(struct gen *g);
static inline struct shape shape4(int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return (struct shape){{ne0, ne1, ne2, ne3}};
}

// Rounds ne[0] up to a multiple of the block size.
struct shape shape_fit(struct shape s, enum ggml_type type);
int64_t shape_count(struct shape s);

// Returns the index of the tensor.
int gen_tensor(struct gen *g, enum ggml_type type, struct shape s, enum layout layout);
int gen_new(struct gen *g, enum ggml_type type, struct shape s);

int gen_push(struct gen *g, enum call_id id, const int64_t *args, size_t n);
#define PUSH(g, id, ...) gen_push(g, id, (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

// ---- generators that calls.inc names ----

#define CALL(result, name, kinds, gen, ...) gen_function gen_op_##gen;
#include "calls.inc"
