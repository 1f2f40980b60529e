// SPDX-License-Identifier: MIT
// trim.c: brings a schedule within the limits. Each round applies the best cuts at the step with the largest excess, then removes
// steps whose results no step reads. A round rates each possible cut at this step. For each of them, it lists the ops that would
// recompute the value. The other work of a round is linear in the number of steps, except for sorting the cuts.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <math.h>
#include <string.h>

#define GROW_MAX 24 // largest ratio of steps to ops
#define PATIENCE 16 // largest number of rounds without progress; cuts can undo each other

static void steps_swap(struct budget_steps *a, struct budget_steps *b) {
    const struct budget_steps x = *a;
    *a = *b;
    *b = x;
}

bool budget_sweep(const struct budget_graph *g, struct budget_steps *s) {
    struct budget_trace t = {0};
    int32_t *n_reads = budget_trace(g, s, &t) ? berth_calloc((size_t) g->n + s->n + 1, sizeof *n_reads) : NULL;
    const bool ok = n_reads != NULL;
    if (ok && t.fault < 0 && s->n > 0) {
        for (int32_t j = 0; j < t.start[s->n]; j++) {
            n_reads[t.src[j]]++;
        }
        size_t n = s->n;
        for (int32_t k = (int32_t) s->n; k-- > 0;) { // backward, because dropping a run also drops its reads
            const int32_t me = g->n + k;
            const bool may_drop = s->at[k].kind != BERTH_BUDGET_RUN || g->can_recompute[s->at[k].op];
            if (n_reads[me] > 0 || !may_drop || t.last[me] == (int32_t) s->n) {
                s->at[--n] = s->at[k];
                continue;
            }
            for (int32_t j = t.start[k]; j < t.start[k + 1]; j++) {
                n_reads[t.src[j]]--;
            }
        }
        memmove(s->at, s->at + n, (s->n - n) * sizeof *s->at);
        s->n -= n;
    }
    berth_free(n_reads);
    budget_trace_fini(&t);
    return ok;
}

enum budget_answer budget_trim(
    const struct budget_graph *g, const struct budget_style *style, const struct budget_end *end, struct budget_steps *s) {
    struct budget_gaps x = {0};
    struct budget_cuts cuts = {0};
    struct budget_steps next = {0};
    enum budget_answer answer = BUDGET_OUT_OF_MEMORY;
    const size_t max_steps = GROW_MAX * (size_t) g->n + 64;
    uint64_t least = UINT64_MAX;
    double least_sum = INFINITY;
    for (int n_vain = 0; budget_gaps_find(&x, g, s); n_vain++) {
        const struct budget_excess excess = budget_excess(g, &x.t, s->n);
        if (excess.most == 0) {
            answer = BUDGET_FOUND;
            break;
        }
        if (!budget_cuts_find(&x, style, excess.step, excess.pool, excess.most, &cuts) ||
            !budget_cuts_apply(&x, &cuts, style, 0, excess.most, &next) || !budget_sweep(g, &next)) {
            break;
        }
        steps_swap(s, &next);
        if (excess.most < least || excess.sum < least_sum) {
            n_vain = 0;
        }
        least = min_u64(excess.most, least);
        least_sum = min_f64(excess.sum, least_sum);
        if (cuts.n_done == 0 || s->n > max_steps || n_vain > PATIENCE || budget_is_over(g, end)) {
            answer = BUDGET_GAVE_UP;
            break;
        }
    }
    budget_gaps_fini(&x);
    budget_cuts_fini(&cuts);
    berth_free(next.at);
    return answer;
}
