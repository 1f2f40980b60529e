// SPDX-License-Identifier: MIT
// gpt2_sched.c: runs the model of gpt2.h with the scheduler of the 2023 API. Every second layer runs on a backend that the
// program defines (guest.h), the others on the CPU. Compiled for each date, as C and as C++.

#include "guest.h"

#include "gpt2_build.h"
#include "gpt2_weights.h"

struct program {
    ggml_backend_t backends[2]; // guest, CPU
    struct ggml_context *ctx_cpu, *ctx_guest;
    ggml_backend_buffer_t on_cpu, on_guest;
    ggml_backend_sched_t sched;
    struct model model;
};

static const int prompt[N_PROMPT] = {3, 14, 15, 9, 26, 5, 35};

static struct ggml_context *context_new(size_t size) {
    struct ggml_init_params params = {size, NULL, true};
    return ggml_init(params);
}

static void fill(struct ggml_tensor *tensor, const float *data) {
    ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
}

static bool load(struct program *p, const struct weights *w) {
    p->ctx_cpu = context_new(1 << 18);
    p->ctx_guest = context_new(1 << 18);
    if (p->ctx_cpu == NULL || p->ctx_guest == NULL) {
        return false;
    }
    model_make(&p->model, p->ctx_cpu);
    for (int il = 0; il < N_LAYER; il += 2) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            p->model.layers[il][k] = ggml_dup_tensor(p->ctx_guest, p->model.layers[il][k]);
        }
    }
    p->on_cpu = ggml_backend_alloc_ctx_tensors(p->ctx_cpu, p->backends[1]);
    p->on_guest = ggml_backend_alloc_ctx_tensors(p->ctx_guest, p->backends[0]);
    if (p->on_cpu == NULL || p->on_guest == NULL) {
        return false;
    }
#if BERTH_2023 >= 202402
    ggml_backend_buffer_set_usage(p->on_cpu, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_set_usage(p->on_guest, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
#endif
    model_fill(&p->model, w, fill);
    return true;
}

static void unload(struct program *p) {
    ggml_backend_sched_free(p->sched);
    ggml_backend_buffer_free(p->on_cpu);
    ggml_backend_buffer_free(p->on_guest);
    ggml_free(p->ctx_cpu);
    ggml_free(p->ctx_guest);
    ggml_backend_free(p->backends[0]);
    ggml_backend_free(p->backends[1]);
}

#if BERTH_2023 >= 202402
static struct ggml_tensor *attend(struct ggml_context *ctx, struct ggml_tensor *kq, const struct inputs *in) {
    kq = ggml_diag_mask_inf(ctx, ggml_scale(ctx, kq, kq_scale), in->n_past);
    return ggml_soft_max(ctx, kq);
}
#else
static struct ggml_tensor *attend(struct ggml_context *ctx, struct ggml_tensor *kq, const struct inputs *in) {
    kq = ggml_diag_mask_inf(ctx, ggml_scale(ctx, kq, in->scale), in->n_past);
    return ggml_soft_max(ctx, kq);
}
#endif

// NULL: the allocator is full.
static struct ggml_cgraph *build(struct program *p, struct ggml_context *ctx, struct inputs *in) {
    ggml_tallocr_t talloc = ggml_backend_sched_get_tallocr(p->sched, p->backends[1]);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    in->tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, in->n);
    in->positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, in->n);
    in->scale = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    ggml_tallocr_alloc(talloc, in->tokens);
    ggml_tallocr_alloc(talloc, in->positions);
    ggml_tallocr_alloc(talloc, in->scale);
    if (graph == NULL || in->tokens->data == NULL || in->positions->data == NULL || in->scale->data == NULL) {
        return NULL;
    }
    gpt2_build(ctx, graph, &p->model, in, attend);
    return graph;
}

static void inputs_set(const struct inputs *in, const int *tokens) {
    int32_t positions[N_CTX];
    for (int i = 0; i < in->n; i++) {
        positions[i] = in->n_past + i;
    }
    ggml_backend_tensor_set(in->tokens, tokens, 0, ggml_nbytes(in->tokens));
    ggml_backend_tensor_set(in->positions, positions, 0, ggml_nbytes(in->positions));
    ggml_backend_tensor_set(in->scale, &kq_scale, 0, sizeof kq_scale);
}

