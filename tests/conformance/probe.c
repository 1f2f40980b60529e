// SPDX-License-Identifier: MIT
// probe.c: fixed procedures for functions that recipes cannot call. The texts of Berth and of the reference must be equal.
#include "machine.h"
#include "rng.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define N_FLOATS 60000

const char *probe_name(int probe) {
    static const char *const names[PROBE_COUNT] = {
        "none", "fp16_to_fp32", "bf16_to_fp32", "fp32_to_fp16", "fp32_to_bf16", "type_traits", "misc"};
    return probe >= 0 && probe < PROBE_COUNT ? names[probe] : "?";
}

static void text_float(struct outcome *o, float f) {
    text_add(o, " %" PRIx64, (uint64_t) float_bits(f));
}

static void line_start(struct outcome *o, const char *what, int i) {
    if (i % 16 == 0) {
        text_add(o, "\n%s %d:", what, i);
    }
}

static void probe_to_f32(struct machine *m, bool bf16) {
    const struct api *api = m->api;
    struct outcome *o = m->outcome;
    static uint16_t bits16[65536];
    static float row[65536];
    for (int i = 0; i < 65536; i++) {
        bits16[i] = (uint16_t) i;
        line_start(o, bf16 ? "bf16" : "fp16", i);
        text_float(o, bf16 ? api->ggml_bf16_to_fp32((ggml_bf16_t){bits16[i]}) : api->ggml_fp16_to_fp32(bits16[i]));
    }
    for (int n = 1; n <= 65536; n = n < 70 ? n + 1 : 65536 + (n == 65536)) { // short rows test the tails of vector loops
        if (bf16) {
            api->ggml_bf16_to_fp32_row((const ggml_bf16_t *) bits16 + 65536 - n, row, n);
        } else {
            api->ggml_fp16_to_fp32_row(bits16 + 65536 - n, row, n);
        }
        for (int i = 0; i < n; i++) {
            line_start(o, "row", i);
            text_float(o, row[i]);
        }
    }
}

static float probe_float(struct rng *g, int i) {
    static const uint32_t edges[] = {0x00000000, 0x80000000, 0x00000001, 0x007fffff, 0x00800000, 0x3f800000, 0x477fe000,
        0x477fefff, 0x477ff000, 0x477fffff, 0x47800000, 0x38800000, 0x387fffff, 0x387fe000, 0x33000000, 0x33000001, 0x32ffffff,
        0x33800000, 0x33c00000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0x7fbfffff, 0x7fffffff,
        0xffffffff, 0x7f7f8000, 0x7f7f7fff, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001};
    const int n_edges = (int) (sizeof(edges) / sizeof(edges[0]));
    if (i < n_edges) {
        return bits_float(edges[i]);
    }
    uint32_t bits = (uint32_t) rng_next(g);
    if (i % 4 == 1) { // near the limits of f16
        bits = (bits & 0x807fffffu) | ((uint32_t) (100 + rng_next(g) % 48) << 23);
    } else if (i % 4 == 2) { // ties in rounding
        bits = (bits & 0xffffe000u) | 0x1000u;
    } else if (i % 4 == 3) {
        bits = (bits & 0xffff0000u) | 0x8000u;
    }
    return bits_float(bits);
}

static void probe_from_f32(struct machine *m, const struct recipe *r, bool bf16) {
    const struct api *api = m->api;
    struct outcome *o = m->outcome;
    static float floats[N_FLOATS];
    static uint16_t bits16[N_FLOATS];
    struct rng g = {r->seed};
    for (int i = 0; i < N_FLOATS; i++) {
        floats[i] = probe_float(&g, i);
        line_start(o, "one", i);
        text_add(o, " %x", bf16 ? api->ggml_fp32_to_bf16(floats[i]).bits : api->ggml_fp32_to_fp16(floats[i]));
    }
    for (int k = 0; k < (bf16 ? 2 : 1); k++) {
        for (int n = 1; n <= N_FLOATS; n = n < 70 ? n + 1 : N_FLOATS + (n == N_FLOATS)) {
            if (!bf16) {
                api->ggml_fp32_to_fp16_row(floats, bits16, n);
            } else if (k == 0) {
                api->ggml_fp32_to_bf16_row(floats, (ggml_bf16_t *) bits16, n);
            } else {
                api->ggml_fp32_to_bf16_row_ref(floats, (ggml_bf16_t *) bits16, n);
            }
            for (int i = 0; i < n; i++) {
                line_start(o, k == 0 ? "row" : "row_ref", i);
                text_add(o, " %x", bits16[i]);
            }
        }
    }
}

