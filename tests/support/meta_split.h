// SPDX-License-Identifier: MIT
// meta_split.h: composite devices of several CPUs for tests, and random valid splits of tensors.
#pragma once

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "support/check.h"

struct meta_split {
    uint64_t seed;
    int n;           // devices
    int only_axis;   // -1: random; 0 to 3: this axis; 4: partial (may_be_sum and f32 only) or mirrored; from 5 on: mirrored
    bool is_plain;   // the axis is one segment, divided about equally among the devices
    bool may_be_sum; // an f32 tensor may be partial: its value is the sum over the devices
    int n_asked;     // calls of meta_split_state
};

static inline uint64_t meta_split_hash(const struct meta_split *m, const char *name) {
    uint64_t h = m->seed;
    for (; *name != '\0'; name++) {
        h = (h ^ (uint8_t) *name) * 0x100000001B3u;
    }
    return h;
}

// Divides n_units randomly into segments, and each segment among the devices. Some segments occur twice.
static inline void meta_split_fill(
    struct meta_split *m, struct check_rng *rng, int64_t n_units, int64_t unit, struct ggml_backend_meta_split_state *s) {
    int64_t left = n_units;
    while (left > 0) {
        const bool is_last = m->is_plain || s->n_segments == 3 || check_rng_below(rng, 2) == 0;
        const int64_t nr = !m->is_plain && left % 2 == 0 && check_rng_below(rng, 3) == 0 ? 2 : 1;
        const int64_t all = is_last ? left / nr : 1 + (int64_t) check_rng_below(rng, (uint64_t) left) / nr;
        if (all * nr > left) {
            continue;
        }
        int64_t rest = all;
        for (int j = 0; j < m->n; j++) {
            const int64_t fair = rest / (m->n - j) + (rest % (m->n - j) != 0),
                          some = (int64_t) check_rng_below(rng, (uint64_t) rest + 1);
            const int64_t one = j == m->n - 1 ? rest : m->is_plain || check_rng_below(rng, 2) == 0 ? fair : some;
            s->ne[(int64_t) s->n_segments * m->n + j] = one * unit;
            rest -= one;
        }
        s->nr[s->n_segments++] = (uint32_t) nr;
        left -= all * nr;
    }
}

// The state depends only on m and the tensor's name.
static inline struct ggml_backend_meta_split_state meta_split_state(const struct ggml_tensor *t, void *user) {
    struct meta_split *m = user;
    struct check_rng rng = check_rng_new(meta_split_hash(m, t->name));
    struct ggml_backend_meta_split_state state = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    const int choice = (int) check_rng_below(&rng, 7);
    const int axis = m->only_axis >= 0 ? m->only_axis : choice;
    m->n_asked++;
    if (axis >= GGML_MAX_DIMS) {
        if (axis == 4 && m->may_be_sum && t->type == GGML_TYPE_F32) {
            state.axis = GGML_BACKEND_SPLIT_AXIS_PARTIAL;
        }
        return state;
    }
    const int64_t unit = axis == 0 ? ggml_blck_size(t->type) : 1;
    if (t->ne[axis] / unit < 2) {
        return state;
    }
    state = (struct ggml_backend_meta_split_state){.axis = (enum ggml_backend_meta_split_axis) axis};
    meta_split_fill(m, &rng, t->ne[axis] / unit, unit, &state);
    return state;
}

static inline ggml_backend_dev_t meta_split_device(struct meta_split *m) {
    ggml_backend_dev_t cpu = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0), devs[GGML_BACKEND_META_MAX_DEVICES];
    for (int j = 0; j < m->n; j++) {
        devs[j] = cpu;
    }
    return ggml_backend_meta_device(devs, (size_t) m->n, meta_split_state, m);
}
