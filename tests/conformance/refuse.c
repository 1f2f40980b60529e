// SPDX-License-Identifier: MIT
// refuse.c: conformance-refuse: checks how constructors of Berth treat invalid arguments, without a reference.
// The program calls every constructor with valid arguments and replaces one argument at a time:
// - If a source is poison, or a required source is NULL, the result is poison and an error is set.
// - If the context is NULL, the result is NULL.
// For invalid arguments, and in arenas of 0, 64, 128, ... 1984 bytes, the result is a tensor with valid sources and extents, or
// poison and an error. All other functions of the table get the same arguments and must not crash.
#include "gen.h"
#include "machine.h"

#include "berth.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define N_VALID 40  // valid argument sets per function
#define N_OTHER 400 // mutated and wild argument sets per function
#define MAX_CALLS 256

static const uint64_t seed = 1;
static struct api api;
static union value values[MAX_CALLS];
static struct ggml_cgraph views[MAX_CALLS];
static struct recipe recipe;
static int64_t n_tried, n_poison;
static int n_bad;

static void on_log(enum ggml_log_level level, const char *text, void *user) {
    (void) level, (void) text, (void) user;
}

static void expect(bool ok, const char *what) {
    if (!ok && n_bad++ < 20) {
        printf("FAILED: %s (error: %s)\n", what, berth_last_error());
        recipe_print(&recipe, stdout);
    }
}

static bool is_constructor(int id) {
    return id <= CALL_ggml_opt_step_sgd;
}

static void expect_sound(const struct ggml_tensor *t) {
    bool is_sound = t->type >= 0 && t->type < GGML_TYPE_COUNT && t->op >= 0 && t->op < GGML_OP_COUNT;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        is_sound = is_sound && t->ne[i] >= 0;
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        is_sound = is_sound && (t->src[i] == NULL || !berth_is_poison(t->src[i]));
    }
    is_sound = is_sound && (t->view_src == NULL || (!berth_is_poison(t->view_src) && t->view_src->view_src == NULL));
    expect(is_sound, "the result is neither valid nor poison");
}

// Returns the result of the last call, which may run without a context. The caller frees the context.
static struct ggml_tensor *run(struct machine *m, bool with_context) {
    static _Alignas(64) char arena[64 << 20]; // static, because sanitizers are slow to allocate this much memory
    void *memory = recipe.mem_size <= sizeof arena ? arena : NULL;
    berth_clear_error();
    m->ctx = ggml_init((struct ggml_init_params){.mem_size = recipe.mem_size, .mem_buffer = memory, .no_alloc = recipe.no_alloc});
    if (m->ctx == NULL || recipe.n_calls > MAX_CALLS) {
        printf(
            "cannot create a context of %" PRIu64 " bytes, or the recipe has more than %d calls\n", recipe.mem_size, MAX_CALLS);
        exit(1);
    }
    memset(values, 0, sizeof(values));
    struct ggml_context *ctx = m->ctx;
    for (int i = 0; i < recipe.n_calls; i++) {
        const bool is_last = i == recipe.n_calls - 1;
        m->ctx = is_last && !with_context ? NULL : ctx;
        call_invoke(m, &recipe.calls[i], &values[i]);
    }
    m->ctx = ctx;
    struct ggml_tensor *t = values[recipe.n_calls - 1].t;
    n_tried++;
    return t;
}

// The result must be poison with an error, or a valid tensor. Returns whether it is poison.
static bool run_any(struct machine *m) {
    const int id = recipe.calls[recipe.n_calls - 1].id;
    if (!is_constructor(id)) {
        run(m, true);
        ggml_free(m->ctx);
        return false;
    }
    const struct ggml_tensor *t = run(m, true);
    expect(t != NULL, "the result is NULL although there is a context");
    const bool is_poison = t != NULL && berth_is_poison(t);
    n_poison += is_poison;
    if (is_poison) {
        expect(berth_last_error()[0] != '\0' && berth_context_error(m->ctx)[0] != '\0', "poison without an error");
    } else if (t != NULL) {
        expect_sound(t);
    }
    ggml_free(m->ctx);
    return is_poison;
}

// Returns how many arguments the call reads. Later entries of a list are ignored.
static int n_read_args(const struct call *c) {
    return c->id == CALL_ggml_custom_4d        ? 9 + (int) c->args[5]
           : c->id == CALL_ggml_custom_inplace ? 5 + (int) c->args[1]
                                               : c->n_args;
}

// Replaces each source of the last call in turn by poison (a tensor of -1 elements), by a tensor of one element, and by NULL.
static void replace_sources(struct machine *m) {
    const int last = recipe_push(&recipe, CALL_ggml_new_tensor_1d);
    const struct call c = recipe.calls[last - 1];
    recipe.calls[last - 1] = recipe.calls[last];
    recipe.calls[last - 1].args[0] = GGML_TYPE_F32;
    for (int k = 0; k < n_read_args(&c); k++) {
        const char kind = call_table[c.id].kinds[k];
        if (kind != 'T' && kind != 'G') {
            continue;
        }
        recipe.calls[last] = c;
        recipe.calls[last].args[k] = last - 1;
        recipe.calls[last - 1].args[1] = -1;
        if (kind == 'T') {
            expect(run_any(m) || !is_constructor(c.id), "a source is poison, but the result is not");
            recipe.calls[last - 1].args[1] = 1;
            run_any(m);
        }
        recipe.calls[last].args[k] = -1;
        run_any(m); // some sources are optional
    }
}

static void try_valid(struct machine *m, int id, int i_set) {
    struct gen g = {{seed * 1000003 + (uint64_t) id * 1009 + (uint64_t) i_set}, &recipe};
    gen_recipe(&g, (enum call_id) id, SORT_VALID);
    if (run_any(m)) {
        return; // the reference refuses some valid sets, too
    }
    const bool is_none = run(m, false) == NULL;
    expect(is_none || !is_constructor(id), "the context is NULL, but the result is not");
    ggml_free(m->ctx);
    if (recipe.no_alloc && i_set < 2) {
        const uint64_t enough = recipe.mem_size;
        for (recipe.mem_size = 0; recipe.mem_size < 2048; recipe.mem_size += 64) {
            run_any(m);
        }
        recipe.mem_size = enough;
    }
    replace_sources(m);
}

int main(void) {
    static struct machine m;
    m.api = &api;
    m.values = values;
    m.views = views;
    api_load(&api, RTLD_DEFAULT);
    ggml_log_set(on_log, NULL);
    berth_client_release("v0.5.0"); // a release whose callers pass all arguments
    int n_functions = 0;
    for (int id = 0; id < CALL_COUNT; id++, n_functions++) {
        for (int i = 0; i < N_VALID; i++) {
            try_valid(&m, id, i);
        }
        for (int i = 0; i < N_OTHER; i++) {
            struct gen g = {{seed * 7919 + (uint64_t) id * 1013 + (uint64_t) i}, &recipe};
            gen_recipe(&g, (enum call_id) id, i % 2 == 0 ? SORT_MUTATED : SORT_WILD);
            run_any(&m);
        }
    }
    recipe_free(&recipe);
    printf("%d functions, %" PRId64 " calls, %" PRId64 " poison, %d wrong (seed %" PRIu64 ")\n", n_functions, n_tried, n_poison,
        n_bad, seed);
    return n_bad > 0 || n_poison == 0 || n_poison == n_tried;
}
