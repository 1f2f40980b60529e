// SPDX-License-Identifier: MIT
// gpt2_today.c: runs the model of gpt2.h with the current API. The programs of the 2023 API are compared with it.

#include "gpt2.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <math.h>
#include <stdlib.h>

struct model {
    struct ggml_context *ctx;
    struct ggml_tensor *wte, *wpe, *ln_f_g, *ln_f_b, *layers[N_LAYER][N_PER_LAYER], *k, *v;
};

static void model_make(struct model *m) {
    m->ctx = ggml_init((struct ggml_init_params){.mem_size = 256 * ggml_tensor_overhead(), .no_alloc = true});
    m->wte = ggml_new_tensor_2d(m->ctx, GGML_TYPE_F32, N_EMBD, N_VOCAB);
    m->wpe = ggml_new_tensor_2d(m->ctx, GGML_TYPE_F32, N_EMBD, N_CTX);
    m->ln_f_g = ggml_new_tensor_1d(m->ctx, GGML_TYPE_F32, N_EMBD);
    m->ln_f_b = ggml_new_tensor_1d(m->ctx, GGML_TYPE_F32, N_EMBD);
    for (int il = 0; il < N_LAYER; il++) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            m->layers[il][k] = ggml_new_tensor_2d(m->ctx, GGML_TYPE_F32, layer_shapes[k][0], layer_shapes[k][1]);
        }
    }
    m->k = ggml_new_tensor_1d(m->ctx, GGML_TYPE_F32, N_LAYER * N_CTX * N_EMBD);
    m->v = ggml_new_tensor_1d(m->ctx, GGML_TYPE_F32, N_LAYER * N_CTX * N_EMBD);
}

static void model_fill(const struct model *m, const struct weights *w) {
    ggml_backend_tensor_set(m->wte, w->wte, 0, sizeof w->wte);
    ggml_backend_tensor_set(m->wpe, w->wpe, 0, sizeof w->wpe);
    ggml_backend_tensor_set(m->ln_f_g, w->ln_f_g, 0, sizeof w->ln_f_g);
    ggml_backend_tensor_set(m->ln_f_b, w->ln_f_b, 0, sizeof w->ln_f_b);
    for (int il = 0; il < N_LAYER; il++) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            ggml_backend_tensor_set(m->layers[il][k], w->layers[il][k], 0, ggml_nbytes(m->layers[il][k]));
        }
    }
}

static struct ggml_tensor *norm(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *g, struct ggml_tensor *b) {
    return ggml_add(ctx, ggml_mul(ctx, ggml_norm(ctx, x, 1e-5f), g), b);
}

static struct ggml_tensor *linear(struct ggml_context *ctx, struct ggml_tensor *w, struct ggml_tensor *b, struct ggml_tensor *x) {
    return ggml_add(ctx, ggml_mul_mat(ctx, w, x), b);
}

static struct ggml_tensor *attention(struct ggml_context *ctx, struct ggml_cgraph *graph, const struct model *m, int il,
    struct ggml_tensor *qkv, int n, int n_past) {
    const int64_t head = N_EMBD / N_HEAD;
    const size_t row = N_EMBD * sizeof(float);
    struct ggml_tensor *q = ggml_view_2d(ctx, qkv, N_EMBD, n, qkv->nb[1], 0);
    struct ggml_tensor *k = ggml_view_2d(ctx, qkv, N_EMBD, n, qkv->nb[1], row);
    struct ggml_tensor *v = ggml_view_2d(ctx, qkv, N_EMBD, n, qkv->nb[1], 2 * row);
    const size_t off = ((size_t) il * N_CTX + (size_t) n_past) * row;
    ggml_build_forward_expand(graph, ggml_cpy(ctx, k, ggml_view_2d(ctx, m->k, N_EMBD, n, row, off)));
    ggml_build_forward_expand(graph, ggml_cpy(ctx, v, ggml_view_2d(ctx, m->v, N_EMBD, n, row, off)));
    const int n_kv = n_past + n;
    struct ggml_tensor *cached_k =
        ggml_view_3d(ctx, m->k, head, N_HEAD, n_kv, head * sizeof(float), row, (size_t) il * N_CTX * row);
    struct ggml_tensor *cached_v =
        ggml_view_3d(ctx, m->v, head, N_HEAD, n_kv, head * sizeof(float), row, (size_t) il * N_CTX * row);
    q = ggml_permute(ctx, ggml_reshape_3d(ctx, ggml_cont(ctx, q), head, N_HEAD, n), 0, 2, 1, 3);
    struct ggml_tensor *kq = ggml_mul_mat(ctx, ggml_permute(ctx, cached_k, 0, 2, 1, 3), q);
    kq = ggml_soft_max(ctx, ggml_diag_mask_inf(ctx, ggml_scale(ctx, kq, 1.0f / sqrtf((float) head)), n_past));
    struct ggml_tensor *kqv = ggml_mul_mat(ctx, ggml_cont(ctx, ggml_permute(ctx, cached_v, 1, 2, 0, 3)), kq);
    return ggml_cont_2d(ctx, ggml_permute(ctx, kqv, 0, 2, 1, 3), N_EMBD, n);
}

