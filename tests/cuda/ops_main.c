// SPDX-License-Identifier: MIT
// ops_main.c: runs the cases of the op suite (tests/op) on a device and compares the results with those of Berth's CPU backend:
//
//     cuda-ops FOLDER [-d DEVICE] [-v] [-k OP] [--part I/N] [--seed N] [--list]
//
// FOLDER holds the backends. The program prints one line per op: passed, failed, unsupported, and the largest error. Every tensor
// of a case is placed between guard bytes that must not change. Exit code: 0: no case failed; 1: some failed; 2: wrong usage;
// 3: the device was lost; 77: no such device.

#include "fused.h"
#include "runner.h"

#include "berth.h"
#include "ggml-backend-impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_SIZE (256u << 20)
#define GUARD 256
#define GUARD_BYTE 0xA5

struct device_suite {
    struct op_suite suite;
    char *bytes; // DEVICE_SIZE bytes on the host: a tensor with its guard bytes, before they are copied to the device
    ggml_backend_t cpu, gpu;
    ggml_backend_buffer_t memory; // holds all tensors of a case, on the device
};

// ---- tolerances ----

// Returns the largest error (NMSE) that a case may have. Devices differ in the order of sums and in their math libraries, and
// products may use f16 or 8-bit integers. n: elements of the result.
static double tolerance(const char *op, enum ggml_type type, double max_nmse, int64_t n) {
    static const char *const product[] = {
        "MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT", "LIGHTNING_INDEXER", "FUSED_MV", "FUSED_EXPERTS"};
    for (size_t i = 0; i < sizeof product / sizeof product[0]; i++) {
        if (strcmp(op, product[i]) == 0) {
            // In a small result, cancellation makes the relative error large.
            if (n < 4) {
                return 0.1;
            }
            return n < 64 ? 1e-2 : 5e-4;
        }
    }
    // The CPU computes these functions in f16.
    if (strstr(op, "GELU") != NULL || strcmp(op, "GLU") == 0) {
        return 2e-4;
    }
    const bool is_copy = strcmp(op, "CPY") == 0 || strcmp(op, "DUP") == 0 || strcmp(op, "SET_ROWS") == 0;
    if (ggml_is_quantized(type) && !is_copy) { // a difference in the last bit may round to another quantised level
        return fmax(max_nmse, 1e-7);
    }
    return max_nmse == OP_EXACT ? OP_EXACT : fmax(max_nmse, 1e-6);
}

static bool is_sum(const struct ggml_tensor *t) {
    return t->op == GGML_OP_SUM || t->op == GGML_OP_SUM_ROWS || t->op == GGML_OP_MEAN;
}

// For attention: sets got[e] to want[e] if got[e] is not finite and a value that contributes to it is not finite. The CPU omits
// values whose weight is zero; tensor cores cannot omit them, and zero times such a value is NaN. All other results must equal
// those of the CPU.
static void forgive_hidden(const struct op_case *c, const double *values, double *got, const double *want) {
    const struct ggml_tensor *v = c->t->src[2];
    for (int64_t e = 0; e < ggml_nelements(c->t); e++) {
        bool is_hidden = false; // a value of this element's column, of any head, is not finite
        for (int64_t i = e % c->t->ne[0]; i < ggml_nelements(v) && !isfinite(got[e]); i += v->ne[0]) {
            is_hidden |= !isfinite(values[i]);
        }
        got[e] = is_hidden ? want[e] : got[e];
    }
}

// For sums: sets got[i] to want[i] if the order of the additions alone can cause the difference. Such differences are relatively
// large if a summand is much larger than the result.
static void forgive_order(const struct op_case *c, const double *values, double *got, const double *want) {
    const struct ggml_tensor *from = c->t->src[0];
    double most = 0;
    for (int64_t i = 0; i < ggml_nelements(from); i++) {
        most = isfinite(values[i]) && fabs(values[i]) > most ? fabs(values[i]) : most;
    }
    for (int64_t i = 0; i < ggml_nelements(c->t); i++) {
        got[i] = fabs(got[i] - want[i]) <= 0x1p-52 * (double) ggml_nelements(from) * most ? want[i] : got[i];
    }
}

// ---- a case on the device ----

static char *align(char *p, size_t to) {
    return (char *) (((uintptr_t) p + to - 1) / to * to);
}