static void probe_traits(struct machine *m) {
    struct outcome *o = m->outcome;
    for (int type = 0; type < REFERENCE_N_TYPES; type++) {
        const struct ggml_type_traits *t = m->api->ggml_get_type_traits((enum ggml_type) type);
        text_add(o, "type %d", type);
        if (t != NULL && t->type_size > 0) { // the reference keeps rows for removed types
            text_add(o, " name %s block %" PRId64 " interleave %" PRId64 " size %zu quantized %d",
                t->type_name == NULL ? "-" : t->type_name, t->blck_size, t->blck_size_interleave, t->type_size, t->is_quantized);
        }
        text_add(o, "\n");
    }
}

static void probe_misc(struct machine *m) {
    const struct api *api = m->api;
    struct outcome *o = m->outcome;
    text_add(o, "version %s\n", api->ggml_version());
    ggml_guid a = {1, 2, 3}, b = {1, 2, 3}, c = {1, 2, 4};
    text_add(o, "guid %d %d\n", api->ggml_guid_matches(&a, &b), api->ggml_guid_matches(&a, &c));
    for (int n = 0; n <= 64; n += 16) {
        struct ggml_threadpool_params p = api->ggml_threadpool_params_default(n), q;
        memset(&q, 0x55, sizeof(q));
        api->ggml_threadpool_params_init(&q, n);
        text_add(o, "threads %d prio %d poll %u strict %d paused %d match %d", p.n_threads, (int) p.prio, p.poll, p.strict_cpu,
            p.paused, api->ggml_threadpool_params_match(&p, &q));
        for (int k = 0; k < 5; k++) {
            struct ggml_threadpool_params x = p;
            x.n_threads += k == 0;
            x.prio = (enum ggml_sched_priority)(x.prio + (k == 1));
            x.poll += k == 2;
            x.strict_cpu ^= k == 3;
            x.cpumask[7] ^= k == 4;
            text_add(o, " %d", api->ggml_threadpool_params_match(&p, &x));
        }
        text_add(o, "\n");
    }
    for (size_t n = 0; n < 100000; n = n * 5 / 4 + 1) {
        text_add(o, "hash size %zu: %zu\n", n, api->ggml_hash_size(n));
    }
    for (int op = 0; op < REFERENCE_N_OPS; op++) {
        text_add(o, "op %d in place %d\n", op, api->ggml_op_can_inplace((enum ggml_op) op));
    }
    // ggml_set_zero and ggml_get_data on a tensor with data.
    api->ggml_set_no_alloc(m->ctx, false);
    struct ggml_tensor *t = api->ggml_new_tensor_2d(m->ctx, GGML_TYPE_F32, 5, 3);
    memset(t->data, 0x3f, 60);
    text_add(o, "data %d %d", api->ggml_get_data(t) == t->data, (void *) api->ggml_get_data_f32(t) == t->data);
    text_add(o, " set_zero %d", api->ggml_set_zero(t) == t);
    for (int i = 0; i < 15; i++) {
        text_float(o, ((float *) t->data)[i]);
    }
    text_add(o, "\n");
}

void probe_run(struct machine *m, const struct recipe *r) {
    switch (r->probe) {
        case PROBE_FP16_TO_FP32: probe_to_f32(m, false); break;
        case PROBE_BF16_TO_FP32: probe_to_f32(m, true); break;
        case PROBE_FP32_TO_FP16: probe_from_f32(m, r, false); break;
        case PROBE_FP32_TO_BF16: probe_from_f32(m, r, true); break;
        case PROBE_TYPE_TRAITS: probe_traits(m); break;
        case PROBE_MISC: probe_misc(m); break;
        default: break;
    }
}