int gpt2_today(const struct weights *w, const int *prompt, struct answer *answer) {
    ggml_backend_t backend = ggml_backend_cpu_init();
    struct model m = {0};
    model_make(&m);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(m.ctx, backend);
    model_fill(&m, w);
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
    int tokens[N_TOKENS_MAX], n_past = 0, ok = buffer != NULL;
    for (int i = 0; i < N_PROMPT; i++) {
        tokens[i] = prompt[i];
    }
    for (int step = 0; step < N_PREDICT && ok; step++) {
        const int n = step == 0 ? N_PROMPT : 1;
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
        struct ggml_cgraph *graph = ggml_new_graph(ctx);
        struct ggml_tensor *ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n);
        struct ggml_tensor *pos = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n);
        ggml_set_input(ids);
        ggml_set_input(pos);
        struct ggml_tensor *x = ggml_add(ctx, ggml_get_rows(ctx, m.wte, ids), ggml_get_rows(ctx, m.wpe, pos));
        for (int il = 0; il < N_LAYER; il++) {
            struct ggml_tensor **t = m.layers[il];
            struct ggml_tensor *qkv = linear(ctx, t[ATTN_W], t[ATTN_B], norm(ctx, x, t[LN1_G], t[LN1_B]));
            struct ggml_tensor *attn = attention(ctx, graph, &m, il, qkv, n, n_past);
            x = ggml_add(ctx, linear(ctx, t[PROJ_W], t[PROJ_B], attn), x);
            struct ggml_tensor *h = ggml_gelu(ctx, linear(ctx, t[FC_W], t[FC_B], norm(ctx, x, t[LN2_G], t[LN2_B])));
            x = ggml_add(ctx, linear(ctx, t[DOWN_W], t[DOWN_B], h), x);
        }
        struct ggml_tensor *logits = ggml_mul_mat(ctx, m.wte, norm(ctx, x, m.ln_f_g, m.ln_f_b));
        ggml_set_output(logits);
        ggml_build_forward_expand(graph, logits);
        int32_t positions[N_PROMPT];
        for (int i = 0; i < n; i++) {
            positions[i] = n_past + i;
        }
        ok = ggml_gallocr_alloc_graph(galloc, graph);
        if (ok) {
            ggml_backend_tensor_set(ids, tokens + n_past, 0, (size_t) n * sizeof(int32_t));
            ggml_backend_tensor_set(pos, positions, 0, (size_t) n * sizeof(int32_t));
            ok = ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS;
            ggml_backend_tensor_get(logits, answer->logits, (size_t) (n - 1) * sizeof answer->logits, sizeof answer->logits);
        }
        n_past += n;
        tokens[n_past] = answer->tokens[step] = logits_best(answer->logits);
        ggml_free(ctx);
    }
    ggml_gallocr_free(galloc);
    ggml_backend_buffer_free(buffer);
    ggml_free(m.ctx);
    ggml_backend_free(backend);
    return ok;
}