// Places every tensor on the device between guard bytes, and copies its data there. Returns false if the tensors do not fit.
static bool place(struct device_suite *s, struct ggml_context *ctx) {
    char *base = ggml_backend_buffer_get_base(s->memory), *at = base;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src != NULL) {
            continue;
        }
        const void *host = t->data;
        const size_t size = ggml_nbytes(t), alloc_size = ggml_backend_buffer_get_alloc_size(s->memory, t);
        char *to = align(at + GUARD, 256);
        if ((size_t) (to - base) + alloc_size + 2 * GUARD > DEVICE_SIZE) {
            return false;
        }
        t->buffer = s->memory;
        t->data = at;
        memset(s->bytes, GUARD_BYTE, (size_t) (to - at) + alloc_size + GUARD);
        if (host != NULL) {
            memcpy(s->bytes + (to - at), host, size);
        }
        s->memory->iface.set_tensor(s->memory, t, s->bytes, 0, (size_t) (to - at) + alloc_size + GUARD);
        t->data = to;
        at = to + alloc_size;
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src != NULL) {
            t->data = (char *) t->view_src->data + t->view_offs;
            t->buffer = s->memory;
        }
    }
    return true;
}

// Returns whether the guard bytes before and after each tensor are unchanged.
static bool is_guarded(struct device_suite *s, struct ggml_context *ctx) {
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src != NULL) {
            continue;
        }
        struct ggml_tensor before = *t, after = *t;
        unsigned char guard[2 * GUARD];
        before.data = (char *) t->data - GUARD;
        after.data = (char *) t->data + ggml_backend_buffer_get_alloc_size(s->memory, t);
        s->memory->iface.get_tensor(s->memory, &before, guard, 0, GUARD);
        s->memory->iface.get_tensor(s->memory, &after, guard + GUARD, 0, GUARD);
        for (int i = 0; i < 2 * GUARD; i++) {
            if (guard[i] != GUARD_BYTE) {
                return false;
            }
        }
    }
    return true;
}

// ---- a case ----

static double *cpu_values(struct device_suite *s, const struct op_case *c) {
    op_case_restore(&s->suite, c);
    return s->cpu->iface.graph_compute(s->cpu, c->graph) == GGML_STATUS_SUCCESS ? op_values(c->t) : NULL;
}

// Returns the values of the result; on failure NULL, and the reason in *why.
static double *gpu_values(struct device_suite *s, const struct op_case *c, const char **why) {
    // Fused cases are launched, captured and replayed, each time on the same bytes.
    for (int i = 0; i < (strncmp(c->op, "FUSED", 5) == 0 ? 3 : 1); i++) {
        op_case_restore(&s->suite, c);
        if (!place(s, c->ctx)) {
            *why = "does not fit";
            return NULL;
        }
        if (s->gpu->iface.graph_compute(s->gpu, c->graph) != GGML_STATUS_SUCCESS) {
            *why = "compute failed";
            return NULL;
        }
        ggml_backend_synchronize(s->gpu);
    }
    struct ggml_tensor *root = c->t->view_src != NULL ? c->t->view_src : c->t;
    struct ggml_tensor host = *c->t;
    char *bytes = malloc(ggml_nbytes(root) + 1);
    s->memory->iface.get_tensor(s->memory, root, bytes, 0, ggml_nbytes(root));
    host.data = bytes + ((char *) c->t->data - (char *) root->data);
    double *v = op_values(&host);
    free(bytes);
    if (!is_guarded(s, c->ctx)) {
        *why = "wrote outside of its tensors";
        free(v);
        return NULL;
    }
    return v;
}

static bool is_supported(struct device_suite *s, const struct op_case *c) {
    for (int i = 0; i < ggml_graph_n_nodes(c->graph); i++) {
        if (!s->gpu->device->iface.supports_op(s->gpu->device, ggml_graph_node(c->graph, i))) {
            return false;
        }
    }
    return true;
}

static void case_compare(struct op_suite *suite, struct op_tally *tally, const struct op_case *c) {
    struct device_suite *s = (struct device_suite *) suite;
    double *want = cpu_values(s, c);
    if (want == NULL) { // without a result of the CPU, there is nothing to compare
        return;
    }
    op_case_restore(&s->suite, c);
    const bool attends = c->t->op == GGML_OP_FLASH_ATTN_EXT;
    double *values = is_sum(c->t) ? op_values(c->t->src[0]) : attends ? op_values(c->t->src[2]) : NULL;
    if (!is_supported(s, c)) {
        tally->n_unsupported++;
        op_report(&s->suite, "none", c, "not supported", 0);
        free(want), free(values);
        return;
    }
    const char *why = NULL;
    double *got = gpu_values(s, c, &why);
    if (got != NULL && values != NULL) {
        (attends ? forgive_hidden : forgive_order)(c, values, got, want);
    }
    const double max = tolerance(c->op, c->t->type, c->max_nmse, ggml_nelements(c->t)),
                 error = got != NULL ? op_nmse(got, want, ggml_nelements(c->t)) : INFINITY;
    if (got == NULL || !(error <= max)) {
        tally->n_failed++;
        op_report(&s->suite, "FAIL", c, why != NULL ? why : "nmse", error);
    } else {
        tally->n_passed++;
        tally->worst = error > tally->worst ? error : tally->worst;
        op_report(&s->suite, "pass", c, "nmse", error);
    }
    free(want), free(got), free(values);
    if (why != NULL && strcmp(why, "compute failed") == 0 && strstr(berth_last_error(), "lost") != NULL) {
        printf("LOST the device: %s\n", berth_last_error());
        fflush(stdout);
        _Exit(3);
    }
}