static bool schedule(struct program *p) {
#if BERTH_2023 >= 202402
    p->sched = ggml_backend_sched_new(p->backends, NULL, 2, GGML_DEFAULT_GRAPH_SIZE);
#else
    p->sched = ggml_backend_sched_new(p->backends, 2);
#endif
    struct ggml_context *ctx = p->sched != NULL ? context_new(1 << 20) : NULL;
    if (ctx == NULL) {
        return false;
    }
    struct inputs worst = {NULL, NULL, NULL, NULL, N_PROMPT, N_CTX - N_PROMPT};
    struct ggml_cgraph *graph = build(p, ctx, &worst);
    if (graph != NULL) {
        ggml_backend_sched_init_measure(p->sched, graph);
    }
    ggml_free(ctx);
    return !ggml_tallocr_is_measure(ggml_backend_sched_get_tallocr(p->sched, p->backends[0]));
}

// Returns false if the graph could not be built or computed. That may happen only if the test lets an allocation fail.
static bool evaluate(struct program *p, const int *tokens, int n, int n_past, float *logits) {
    struct ggml_context *ctx = context_new(1 << 20);
    struct inputs in = {NULL, NULL, NULL, NULL, n, n_past};
    bool is_computed = false;
    if (ctx == NULL) {
        return false;
    }
#if BERTH_2023 >= 202402
    ggml_backend_sched_reset(p->sched);
#endif
    struct ggml_cgraph *graph = build(p, ctx, &in);
    if (graph != NULL) {
        inputs_set(&in, tokens);
        is_computed = berth_2023_sched_graph_compute_status(p->sched, graph) == GGML_STATUS_SUCCESS;
    }
    if (is_computed) {
        const struct ggml_tensor *last = graph->nodes[graph->n_nodes - 1];
        ggml_backend_tensor_get(last, logits, (size_t) (n - 1) * last->nb[1], N_VOCAB * sizeof(float));
    }
    ggml_free(ctx);
    return is_computed;
}

static bool generate(struct program *p, struct answer *answer, int n_predict) {
    int tokens[N_TOKENS_MAX + 1], n_past = 0;
    memcpy(tokens, prompt, sizeof prompt);
    for (int i = 0; i < n_predict; i++) {
        const int n = i == 0 ? N_PROMPT : 1;
        if (!evaluate(p, tokens + n_past, n, n_past, answer->logits)) {
            return false;
        }
        n_past += n;
        tokens[n_past] = answer->tokens[i] = logits_best(answer->logits);
    }
    return true;
}

static bool is_same(const struct answer *got, const struct answer *expected, int n_predict) {
    for (int i = 0; i < N_VOCAB && n_predict == N_PREDICT; i++) {
        if (!(fabsf(got->logits[i] - expected->logits[i]) <= 1e-4f)) {
            printf("logit %d is %g, not %g\n", i, (double) got->logits[i], (double) expected->logits[i]);
            return false;
        }
    }
    return memcmp(got->tokens, expected->tokens, (size_t) n_predict * sizeof(int)) == 0;
}

#if BERTH_2023 >= 202402
struct seen {
    int n_asked, n_shown, stop_at;
    const struct ggml_tensor *last;
};

// The eval callback observes every matrix product.
static bool observe(struct ggml_tensor *t, bool ask, void *user_data) {
    struct seen *seen = (struct seen *) user_data;
    if (ask) {
        seen->n_asked++;
        return t->op == GGML_OP_MUL_MAT;
    }
    CHECK(t->op == GGML_OP_MUL_MAT && t->data != NULL);
    seen->last = t;
    return ++seen->n_shown != seen->stop_at;
}

static void test_observed(struct program *p, const struct answer *expected) {
    struct seen seen = {0, 0, 0, NULL};
    struct answer answer;
    ggml_backend_sched_set_eval_callback(p->sched, observe, &seen);
    CHECK(generate(p, &answer, N_PREDICT) && is_same(&answer, expected, N_PREDICT));
    CHECK(seen.n_shown == N_PREDICT * (6 * N_LAYER + 1) && seen.n_asked > seen.n_shown);
    seen.n_shown = 0;
    seen.stop_at = 3;

    struct ggml_context *ctx = context_new(1 << 20);
    struct inputs in = {NULL, NULL, NULL, NULL, 1, 0};
    ggml_backend_sched_reset(p->sched);
    struct ggml_cgraph *graph = build(p, ctx, &in);
    inputs_set(&in, prompt);
    ggml_backend_sched_graph_compute(p->sched, graph);
    CHECK(seen.n_shown == 3);
    CHECK(ggml_backend_sched_get_n_splits(p->sched) > 2);
    int n_guest = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        ggml_backend_t backend = ggml_backend_sched_get_node_backend(p->sched, graph->nodes[i]);
        CHECK(backend == p->backends[0] || backend == p->backends[1]);
        n_guest += backend == p->backends[0];
    }
    CHECK(n_guest > 0 && n_guest < graph->n_nodes);
    ggml_free(ctx);
    ggml_backend_sched_set_eval_callback(p->sched, NULL, NULL);
    ggml_backend_sched_reset(p->sched);
}
#endif

