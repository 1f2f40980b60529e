// SPDX-License-Identifier: MIT
// form.h: comparing a tensor with a form, inline and without a branch: this is most of what a graph that comes again costs.
#pragma once

#include "sched/sched.h"

#include <string.h>

_Static_assert(offsetof(struct ggml_tensor, nb) == SCHED_FORM_OFF + sizeof(int64_t[GGML_MAX_DIMS]) &&
                   offsetof(struct ggml_tensor, flags) + sizeof(int32_t) == offsetof(struct ggml_tensor, src),
    "ne, nb, op, op_params and flags lie side by side");
_Static_assert(SCHED_FORM_SIZE == 8 * 16 + 8, "form_is compares eight pairs of words and one word");

// Two words at a time where the machine can.
typedef uint64_t word_pair __attribute__((vector_size(16)));

static inline word_pair form_differs(const unsigned char *form, const unsigned char *tensor, size_t i) {
    word_pair a, b;
    memcpy(&a, form + i * sizeof a, sizeof a);
    memcpy(&b, tensor + i * sizeof b, sizeof b);
    return a ^ b;
}

static inline bool form_is(const struct sched_form *form, const struct ggml_tensor *t) {
    const unsigned char *f = form->bytes, *b = (const unsigned char *) t + SCHED_FORM_OFF;
    uint64_t last_f, last_b;
    memcpy(&last_f, f + SCHED_FORM_SIZE - sizeof last_f, sizeof last_f);
    memcpy(&last_b, b + SCHED_FORM_SIZE - sizeof last_b, sizeof last_b);
    const word_pair first  = form_differs(f, b, 0) | form_differs(f, b, 1) | form_differs(f, b, 2) | form_differs(f, b, 3);
    const word_pair second = form_differs(f, b, 4) | form_differs(f, b, 5) | form_differs(f, b, 6) | form_differs(f, b, 7);
    const word_pair all    = first | second;
    const uint64_t rest    = (last_f ^ last_b) | (form->view_offs ^ t->view_offs) | (uint64_t) (form->type ^ (int32_t) t->type);
    return (all[0] | all[1] | rest) == 0;
}

_Static_assert(GGML_MAX_SRC == 10, "all are named");

// Not 0 if any source from the fourth on is there: few ops have so many.
static inline uintptr_t form_srcs_from_3(const struct ggml_tensor *t) {
    struct ggml_tensor *const *s = t->src;
    return (uintptr_t) s[3] | (uintptr_t) s[4] | (uintptr_t) s[5] | (uintptr_t) s[6] | (uintptr_t) s[7] | (uintptr_t) s[8] |
           (uintptr_t) s[9];
}
