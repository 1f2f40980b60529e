// SPDX-License-Identifier: MIT
// optable.c: the table of the CPU backend's op entries, collected from the families in op/.

#include "cpu/optable.h"

#include "cpu/cpu.h"

#include "base/min.h"
#include "core/span.h"

#define FAMILY(name) cpu_ops_##name,
static const struct cpu_op_entry *const families[] = {CPU_FAMILIES(FAMILY)};

const struct cpu_op_row *cpu_op_rows[GGML_OP_COUNT];

void cpu_optable_init(void) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        for (const struct cpu_op_entry *e = families[i]; e->op != GGML_OP_COUNT; e++) {
            BERTH_ASSERT(cpu_op_rows[e->op] == NULL);
            cpu_op_rows[e->op] = &e->row;
        }
    }
}

// Op drivers index tables by type and multiply extents, so types must exist and extents must not overflow.
static bool is_sound(const struct ggml_tensor *t) {
    return ggml_blck_size(t->type) > 0 && !berth_span_has_too_many(t);
}

static bool are_sound(const struct ggml_tensor *op) {
    if (!is_sound(op)) {
        return false;
    }
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (op->src[k] != NULL && !is_sound(op->src[k])) {
            return false;
        }
    }
    return true;
}

bool cpu_supports_op(const struct ggml_tensor *op) {
    const struct cpu_op_row *row = cpu_op_row(op->op);
    return row != NULL && are_sound(op) && cpu_row_supports(row, op);
}

int cpu_tasks_by_size(const struct ggml_tensor *op, int n_threads) {
    int64_t n = ggml_nelements(op);
    if (op->src[0] != NULL) {
        const int64_t n0 = ggml_nelements(op->src[0]);
        n = max_i64(n0, n);
    }
    n /= CPU_TASK_ELEMENTS;
    return cpu_tasks_for((double) n, n_threads);
}

int cpu_tasks_one(const struct ggml_tensor *op, int n_threads) {
    (void) op;
    (void) n_threads;
    return 1;
}

int cpu_tasks_all(const struct ggml_tensor *op, int n_threads) {
    (void) op;
    return n_threads;
}