// The program assigns all norms of the first graph to the guest. The assignments must not affect the second graph.
static void assignment_holds_once(struct program *p, const struct answer *expected) {
    for (int t = 0; t < 2; t++) {
        struct ggml_context *ctx = context_new(1 << 20);
        struct inputs in = {NULL, NULL, NULL, NULL, N_PROMPT, 0};
        float logits[N_VOCAB];
        int n_chosen = 0;
#if BERTH_2023 >= 202402
        ggml_backend_sched_reset(p->sched);
#endif
        struct ggml_cgraph *graph = build(p, ctx, &in);
        for (int i = 0; i < graph->n_nodes; i++) {
            if (t == 1 || graph->nodes[i]->op == GGML_OP_NORM) {
                ggml_backend_sched_set_node_backend(p->sched, graph->nodes[i], p->backends[t]);
                n_chosen++;
            }
        }
        guest.n_computed = 0;
        inputs_set(&in, prompt);
        ggml_backend_sched_graph_compute(p->sched, graph);
        CHECK(t == 0 ? guest.n_computed >= n_chosen : guest.n_computed == 0);
        const struct ggml_tensor *last = graph->nodes[graph->n_nodes - 1];
        ggml_backend_tensor_get(last, logits, (N_PROMPT - 1) * last->nb[1], sizeof logits);
        CHECK(logits_best(logits) == expected->tokens[0]);
        ggml_free(ctx);
    }
}

static struct program program_new(void) {
    struct program p;
    memset(&p, 0, sizeof p);
    p.backends[0] = guest_init();
    p.backends[1] = ggml_backend_cpu_init();
    return p;
}

#ifndef __cplusplus // one language is sufficient
// Whichever allocation fails, nothing leaks, and objects that could be created can be used.
static void every_allocation_may_fail(const struct weights *w, const struct answer *expected) {
    enum { FEW = 2 };
    bool was_hit = true;
    for (int64_t n = 1; was_hit; n++) {
        struct answer answer;
        berth_alloc_watch(true);
        const int64_t before = berth_alloc_made();
        berth_alloc_fail_at(n);
        struct program p = program_new();
        bool is_done = p.backends[1] != NULL;
        if (is_done) {
            ggml_backend_cpu_set_n_threads(p.backends[1], 1);
            is_done = load(&p, w) && schedule(&p) && generate(&p, &answer, FEW);
        }
        was_hit = berth_alloc_made() - before >= n - 1;
        berth_alloc_fail_at(0);
        CHECK(is_done || was_hit);
        CHECK(!is_done || is_same(&answer, expected, FEW));
        unload(&p);
        if (berth_alloc_alive() != 0 || guest.n_buffers != 0 || guest.n_plans != 0) {
            printf("allocation %lld fails: %lld allocations, %d buffers and %d plans leaked\n", (long long) n,
                (long long) berth_alloc_alive(), guest.n_buffers, guest.n_plans);
            exit(1);
        }
        berth_alloc_watch(false);
        CHECK(was_hit || n > 100);
    }
}
#endif

int main(void) {
    struct weights *w = weights_new();
    struct answer expected, answer;
    ggml_log_set(log_drop, NULL);
    CHECK(gpt2_today(w, prompt, &expected));
    struct program p = program_new();
    ggml_backend_cpu_set_n_threads(p.backends[1], 1);
    CHECK(load(&p, w) && schedule(&p));
    CHECK(generate(&p, &answer, N_PREDICT) && is_same(&answer, &expected, N_PREDICT));
    CHECK(guest.n_computed > 0 && guest.n_tensors > 0 && guest.n_copied + guest.n_set > 0);
#if BERTH_2023 >= 202402
    test_observed(&p, &expected);
#endif
    assignment_holds_once(&p, &expected);
    CHECK(generate(&p, &answer, N_PREDICT) && is_same(&answer, &expected, N_PREDICT));
    unload(&p);
    CHECK(guest.n_buffers == 0 && guest.n_plans == 0);
#ifndef __cplusplus
    every_allocation_may_fail(w, &expected);
#endif
    weights_free(w);
    return 0;
}
