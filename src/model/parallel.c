// SPDX-License-Identifier: MIT
// parallel.c: one device made of several for a model: heads and the rows of the feed-forward part are shared out, the residual
// stream is everywhere. A tensor that no rule names is mirrored, which is always right; shares are whole heads and whole blocks,
// so that no product is divided within a block.

#include "base/min.h"
#include "model/model.h"

#include "ggml-backend-impl.h"

#include <stdio.h>
#include <string.h>

// What the device asks while it lives; the model's numbers.
struct model_shares {
    int n;                        // devices
    int64_t head, head_v, gqa;    // sizes of a head, queries for each key
    int64_t attn_block, ff_block; // elements of a block of what is summed over
};

static int64_t gcd_i64(int64_t a, int64_t b) {
    return b == 0 ? a : gcd_i64(b, a % b);
}

// Elements that stay together of one key's head, and so of its queries' and values'.
enum share_unit { UNIT_QUERY, UNIT_KEY, UNIT_VALUE, UNIT_OUT, UNIT_FF, UNIT_ROW };

static const struct {
    const char *name; // what the tensor's ends with, or begins with
    int axis;
    enum share_unit unit;
} rules[] = {
    {"attn_q.weight", 1, UNIT_QUERY},
    {"attn_q.bias", 0, UNIT_QUERY},
    {"attn_k.weight", 1, UNIT_KEY},
    {"attn_k.bias", 0, UNIT_KEY},
    {"attn_v.weight", 1, UNIT_VALUE},
    {"attn_v.bias", 0, UNIT_VALUE},
    {"attn_output.weight", 0, UNIT_OUT},
    {"cache_k-", 0, UNIT_KEY},
    {"cache_v-", 0, UNIT_VALUE},
    {"ffn_up.weight", 1, UNIT_FF},
    {"ffn_gate.weight", 1, UNIT_FF},
    {"ffn_up.bias", 0, UNIT_FF},
    {"ffn_gate.bias", 0, UNIT_FF},
    {"ffn_down.weight", 0, UNIT_FF},
    {"ffn_up_exps.weight", 1, UNIT_FF},
    {"ffn_gate_exps.weight", 1, UNIT_FF},
    {"ffn_down_exps.weight", 0, UNIT_FF},
    {"output.weight", 1, UNIT_ROW},
};

static bool is_named(const char *tensor, const char *rule) {
    const size_t n = strlen(tensor), m = strlen(rule);
    const bool is_end = n >= m && strcmp(tensor + n - m, rule) == 0;
    return strncmp(tensor, rule, m) == 0 || (is_end && tensor[n - m - 1] == '.');
}

// Keys' heads that go together: their queries fill whole blocks of the output's rows.
static int64_t heads_together(const struct model_shares *s) {
    const int64_t width = s->head_v * s->gqa;
    return s->attn_block / gcd_i64(width, s->attn_block);
}

static int64_t unit_of(const struct model_shares *s, enum share_unit unit) {
    const int64_t heads = heads_together(s);
    switch (unit) {
        case UNIT_QUERY: return s->head * s->gqa * heads;
        case UNIT_KEY: return s->head * heads;
        case UNIT_VALUE: return s->head_v * heads;
        case UNIT_OUT: return s->head_v * s->gqa * heads;
        case UNIT_FF: return s->ff_block;
        case UNIT_ROW: return 1;
    }
    return 1;
}

static struct ggml_backend_meta_split_state tensor_share(const struct ggml_tensor *t, void *user) {
    const struct model_shares *s = user;
    struct ggml_backend_meta_split_state state = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!is_named(t->name, rules[i].name)) {
            continue;
        }
        const int axis = rules[i].axis;
        const int64_t unit = unit_of(s, rules[i].unit), n = t->ne[axis] / unit;
        const int64_t block = axis == 0 ? ggml_blck_size(t->type) : 1;
        if (t->ne[axis] % unit != 0 || unit % block != 0 || n < 2) {
            return state;
        }
        state.axis = (enum ggml_backend_meta_split_axis) axis;
        for (int j = 0; j < s->n; j++) {
            state.ne[j] = (n * (j + 1) / s->n - n * j / s->n) * unit;
        }
        return state;
    }
    return state;
}

// The largest block of the weights that end so.
static int64_t block_of(const struct model *m, const char *name) {
    int64_t block = 1;
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ggml_tensor *t = m->weights[i].file;
        const int64_t one = is_named(t->name, name) ? ggml_blck_size(t->type) : 1;
        block = max_i64(one, block);
    }
    return block;
}

ggml_backend_dev_t model_device_parts(
    struct model_shares **shares, const struct model *m, ggml_backend_dev_t *parts, int n, struct model_error *error) {
    struct model_shares *s = berth_calloc(1, sizeof *s);
    if (s == NULL) {
        model_fail(error, "out of memory for the shares of %d devices", n);
        return NULL;
    }
    const struct model_params *p = &m->params;

    *s = (struct model_shares){.n = n,
        .head = p->head_size,
        .head_v = p->head_size_v,
        .gqa = p->n_head_kv > 0 ? p->n_head / p->n_head_kv : 1,
        .attn_block = block_of(m, "attn_output.weight"),
        .ff_block = block_of(m, "ffn_down.weight")};
    s->ff_block = max_i64(s->ff_block, block_of(m, "ffn_down_exps.weight"));
    ggml_backend_dev_t dev = ggml_backend_meta_device(parts, (size_t) n, tensor_share, s);
    if (dev == NULL) {
        model_fail(error, "%s", berth_last_error());
        berth_free(s);
        return NULL;
    }
    *shares = s;
    return dev;
}
