// SPDX-License-Identifier: MIT
// call.c: the call table, the functions that make the calls, and functions that build and print recipes (lists of calls).
#include "call.h"

#include "machine.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const struct call_info call_table[CALL_COUNT] = {
#define RESULT_CHAR(result) (#result)[0]
#define CALL(result, name, kinds, ...) {#name, kinds, RESULT_CHAR(result)},
#include "calls.inc"
};

void api_load(struct api *api, void *handle) {
    // POSIX allows storing the object pointer of dlsym as a function pointer in this way.
#define CALL(result, name, ...) *(void **) &api->name = dlsym(handle, #name);
#include "calls.inc"
#define PLAIN(name) *(void **) &api->name = dlsym(handle, #name);
#include "plain.inc"
    *(void **) &api->berth_is_poison = dlsym(handle, "berth_is_poison");
    *(void **) &api->berth_last_error = dlsym(handle, "berth_last_error");
    *(void **) &api->berth_clear_error = dlsym(handle, "berth_clear_error");
}

bool api_has(const struct api *api, int id) {
    static const size_t offsets[CALL_COUNT] = {
#define CALL(result, name, ...) offsetof(struct api, name),
#include "calls.inc"
    };
    void *function;
    memcpy(&function, (const char *) api + offsets[id], sizeof(function));
    return function != NULL;
}

// ---- invokers: one small function per row of calls.inc ----

static struct ggml_tensor *arg_tensor(const struct machine *m, int64_t i) {
    return i < 0 ? NULL : m->values[i].t;
}

static struct ggml_tensor **arg_list(struct machine *m, const int64_t *args) {
    for (int i = 0; i < CALL_MAX_LIST; i++) {
        m->list[i] = arg_tensor(m, args[i]);
    }
    return m->list;
}

// Argument k of a call: T tensor, G graph, I int, L int64_t, E type, F float, Z string.
#define T(k) arg_tensor(m, a[k])
#define G(k) (a[k] < 0 ? NULL : m->values[a[k]].g)
#define I(k) ((int) a[k])
#define L(k) (a[k])
#define E(k) ((enum ggml_type) a[k])
#define F(k) bits_float(a[k])
#define Z(k) recipe_name(a[k])
#define PTR(k) ((void *) (uintptr_t) a[k])
#define FUN(type, k) ((type) (uintptr_t) a[k])
#define INTS(k) ((int[]){I(k), I((k) + 1), I((k) + 2), I((k) + 3)})
#define DIMS(k) ((int64_t[]){L(k), L((k) + 1), L((k) + 2), L((k) + 3)})
#define LIST(k) arg_list(m, a + (k))
#define OUT(k) (&m->out[k])
#define OUTF (m->outf)
#define ctx (m->ctx)

// Stores the result x of a call: T tensor, G graph, W graph by value, O address as an offset in the arena, I integer, D double,
// S string, V none (void).
#define RESULT_T(x) result->t = (x)
#define RESULT_G(x) result->g = (x)
#define RESULT_W(x) \
    m->views[index] = (x); \
    result->g = &m->views[index]
#define RESULT_O(x) result->i = (int64_t) ((char *) (x) - (char *) m->api->ggml_get_mem_buffer(ctx))
#define RESULT_I(x) result->i = (int64_t) (x)
#define RESULT_D(x) result->d = (x)
#define RESULT_S(x) result->s = (x)
#define RESULT_V(x) \
    (x); \
    (void) result

// Defines invoke_X, which calls function X. The parameters are the columns of calls.inc; only result_kind, name and the arguments
// are used here.
#define CALL(result_kind, name, arg_kinds, generator, ...) \
    static void invoke_##name(struct machine *m, const int64_t *a, union value *result) { \
        const ptrdiff_t index = result - m->values; \
        (void) index, (void) a; \
        RESULT_##result_kind(m->api->name(__VA_ARGS__)); \
    }
#include "calls.inc"

void call_invoke(struct machine *m, const struct call *call, union value *result) {
    static void (*const invokers[CALL_COUNT])(struct machine *, const int64_t *, union value *) = {
#define CALL(result_kind, name, ...) invoke_##name,
#include "calls.inc"
    };
    memset(m->out, 0, sizeof(m->out));
    memset(m->outf, 0, sizeof(m->outf));
    invokers[call->id](m, call->args, result);
}

#undef ctx

// ---- recipes ----

void recipe_clear(struct recipe *r) {
    r->mem_size = 8 << 20;
    r->no_alloc = 1;
    r->probe = PROBE_NONE; // the recipe runs its calls; a probe would run instead of them (machine.h)
    r->seed = 0;
    r->n_calls = 0;
}