// ---- the run ----

static void log_drop(enum ggml_log_level level, const char *text, void *user_data) {
    (void) user_data;
    if (level == GGML_LOG_LEVEL_ERROR && (strstr(text, "CUDA") != NULL || strstr(text, "Vulkan") != NULL)) {
        fputs(text, stdout);
    }
}

static bool parse(struct device_suite *s, const char **device, int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            s->suite.is_list = true;
        } else if (strcmp(argv[i], "-d") == 0 && i + 1 < argc) {
            *device = argv[++i];
        } else if (!op_suite_option(&s->suite, argc, argv, &i)) {
            return false;
        }
    }
    return argc > 1;
}

static int print_tallies(const struct device_suite *s) {
    struct op_tally all = {.op = "all"};
    for (int i = 0; i < s->suite.n_ops; i++) {
        const struct op_tally *t = &s->suite.tallies[i];
        if (s->suite.is_list) {
            printf("%s\n", t->op);
            continue;
        }
        printf("%-24s %d passed, %d failed, %d unsupported (worst nmse %.2g)\n", t->op, t->n_passed, t->n_failed,
            t->n_unsupported, t->worst);
        all.n_passed += t->n_passed, all.n_failed += t->n_failed, all.n_unsupported += t->n_unsupported;
    }
    if (!s->suite.is_list && s->suite.only == NULL) {
        printf("%-24s %d passed, %d failed, %d unsupported\n", all.op, all.n_passed, all.n_failed, all.n_unsupported);
    }
    return all.n_failed;
}

static bool open_devices(struct device_suite *s, const char *folder, const char *device) {
    ggml_backend_load_all_from_path(folder);
    s->cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    // Use the portable kernels of the CPU backend, which sum in double and quantise to the same bytes as the reference.
    void (*use_ref)(ggml_backend_t, bool) = NULL;
    void *address = s->cpu != NULL
                        ? ggml_backend_reg_get_proc_address(
                              ggml_backend_dev_backend_reg(ggml_backend_get_device(s->cpu)), "ggml_backend_cpu_set_use_ref")
                        : NULL;
    memcpy(&use_ref, &address, sizeof use_ref);
    if (use_ref != NULL) {
        use_ref(s->cpu, true);
    }
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(device);
    s->gpu = dev != NULL ? ggml_backend_dev_init(dev, NULL) : NULL;
    s->memory = s->gpu != NULL ? ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(dev), DEVICE_SIZE) : NULL;
    return s->cpu != NULL && s->memory != NULL;
}

int main(int argc, char **argv) {
    struct device_suite s = {.suite = {.n_parts = 1, .compare = case_compare}};
    const char *device = "CUDA0";
    if (!parse(&s, &device, argc, argv)) {
        fprintf(stderr, "Usage: cuda-ops FOLDER [-d DEVICE] [-v] [-k OP] [--part I/N] [--seed N] [--list]\n");
        return 2;
    }
    s.suite.arena = malloc(OP_ARENA_SIZE);
    s.suite.saved = malloc(OP_ARENA_SIZE);
    s.bytes = malloc(DEVICE_SIZE);
    ggml_log_set(log_drop, NULL);
    if (s.suite.arena == NULL || s.suite.saved == NULL || s.bytes == NULL) {
        printf("out of memory\n");
        return 1;
    }
    if (!s.suite.is_list && !open_devices(&s, argv[1], device)) {
        printf("skipped: no device %s with the backends in %s: %s\n", device, argv[1], berth_last_error());
        return 77;
    }
    op_suite_run(&s.suite);
    op_suite_fused(&s.suite);
    const int n_failed = print_tallies(&s);
    if (!s.suite.is_list) {
        ggml_backend_buffer_free(s.memory);
        ggml_backend_free(s.gpu);
        ggml_backend_free(s.cpu);
    }
    free(s.suite.arena), free(s.suite.saved), free(s.bytes);
    return n_failed > 0;
}
