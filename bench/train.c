// SPDX-License-Identifier: MIT
// train.c: measures a training step of a transformer of ten million parameters (forward pass, backward pass, AdamW) through
// ggml-opt.h. Berth and the reference's best CPU library for this machine alternate in one process. Their losses must agree. Prints
// the shortest times, the tokens per second, their ratio (above 1: Berth is faster), and the memory of the graph. Usage:
// bench-train [-t threads] [-n steps] [-c tokens]

#include "clock.h"
#include "support/grad_api.h"
#include "support/oracle.h"

#include <math.h>

#define N_EMBD 320
#define N_HEAD 5
#define N_FF 864
#define N_LAYER 6
#define N_VOCAB 4096
#define N_PARAMS (3 + N_LAYER * 9)

typedef struct ggml_tensor T;

struct model {
    const char *name;
    struct grad_api a;
    struct ggml_context *ctx, *compute;
    ggml_backend_t backend;
    ggml_backend_sched_t sched;
    ggml_opt_context_t opt;
    ggml_opt_result_t result;
    T *tokens, *positions, *mask;
    T *params[N_PARAMS];
    int n_params;
    double best_s, loss;
};

static T *param(struct model *m, int64_t n0, int64_t n1) {
    T *t = m->a.ggml_new_tensor(m->ctx, GGML_TYPE_F32, 2, (int64_t[]){n0, n1});
    m->a.ggml_set_param(t);
    m->params[m->n_params++] = t;
    return t;
}

static T *norm(struct model *m, T *x) {
    return m->a.ggml_mul(m->compute, m->a.ggml_rms_norm(m->compute, x, 1e-5f), param(m, N_EMBD, 1));
}

// Queries or keys with RoPE, [d, n_token, n_head].
static T *heads(struct model *m, T *x, int64_t n) {
    const int64_t d = N_EMBD / N_HEAD;
    T *y = m->a.ggml_reshape_3d(m->compute, m->a.ggml_mul_mat(m->compute, param(m, N_EMBD, N_EMBD), x), d, N_HEAD, n);
    y = m->a.ggml_rope_ext(m->compute, y, m->positions, NULL, (int) d, 0, 0, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    return m->a.ggml_permute(m->compute, y, 0, 2, 1, 3);
}

static T *attention(struct model *m, T *x, int64_t n) {
    struct ggml_context *ctx = m->compute;
    const int64_t d = N_EMBD / N_HEAD;
    T *q = heads(m, x, n), *k = heads(m, x, n);
    T *v = m->a.ggml_reshape_3d(ctx, m->a.ggml_mul_mat(ctx, param(m, N_EMBD, N_EMBD), x), d, N_HEAD, n);
    v = m->a.ggml_cont(ctx, m->a.ggml_permute(ctx, v, 1, 2, 0, 3));
    T *p = m->a.ggml_soft_max_ext(ctx, m->a.ggml_mul_mat(ctx, k, q), m->mask, 1.0f / sqrtf((float) d), 0.0f);
    T *y = m->a.ggml_permute(ctx, m->a.ggml_mul_mat(ctx, v, p), 0, 2, 1, 3);
    return m->a.ggml_mul_mat(ctx, param(m, N_EMBD, N_EMBD), m->a.ggml_cont_2d(ctx, y, N_EMBD, n));
}

static T *feed_forward(struct model *m, T *x) {
    T *gate = m->a.ggml_mul_mat(m->compute, param(m, N_EMBD, N_FF), x),
      *up = m->a.ggml_mul_mat(m->compute, param(m, N_EMBD, N_FF), x);
    return m->a.ggml_mul_mat(m->compute, param(m, N_FF, N_EMBD), m->a.ggml_glu_split(m->compute, gate, up, GGML_GLU_OP_SWIGLU));
}

static T *build(struct model *m, int64_t n) {
    T *x = m->a.ggml_get_rows(m->compute, param(m, N_EMBD, N_VOCAB), m->tokens);
    for (int i = 0; i < N_LAYER; i++) {
        x = m->a.ggml_add(m->compute, x, attention(m, norm(m, x), n));
        x = m->a.ggml_add(m->compute, x, feed_forward(m, norm(m, x)));
    }
    x = norm(m, x);
    return m->a.ggml_mul_mat(m->compute, param(m, N_EMBD, N_VOCAB), x);
}

static float wave(int64_t i) {
    return sinf((float) (i % 99991) * 1.7f) * 0.06f;
}

static void fill(struct model *m, int64_t n) {
    for (int p = 0; p < m->n_params; p++) {
        float *x = m->params[p]->data;
        for (int64_t i = 0; i < ggml_nelements(m->params[p]); i++) {
            x[i] = m->params[p]->ne[1] == 1 ? 1.0f : wave(i * 7 + p * 1234567);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *) m->positions->data)[i] = (int32_t) i;
        for (int64_t k = 0; k < n; k++) {
            ((float *) m->mask->data)[i * n + k] = k <= i ? 0.0f : -INFINITY;
        }
    }
}

