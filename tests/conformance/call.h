// SPDX-License-Identifier: MIT
// call.h: recipes. A recipe is a list of API calls as plain data: it can be sent to another process, mutated and printed.
// Argument and result i of a recipe refer to the result of its call i, so inputs are made by calls like everything else:
//
//     0 ggml_new_tensor_2d(f32, 4, 3)
//     1 ggml_transpose(#0)
//     2 ggml_mul_mat(#0, #1)
//
// machine.c runs a recipe on one implementation and writes down what came of it; Berth and the reference must write the same.
#pragma once

#include "core/graph.h"
#include "ggml.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CALL_MAX_ARGS 20
#define CALL_MAX_LIST 11 // tensors in an argument that is a list: one more than GGML_MAX_SRC

enum call_id {
#define CALL(result, name, ...) CALL_##name,
#include "calls.inc"
    CALL_COUNT
};

struct call {
    int32_t id; // enum call_id
    int32_t n_args;
    int64_t args[CALL_MAX_ARGS]; // T, G: index of the call that made it, -1 for NULL; F: the bits
};

struct recipe {
    uint64_t mem_size; // bytes of the arena
    uint32_t no_alloc;
    uint32_t probe; // not PROBE_NONE: run that probe in place of calls
    uint64_t seed;  // of the probe
    int32_t n_calls;
    int32_t n_alloc; // length of calls
    struct call *calls;
};

struct call_info {
    const char *name;
    const char *kinds;
    char result;
};

extern const struct call_info call_table[CALL_COUNT];

// The functions of one implementation; NULL where it lacks one.
struct api {
#define CALL(result, name, ...) __typeof__(name) *name;
#include "calls.inc"
#define PLAIN(name) __typeof__(name) *name;
#include "plain.inc"
    bool (*berth_is_poison)(const struct ggml_tensor *tensor); // NULL in the reference
    const char *(*berth_last_error)(void);
    void (*berth_clear_error)(void);
};

// Takes every function from handle by dlsym.
void api_load(struct api *api, void *handle);
// Whether the implementation has the function behind a call.
bool api_has(const struct api *api, int id);

union value {
    struct ggml_tensor *t;
    struct ggml_cgraph *g;
    int64_t i;
    double d;
    const char *s;
};

struct machine;

// Makes one call. Arguments refer to values of earlier calls.
void call_invoke(struct machine *m, const struct call *call, union value *result);

// ---- recipes ----

void recipe_clear(struct recipe *r);
void recipe_free(struct recipe *r);
// Appends a call with room for its arguments; returns its index.
int recipe_push(struct recipe *r, enum call_id id);
// Readable, one call a line.
void recipe_print(const struct recipe *r, FILE *f);
// The string behind argument kind Z.
const char *recipe_name(int64_t i);
#define RECIPE_NAMES 12

static inline int64_t float_bits(float f) {
    union {
        float f;
        uint32_t u;
    } x = {.f = f};
    return x.u;
}

static inline float bits_float(int64_t bits) {
    union {
        uint32_t u;
        float f;
    } x = {.u = (uint32_t) bits};
    return x.f;
}
