// SPDX-License-Identifier: MIT
// call.h: recipes. A recipe is a list of API calls as plain data, which can be sent to another process, mutated and printed. An
// argument #i refers to the result of call i:
//
//     0 ggml_new_tensor_2d(f32, 4, 3)
//     1 ggml_transpose(#0)
//     2 ggml_mul_mat(#0, #1)
//
// machine.c runs a recipe and writes the outcome as text. The texts of Berth and of the reference must be equal.
#pragma once

#include "core/graph.h"
#include "ggml.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CALL_MAX_ARGS 20
#define CALL_MAX_LIST 11 // tensors in an argument that is a list: one more than GGML_MAX_SRC

// Berth may have ops and types that the reference does not have. Their numbers follow those of the reference.
enum { REFERENCE_N_TYPES = GGML_TYPE_Q2_0 + 1, REFERENCE_N_OPS = GGML_OP_GLU + 1 };

enum call_id {
#define CALL(result, name, ...) CALL_##name,
#include "calls.inc"
    CALL_COUNT
};

struct call {
    int32_t id; // enum call_id
    int32_t n_args;
    // Kinds T and G (calls.inc): index of the call that returned the object, -1: NULL. F: bits of the float. Others: the value.
    int64_t args[CALL_MAX_ARGS];
};

struct recipe {
    uint64_t mem_size; // bytes of the arena
    uint32_t no_alloc;
    uint32_t probe; // PROBE_NONE: run the calls; otherwise run this probe (machine.h) instead
    uint64_t seed;  // seed of the probe
    int32_t n_calls;
    int32_t n_alloc; // capacity of calls
    struct call *calls;
};

struct call_info {
    const char *name;
    const char *kinds;
    char result;
};

extern const struct call_info call_table[CALL_COUNT];

// The functions of one implementation. NULL: the implementation does not have the function. CALL lists the functions that recipes
// can call. PLAIN lists further functions, which only the code of the machine and of the probes calls.
struct api {
#define CALL(result, name, ...) __typeof__(name) *name;
#include "calls.inc"
#define PLAIN(name) __typeof__(name) *name;
#include "plain.inc"
    bool (*berth_is_poison)(const struct ggml_tensor *tensor); // NULL in the reference
    const char *(*berth_last_error)(void);
    void (*berth_clear_error)(void);
};

void api_load(struct api *api, void *handle);
bool api_has(const struct api *api, int id);

union value {
    struct ggml_tensor *t;
    struct ggml_cgraph *g;
    int64_t i;
    double d;
    const char *s;
};

struct machine;

// Arguments may refer to values of earlier calls.
void call_invoke(struct machine *m, const struct call *call, union value *result);

// ---- recipes ----

void recipe_clear(struct recipe *r);
void recipe_free(struct recipe *r);
// Appends a call with default arguments and returns its index.
int recipe_push(struct recipe *r, enum call_id id);
void recipe_print(const struct recipe *r, FILE *f);
// Returns string i of a fixed list of RECIPE_NAMES strings. Recipes pass these strings as names of tensors: the value of an
// argument of kind Z is such an index. Returns NULL if i is not an index of the list.
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
