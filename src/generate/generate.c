// SPDX-License-Identifier: MIT
// generate.c: generates tokens and their text, opens grammars, and processes long texts (generate.h).

#include "generate/generate.h"

#include "base/min.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- text ----

bool text_writer_init(struct text_writer *w, const struct vocab *vocab, const char *const *stops, int n_stops, FILE *file) {
    *w = (struct text_writer){.vocab = vocab, .file = file};
    w->memory = berth_malloc(text_filter_size(vocab, stops, n_stops));
    if (w->memory != NULL) {
        text_filter_init(&w->filter, vocab, stops, n_stops, w->memory);
    }
    return w->memory != NULL;
}

void text_writer_fini(struct text_writer *w) {
    berth_free(w->memory);
}

// Replaces control characters by '?'. They could send commands to a terminal, and model files are untrusted. The bytes must be
// complete characters.
static void controls_replace(char *chars, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char) chars[i];
        const bool is_c0 = (c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
        const bool is_c1 = c >= 0x80 && c < 0xa0 && i > 0 && (unsigned char) chars[i - 1] == 0xc2; // U+0080 to U+009F
        if (is_c1) {
            chars[i - 1] = '?';
        }
        if (is_c0 || is_c1) {
            chars[i] = '?';
        }
    }
}

static bool bytes_write(struct text_writer *w, char *chars, size_t n) {
    if (w->copy != NULL && fwrite(chars, 1, n, w->copy) != n) {
        return false;
    }
    if (w->put != NULL) {
        return n == 0 || w->put(chars, n, w->put_user);
    }
    if (w->is_terminal) {
        controls_replace(chars, n);
    }
    return fwrite(chars, 1, n, w->file) == n && fflush(w->file) == 0;
}

bool text_writer_put(struct text_writer *w, int32_t token) {
    char *text;
    const size_t n = text_filter_put(&w->filter, token, &text);
    return bytes_write(w, text, n);
}

bool text_writer_end(struct text_writer *w) {
    char *text;
    const size_t n = text_filter_end(&w->filter, &text);
    return bytes_write(w, text, n);
}

// ---- tokens ----

bool text_prompt_encode(
    const struct generator *g, const char *prompt, size_t size, struct token_list *tokens, struct model_error *error) {
    const int64_t n_ctx = g->session->params.n_ctx;
    if (!vocab_encode(g->writer->vocab, prompt, size, ENCODE_ADD | ENCODE_PARSE, tokens, error)) {
        return false;
    }
    if (tokens->n == 0) {
        return model_fail(error, "the prompt is empty");
    }
    if ((int64_t) tokens->n > n_ctx) {
        return model_fail(error,
            "the prompt has %zu tokens, but the context has %" PRId64 " positions; enlarge it with --ctx (n_ctx)", tokens->n,
            n_ctx);
    }
    for (size_t i = 0; i < tokens->n; i++) {
        if (!sampler_accept(g->sampler, tokens->ids[i])) {
            return model_fail(error, "out of memory");
        }
    }
    return true;
}

int32_t token_choose(const struct token_chooser *c, float *logits, int64_t n, struct model_error *error) {
    if (c->logs != NULL && !logprobs_compute(c->logs, logits, n)) {
        model_fail(error, "out of memory for the log probabilities of %zu tokens", c->logs->n);
        return TOKEN_FAILED;
    }
    const int64_t n_left = c->guide != NULL ? guide_mask(c->guide, logits, n, error) : n;
    if (n_left == 0) {
        logprobs_drop(c->logs);
        return TOKEN_NONE;
    }
    const int32_t token = n_left > 0 ? sampler_pick(c->sampler, logits, n) : TOKEN_FAILED;
    const bool is_banned = token >= 0 && logits[token] == -INFINITY; // biases leave none of the tokens that the grammar allows
    if (token < 0 || is_banned || !sampler_accept(c->sampler, token) ||
        (c->guide != NULL && !guide_accept(c->guide, token, error))) {
        logprobs_drop(c->logs);
        model_fail(error, "the model computed no finite logits, or memory is exhausted");
        return TOKEN_FAILED;
    }
    if (c->logs != NULL) {
        logprobs_choose(c->logs, logits, token);
    }
    return token;
}

static bool tokens_make(const struct generator *g, int64_t n_max, struct generate_result *r, struct model_error *error) {
    struct session *s = g->session;
    const struct token_chooser chooser = {.sampler = g->sampler, .guide = g->guide, .logs = g->logs};
    while ((n_max < 0 || r->n_made < n_max) && !(g->stop != NULL && g->stop(g->stop_data))) {
        const int32_t token = token_choose(&chooser, s->logits, s->model->params.n_vocab, error);
        if (token < 0) {
            return token == TOKEN_NONE;
        }
        r->last = token;
        r->is_last_read = false;
        if (vocab_is_end(g->writer->vocab, token)) {
            return true;
        }
        r->n_made++;
        if (!text_writer_put(g->writer, token)) {
            return model_fail(error, "writing the text failed: %s", strerror(errno));
        }
        if (g->writer->filter.is_over || s->n_past == s->params.n_ctx || (n_max >= 0 && r->n_made == n_max)) {
            return true;
        }
        if (!session_decode(s, &token, 1, error)) {
            return false;
        }
        r->is_last_read = true;
        r->n_decoded++;
    }
    return true;
}

bool text_generate(const struct generator *g, int64_t n_max, struct generate_result *r, struct model_error *error) {
    const int64_t start = ggml_time_us();
    const bool ok = tokens_make(g, n_max, r, error);
    r->made_us += ggml_time_us() - start;
    return ok;
}

// ---- grammars ----

bool text_guide_open(
    struct text_guide *guide, const struct guide_source *source, const struct vocab *vocab, struct model_error *error) {
    struct model_error why = {""};
    char *from_schema = NULL;
    const char *text = source->text;
    size_t size = source->size;
    *guide = (struct text_guide){NULL, NULL};
    if (source->is_schema) {
        from_schema = schema_to_grammar(source, error);
        if (from_schema == NULL) {
            return false;
        }
        text = from_schema;
        size = strlen(from_schema);
    }
    guide->grammar = grammar_new(text, size, source->stop, source->stop_data, &why);
    berth_free(from_schema);
    guide->guide = guide->grammar != NULL ? guide_new(guide->grammar, vocab, &why) : NULL;
    if (guide->guide == NULL) {
        text_guide_close(guide);
        return model_fail(error, "%s: %s", source->name, why.text);
    }
    return true;
}

void text_guide_close(struct text_guide *guide) {
    guide_free(guide->guide);
    grammar_free(guide->grammar);
    *guide = (struct text_guide){NULL, NULL};
}

// ---- long texts, context by context ----

static bool reader_is_stopped(const struct context_reader *r) {
    return r->stop != NULL && r->stop(r->stop_data);
}

static int64_t tokens_read(const struct context_reader *r, const struct token_list *tokens, struct model_error *error) {
    const int64_t n_ctx = r->session->params.n_ctx;
    int64_t n = (int64_t) tokens->n / n_ctx, done = 0;
    if (n == 0) {
        model_fail(error, "%s: the text has %zu tokens, but a context needs %" PRId64, r->name, tokens->n, n_ctx);
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
    return model_fail(error, "interrupted within the first context");
}
