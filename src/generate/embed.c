// SPDX-License-Identifier: MIT
// embed.c: embeddings of texts (generate.h).

#include "generate/generate.h"

#include <inttypes.h>
#include <math.h>

static double vector_length(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double) x[i] * (double) x[i];
    }
    return sqrt(sum);
}

// Processes the text in the empty cache.
static bool text_decode(
    const struct text_embedder *e, const char *text, size_t size, int64_t *n_tokens, struct model_error *error) {
    struct token_list tokens = {0};
    const int64_t n_ctx = e->session->params.n_ctx;
    bool ok = vocab_encode(e->vocab, text, size, ENCODE_ADD, &tokens, error);
    *n_tokens = (int64_t) tokens.n;
    if (ok && (*n_tokens == 0 || *n_tokens > n_ctx)) {
        ok = model_fail(error,
            "the text has %" PRId64 " tokens, but 1 to %" PRId64 " are allowed; raise the limit with --ctx (n_ctx)", *n_tokens,
            n_ctx);
    }
    if (ok) {
        session_reset(e->session);
        ok = session_decode(e->session, tokens.ids, *n_tokens, error);
    }
    token_list_fini(&tokens);
    return ok;
}

bool text_embed(const struct text_embedder *e, const char *text, size_t size, float *embedding, int64_t *n_tokens,
    struct model_error *error) {
    const struct session *s = e->session;
    const int64_t n = s->model->params.n_embd;
    if (!text_decode(e, text, size, n_tokens, error)) {
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        embedding[i] = e->is_last ? s->logits[i] : s->sums[i] / (float) *n_tokens;
    }
    const double length = vector_length(embedding, n);
    if (!e->is_raw && length > 0) {
        for (int64_t i = 0; i < n; i++) {
            embedding[i] = (float) ((double) embedding[i] / length);
        }
    }
    return true;
}
