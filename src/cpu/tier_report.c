// SPDX-License-Identifier: MIT
// tier_report.c: reports the tiers of an op: the tiers that filled the slots that the op uses (CPU_USE_*). `berth ops` prints
// them.

#include "cpu/cpu.h"

#include "berth-cpu.h"

#include <string.h>

#define MAX_TIERS 16

struct found {
    const char *tiers[MAX_TIERS];
    int n;
};

static void found_add(struct found *f, size_t slot_off) {
    const char *tier = cpu_slot_tier(slot_off);
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->tiers[i], tier) == 0) {
            return;
        }
    }
    if (f->n < MAX_TIERS) {
        f->tiers[f->n++] = tier;
    }
}

static void add_slots(struct found *f, unsigned uses) {
#define SLOT(name, slot) \
    if ((uses & CPU_USE_##name) != 0) { \
        found_add(f, CPU_SLOT(slot)); \
    }
    CPU_USES(SLOT)
#undef SLOT
}

// Includes the conversion of `other` to vec_dot_type.
static void add_dot(struct found *f, enum ggml_type type, enum ggml_type other) {
    const enum ggml_type dot_type = cpu_kernels_best.traits[type].vec_dot_type;
    found_add(f, cpu_kernels_best.tile[type].run != NULL ? CPU_SLOT(tile[type].run) : CPU_SLOT(traits[type].vec_dot));
    if (other != dot_type && dot_type != GGML_TYPE_F32) {
        found_add(f, CPU_SLOT(traits[dot_type].from_float));
    }
    if (other != dot_type && other != GGML_TYPE_F32) {
        found_add(f, CPU_SLOT(to_float[other]));
    }
}

static void add_panels(struct found *f, enum ggml_type type) {
    if (cpu_kernels_best.gemm[type].run != NULL) {
        found_add(f, CPU_SLOT(gemm[type].run));
    }
    if (cpu_kernels_best.gemv[type].run != NULL) {
        found_add(f, CPU_SLOT(gemv[type].run));
    }
}

static void add_conversions(struct found *f, const struct ggml_tensor *op) {
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        const struct ggml_tensor *src = op->src[i];
        if (src != NULL && src->type != GGML_TYPE_F32 && cpu_kernels_best.to_float[src->type] != NULL) {
            found_add(f, CPU_SLOT(to_float[src->type]));
        }
    }
    if (op->type != GGML_TYPE_F32 && cpu_kernels_best.traits[op->type].from_float != NULL) {
        found_add(f, CPU_SLOT(traits[op->type].from_float));
    }
}

static int tier_rank(const char *tier) {
    int i = 0;
    for (const struct cpu_tier *t = cpu_tiers; t != NULL && t->name != NULL; t++) {
        i++;
        if (strcmp(t->name, tier) == 0) {
            return i;
        }
    }
    return 0;
}

// Prints the newest tier first.
static void found_print(struct found *f, char *text, size_t text_size) {
    size_t n = 0;
    for (; f->n > 0; f->n--) {
        int best = 0;
        for (int i = 1; i < f->n; i++) {
            if (tier_rank(f->tiers[i]) > tier_rank(f->tiers[best])) {
                best = i;
            }
        }
        if (n < text_size) {
            n += (size_t) snprintf(text + n, text_size - n, "%s%s", n > 0 ? "+" : "", f->tiers[best]);
        }
        f->tiers[best] = f->tiers[f->n - 1];
    }
}

bool berth_cpu_op_tier(const struct ggml_tensor *op, char *text, size_t text_size) {
    cpu_init();
    if (text_size > 0) {
        text[0] = '\0';
    }
    if (op == NULL || !cpu_supports_op(op)) {
        return false;
    }
    const struct cpu_op_row *row = cpu_op_row(op->op);
    if (row->run == NULL) {
        return true;
    }
    const unsigned uses = row->uses | (row->uses_by != NULL ? row->uses_by(op) : 0);
    struct found f = {.n = 0};
    add_slots(&f, uses);
    if ((uses & CPU_USE_DOT) != 0) {
        add_dot(&f, op->src[0]->type, op->src[1]->type);
    }
    if (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) {
        add_panels(&f, op->src[0]->type);
    }
    if ((uses & CPU_USE_DOT_KEYS) != 0) {
        add_dot(&f, op->src[1]->type, op->src[0]->type);
    }
    if ((uses & CPU_USE_DOT_F32) != 0) {
        add_dot(&f, GGML_TYPE_F32, GGML_TYPE_F32);
    }
    if ((uses & CPU_USE_RETYPE) != 0 && op->src[0]->type != op->type) {
        add_conversions(&f, op);
    }
    if (f.n == 0) { // the op has only its own loops
        f.tiers[f.n++] = "portable";
    }
    if ((uses & CPU_USE_CONVERT) != 0) {
        add_conversions(&f, op);
    }
    found_print(&f, text, text_size);
    return true;
}