void recipe_free(struct recipe *r) {
    free(r->calls);
    memset(r, 0, sizeof(*r));
}

int recipe_push(struct recipe *r, enum call_id id) {
    if (r->n_calls == r->n_alloc) {
        r->n_alloc = r->n_alloc == 0 ? 64 : 2 * r->n_alloc;
        r->calls = realloc(r->calls, (size_t) r->n_alloc * sizeof(*r->calls));
        if (r->calls == NULL) {
            abort();
        }
    }
    struct call *c = &r->calls[r->n_calls];
    memset(c, 0, sizeof(*c));
    c->id = id;
    c->n_args = (int32_t) strlen(call_table[id].kinds);
    for (int i = 0; i < c->n_args; i++) {
        if (call_table[id].kinds[i] == 'T' || call_table[id].kinds[i] == 'G') {
            c->args[i] = -1;
        }
    }
    return r->n_calls++;
}

const char *recipe_name(int64_t i) {
    static const char *const names[RECIPE_NAMES] = {
        "a",
        "weight",
        "",
        "x (view)",
        "blk.12.attn_q.weight",
        "a name of sixty-three characters, which is just what does fit..",
        "a name of sixty-four characters: one of them must be cut off....",
        "a name that is far longer than the room a tensor has for it: it goes on and on, and then some, and ends here",
        "a name of fifty-eight characters, so that a suffix is cut.",
        "100%s %d",
        "t0",
        "caf\xc3\xa9",
    };
    return i >= 0 && i < RECIPE_NAMES ? names[i] : NULL;
}

// The names of the types are listed here, so that neither Berth nor the reference is called.
static const char *type_text(int64_t type, char *buffer, size_t size) {
    static const char *const names[GGML_TYPE_COUNT] = {
#define NAME(x) [GGML_TYPE_##x] = #x
        NAME(F32),
        NAME(F16),
        NAME(Q4_0),
        NAME(Q4_1),
        NAME(Q5_0),
        NAME(Q5_1),
        NAME(Q8_0),
        NAME(Q8_1),
        NAME(Q2_K),
        NAME(Q3_K),
        NAME(Q4_K),
        NAME(Q5_K),
        NAME(Q6_K),
        NAME(Q8_K),
        NAME(IQ2_XXS),
        NAME(IQ2_XS),
        NAME(IQ3_XXS),
        NAME(IQ1_S),
        NAME(IQ4_NL),
        NAME(IQ3_S),
        NAME(IQ2_S),
        NAME(IQ4_XS),
        NAME(I8),
        NAME(I16),
        NAME(I32),
        NAME(I64),
        NAME(F64),
        NAME(IQ1_M),
        NAME(BF16),
        NAME(TQ1_0),
        NAME(TQ2_0),
        NAME(MXFP4),
        NAME(NVFP4),
        NAME(Q1_0),
        NAME(Q2_0),
#undef NAME
    };
    if (type >= 0 && type < GGML_TYPE_COUNT && names[type] != NULL) {
        return names[type];
    }
    snprintf(buffer, size, "type %" PRId64, type);
    return buffer;
}

void recipe_print(const struct recipe *r, FILE *f) {
    if (r->probe != PROBE_NONE) {
        fprintf(f, "    probe %s, seed %" PRIu64 "\n", probe_name((int) r->probe), r->seed);
        return;
    }
    fprintf(f, "    context of %" PRIu64 " bytes%s\n", r->mem_size, r->no_alloc ? ", no_alloc" : "");
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->calls[i];
        char buffer[32];
        fprintf(f, "    #%d = %s(", i, call_table[c->id].name);
        for (int k = 0; k < c->n_args; k++) {
            const int64_t a = c->args[k];
            fputs(k == 0 ? "" : ", ", f);
            switch (call_table[c->id].kinds[k]) {
                case 'T':
                case 'G':
                    if (a < 0) {
                        fputs("NULL", f);
                    } else {
                        fprintf(f, "#%" PRId64, a);
                    }
                    break;
                case 'E': fputs(type_text(a, buffer, sizeof(buffer)), f); break;
                case 'F': fprintf(f, "%.9g", (double) bits_float(a)); break;
                case 'Z': fprintf(f, "\"%s\"", recipe_name(a) == NULL ? "(null)" : recipe_name(a)); break;
                case 'P': fprintf(f, "%#" PRIx64, (uint64_t) a); break;
                case 'B': fputs(a ? "true" : "false", f); break;
                default: fprintf(f, "%" PRId64, a); break;
            }
        }
        fputs(")\n", f);
    }
}
