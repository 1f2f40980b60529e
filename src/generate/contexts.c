// SPDX-License-Identifier: MIT
// contexts.c: a long text, context by context (generate.h).

#include "base/min.h"
#include "generate/generate.h"

#include <inttypes.h>

static bool reader_is_stopped(const struct context_reader *r) {
    return r->stop != NULL && r->stop(r->stop_data);
}

static int64_t tokens_read(const struct context_reader *r, const struct token_list *tokens, struct model_error *error) {
    const int64_t n_ctx = r->session->params.n_ctx;
    int64_t n = (int64_t) tokens->n / n_ctx, done = 0;
    if (n == 0) {
        model_fail(error, "%s: %zu tokens are less than a context of %" PRId64, r->name, tokens->n, n_ctx);
    }
    if (r->n_max > 0) {
        n = min_i64(n, r->n_max);
    }
    for (; done < n && !reader_is_stopped(r); done++) {
        int32_t *ids = tokens->ids + done * n_ctx;
        if (r->vocab->add_bos && r->vocab->bos >= 0) {
            ids[0] = r->vocab->bos;
        }
        session_reset(r->session);
        if (!session_decode(r->session, ids, n_ctx, error) || !r->each(r->user, ids, done, n, error)) {
            break;
        }
    }
    return done;
}

bool contexts_read(const struct context_reader *r, int64_t *n_read, struct model_error *error) {
    struct token_list tokens = {0};
    *n_read = 0;
    if (vocab_encode(r->vocab, r->text, r->size, ENCODE_ADD, &tokens, error)) {
        *n_read = tokens_read(r, &tokens, error);
    }
    token_list_fini(&tokens);
    if (*n_read > 0 && (error->text[0] == '\0' || reader_is_stopped(r))) {
        return true;
    }
    return model_fail(error, "stopped within the first context");
}