static bool model_init(struct model *m, int64_t n, int n_threads) {
    const struct ggml_init_params sizes = {.mem_size = 32u << 20, .no_alloc = true};
    m->ctx = m->a.ggml_init(sizes);
    m->compute = m->a.ggml_init(sizes);
    m->tokens = m->a.ggml_new_tensor(m->ctx, GGML_TYPE_I32, 1, &n);
    m->positions = m->a.ggml_new_tensor(m->ctx, GGML_TYPE_I32, 1, &n);
    m->mask = m->a.ggml_new_tensor(m->ctx, GGML_TYPE_F32, 2, (int64_t[]){n, n});
    T *logits = build(m, n);
    m->backend = m->a.ggml_backend_cpu_init();
    m->a.ggml_backend_cpu_set_n_threads(m->backend, n_threads);
    if (m->a.ggml_backend_alloc_ctx_tensors(m->ctx, m->backend) == NULL) {
        return false;
    }
    fill(m, n);
    ggml_backend_buffer_type_t buft = m->a.ggml_backend_get_default_buffer_type(m->backend);
    m->sched = m->a.ggml_backend_sched_new(&m->backend, &buft, 1, 4096, false, true);
    struct ggml_opt_params params = m->a.ggml_opt_default_params(m->sched, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY);
    params.ctx_compute = m->compute;
    params.inputs = m->tokens;
    params.outputs = logits;
    m->opt = m->a.ggml_opt_init(params);
    m->result = m->a.ggml_opt_result_init();
    m->best_s = INFINITY;
    return m->opt != NULL;
}

static void step(struct model *m, int64_t n, int i) {
    const double start = clock_s(CLOCK_MONOTONIC);
    m->a.ggml_opt_alloc(m->opt, true);
    for (int64_t k = 0; k < n; k++) {
        ((int32_t *) m->tokens->data)[k] = (int32_t) ((k * 37 + i * 11) % 200);
    }
    float *labels = m->a.ggml_opt_labels(m->opt)->data;
    memset(labels, 0, (size_t) n * N_VOCAB * sizeof labels[0]);
    for (int64_t k = 0; k < n; k++) {
        labels[k * N_VOCAB + ((k + 1) * 37 + i * 11) % 200] = 1.0f;
    }
    m->a.ggml_opt_result_reset(m->result);
    m->a.ggml_opt_eval(m->opt, m->result);
    const double s = clock_s(CLOCK_MONOTONIC) - start;
    m->best_s = s < m->best_s ? s : m->best_s;
    m->a.ggml_opt_result_loss(m->result, &m->loss, NULL);
}

static void show(const struct model *m, int64_t n) {
    printf("%-28s %8.1f ms per step, %8.1f tokens/s, %7.2f MiB of memory for the graph\n", m->name, m->best_s * 1e3,
        (double) n / m->best_s, (double) m->a.ggml_backend_sched_get_buffer_size(m->sched, m->backend) / 1048576.0);
}

int main(int argc, char **argv) {
    int n_threads = 1, n_steps = 5, opt;
    int64_t n = 128;
    while ((opt = getopt(argc, argv, "t:n:c:")) != -1) {
        const int value = atoi(optarg != NULL ? optarg : "0");
        if (opt == '?' || value <= 0) {
            fprintf(stderr, "usage: bench-train [-t threads] [-n steps] [-c tokens]\n");
            return 2;
        }
        *(opt == 't' ? &n_threads : &n_steps) = opt == 'c' ? n_steps : value;
        n = opt == 'c' ? value : n;
    }
    struct model both[2] = {{.name = "berth", .a = grad_api_own()}};
    void *cpu = oracle_load_cpu(&both[1].name);
    const int n_models = cpu != NULL && grad_api_of(&both[1].a, oracle_load("libggml-base.so"), cpu) ? 2 : 1;
    for (int i = 0; i < n_models; i++) {
        if (!model_init(&both[i], n, n_threads)) {
            printf("%s: cannot allocate the model\n", both[i].name);
            return 1;
        }
    }
    int64_t n_numbers = 0;
    for (int i = 0; i < both[0].n_params; i++) {
        n_numbers += ggml_nelements(both[0].params[i]);
    }
    printf("%.1f million parameters, %lld tokens per step, %d thread%s\n", (double) n_numbers * 1e-6, (long long) n, n_threads,
        n_threads == 1 ? "" : "s");
    double off = 0;
    for (int i = 0; i < n_steps; i++) {
        for (int k = 0; k < n_models; k++) {
            step(&both[k], n, i);
        }
        off = n_models == 2 ? fmax(off, fabs(both[0].loss - both[1].loss) / both[1].loss) : 0;
    }
    for (int k = 0; k < n_models; k++) {
        show(&both[k], n);
    }
    if (n_models == 1) {
        printf("without the reference: %s\n", oracle_why());
        return 0;
    }
    printf("%.2fx the tokens per second, %.2fx the memory; loss %.5f, largest relative difference %.1e\n",
        both[1].best_s / both[0].best_s,
        (double) both[0].a.ggml_backend_sched_get_buffer_size(both[0].sched, both[0].backend) /
            (double) both[1].a.ggml_backend_sched_get_buffer_size(both[1].sched, both[1].backend),
        both[0].loss, off);
    return off < 1e-3 ? 0 : 1;
}
