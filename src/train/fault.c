// SPDX-License-Identifier: MIT
// fault.c: where a number that is none came from. The step that failed is computed once more, node by node, until one of them
// holds it; weights come first, since they are read first.

#include "base/min.h"
#include "train/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct hunt {
    struct trainer *t;
    const struct ggml_tensor *found;
};

// f32 alone: other types are only read here.
static bool is_sound(struct trainer *t, const struct ggml_tensor *x) {
    const int64_t n = ggml_nelements(x), row = (int64_t) t->row_size;
    if (x->type != GGML_TYPE_F32 || !ggml_is_contiguous(x)) {
        return true;
    }
    for (int64_t at = 0; at < n; at += row) {
        const int64_t step = min_i64(n - at, row);
        ggml_backend_tensor_get(x, t->row, (size_t) at * sizeof *t->row, (size_t) step * sizeof *t->row);
        for (int64_t i = 0; i < step; i++) {
            if (!isfinite(t->row[i])) {
                return false;
            }
        }
    }
    return true;
}

// Asked before a node whether to stop behind it, then called behind it: false ends the graph.
static bool on_node(struct ggml_tensor *node, bool ask, void *user) {
    struct hunt *hunt = user;
    if (ask) {
        return true;
    }
    if (!is_sound(hunt->t, node)) {
        hunt->found = node;
    }
    return hunt->found == NULL;
}

bool train_fault_tell(struct trainer *t, struct train_data *data, const char *what, struct model_error *error) {
    struct hunt hunt = {.t = t};
    struct model_error why = {""};
    for (size_t i = 0; i < t->n_tensors && hunt.found == NULL; i++) {
        hunt.found = is_sound(t, t->tensors[i].w) ? NULL : t->tensors[i].w;
    }
    if (hunt.found == NULL) {
        ggml_backend_sched_set_eval_callback(t->learn.sched, on_node, &hunt);
        (void) train_learn(t, data, &why); // that it fails is what is known
        ggml_backend_sched_set_eval_callback(t->learn.sched, NULL, NULL);
    }
    const struct ggml_tensor *x = hunt.found;
    char name[96 + GGML_MAX_NAME] = "none is found a second time";
    if (x == NULL && t->params.world != NULL) {
        snprintf(name, sizeof name, "rank %d of %d holds none", t->params.world->rank, t->params.world->size);
    }
    if (x != NULL) {
        snprintf(name, sizeof name, "the first tensor with one that is none is '%s' (%s)", x->name,
            x->op == GGML_OP_NONE ? "a weight" : ggml_op_desc(x));
    }
    return model_fail(error, "step %" PRId64 ": the %s is not a finite number; %s", t->n_done + 1, what, name);
}
