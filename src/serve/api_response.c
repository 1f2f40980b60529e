// SPDX-License-Identifier: MIT
// api_response.c: writes the response bodies of OpenAI's API (api.h).

#include "base/json.h"
#include "base/min.h"
#include "model/vocab.h"
#include "serve/api.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MIN_LOGPROB (-9999.0) // stands for minus infinity, as in OpenAI's API
#define MAX_PIECE 512         // bytes of a token that are written

// ---- errors ----

const char *api_error_type(int status) {
    switch (status) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 429: return "rate_limit_error";
        default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void api_write_error(FILE *file, const struct api_error *error) {
    struct berth_json_writer w = {.file = file};
    berth_json_printf(&w, "{'error': {'message': %s, 'type': %s, 'param': %s, 'code': %s}}", error->message,
        api_error_type(error->status), error->param[0] != '\0' ? error->param : NULL, error->code);
}

void api_write_error_event(FILE *file, const struct api_error *error) {
    fputs("data: ", file);
    api_write_error(file, error);
    fputs("\n\n", file);
}

void api_write_done(FILE *file) {
    fputs("data: [DONE]\n\n", file);
}

// ---- log probabilities ----

static double log_finite(float log) {
    return max_f64((double) log, MIN_LOGPROB);
}

// Copies the bytes of a token to piece and returns their number.
static size_t piece_get(const struct vocab *vocab, int32_t token, char piece[MAX_PIECE]) {
    const size_t n = vocab != NULL && token >= 0 ? vocab_piece(vocab, token, piece, MAX_PIECE) : 0;
    return min_size(n, MAX_PIECE);
}

static const struct logprob *entry_get(const struct logprobs *l, size_t i) {
    return l->items + i * ((size_t) l->n_top + 1);
}

// {"token": ..., "logprob": ..., "bytes": [...]}, without the closing brace.
static void token_begin(struct berth_json_writer *w, const struct vocab *vocab, const struct logprob *l) {
    char piece[MAX_PIECE];
    const size_t n = piece_get(vocab, l->token, piece);
    berth_json_begin(w, NULL, '{');
    berth_json_put_key(w, "token");
    berth_json_write_text(piece, n, w->file);
    berth_json_printf(w, "'logprob': %.6g", log_finite(l->log));
    berth_json_begin(w, "bytes", '[');
    for (size_t i = 0; i < n; i++) {
        berth_json_printf(w, "%d", (uint8_t) piece[i]);
    }
    berth_json_end(w);
}

static void chat_logprobs_write(struct berth_json_writer *w, const struct vocab *vocab, const struct api_choice *c) {
    const struct logprobs *l = c->logprobs;
    berth_json_begin(w, "logprobs", '{');
    berth_json_begin(w, "content", '[');
    for (size_t i = c->first_logprob; i < l->n; i++) {
        const struct logprob *entry = entry_get(l, i);
        token_begin(w, vocab, entry);
        berth_json_begin(w, "top_logprobs", '[');
        for (int64_t k = 1; k <= l->n_top && entry[k].token >= 0; k++) {
            token_begin(w, vocab, entry + k);
            berth_json_end(w);
        }
        berth_json_end(w);
        berth_json_end(w);
    }
    berth_json_end(w);
    berth_json_printf(w, "'refusal': null");
    berth_json_end(w);
}

int64_t api_chars_count(const char *bytes, size_t n) {
    int64_t n_chars = 0;
    for (size_t i = 0; i < n; i++) {
        n_chars += ((uint8_t) bytes[i] & 0xc0) != 0x80;
    }
    return n_chars;
}

// The object of /v1/completions: four arrays with one element per token.
static void text_logprobs_write(struct berth_json_writer *w, const struct vocab *vocab, const struct api_choice *c) {
    const struct logprobs *l = c->logprobs;
    char piece[MAX_PIECE];
    int64_t off = c->text_off;
    berth_json_begin(w, "logprobs", '{');
    berth_json_begin(w, "tokens", '[');
    for (size_t i = c->first_logprob; i < l->n; i++) {
        berth_json_put_key(w, NULL);
        berth_json_write_text(piece, piece_get(vocab, entry_get(l, i)->token, piece), w->file);
    }
    berth_json_end(w);
    berth_json_begin(w, "token_logprobs", '[');
    for (size_t i = c->first_logprob; i < l->n; i++) {
        berth_json_printf(w, "%.6g", log_finite(entry_get(l, i)->log));
    }
    berth_json_end(w);
    berth_json_begin(w, "top_logprobs", '[');
    for (size_t i = c->first_logprob; i < l->n; i++) {
        const struct logprob *entry = entry_get(l, i);
        berth_json_begin(w, NULL, '{');
        for (int64_t k = 1; k <= l->n_top && entry[k].token >= 0; k++) {
            const size_t n = piece_get(vocab, entry[k].token, piece);
            berth_json_put_key(w, NULL);
            berth_json_write_text(piece, n, w->file);
            fprintf(w->file, ": %.6g", log_finite(entry[k].log));
        }
        berth_json_end(w);
    }
    berth_json_end(w);
    berth_json_begin(w, "text_offset", '[');
    for (size_t i = c->first_logprob; i < l->n; i++) {
        berth_json_printf(w, "%" PRId64, off);
        off += api_chars_count(piece, piece_get(vocab, entry_get(l, i)->token, piece));
    }
    berth_json_end(w);
    berth_json_end(w);
}

// ---- answers ----

static const char *end_name(const struct api_choice *c) {
    switch (c->end) {
        case ENGINE_RUNNING: return NULL;
        case ENGINE_LENGTH: return "length";
        default: return c->n_calls + c->first_call > 0 ? "tool_calls" : "stop";
    }
}

// is_part: the calls are a part of a stream, so each has its index.
static void calls_write(struct berth_json_writer *w, const struct api_choice *c, bool is_part) {
    if (c->n_calls == 0) {
        return;
    }
    berth_json_begin(w, "tool_calls", '[');
    for (int i = 0; i < c->n_calls; i++) {
        berth_json_begin(w, NULL, '{');
        if (is_part) {
            berth_json_printf(w, "'index': %d", c->first_call + i);
        }
        berth_json_printf(w, "'id': %s, 'type': 'function', 'function': {'name': %s, 'arguments': %s}", c->calls[i].id,
            c->calls[i].name, c->calls[i].arguments);
        berth_json_end(w);
    }
    berth_json_end(w);
}

static void content_write(struct berth_json_writer *w, const char *key, const struct api_choice *c) {
    if (c->n_calls > 0 && c->n_text == 0) {
        berth_json_printf(w, "'content': null");
        return;
    }
    berth_json_put_key(w, key);
    berth_json_write_text(c->text, c->n_text, w->file);
}

static void usage_write(struct berth_json_writer *w, const struct api_usage *u, bool is_embedding) {
    if (is_embedding) {
        berth_json_printf(w, "'usage': {'prompt_tokens': %" PRId64 ", 'total_tokens': %" PRId64 "}", u->n_prompt, u->n_prompt);
        return;
    }
    berth_json_printf(w,
        "'usage': {'prompt_tokens': %" PRId64 ", 'completion_tokens': %" PRId64 ", 'total_tokens': %" PRId64
        ", 'prompt_tokens_details': {'cached_tokens': %" PRId64 "}}",
        u->n_prompt, u->n_made, u->n_prompt + u->n_made, u->n_cached);
}

static void head_write(struct berth_json_writer *w, const struct api_reply *r, const char *object) {
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'id': %s, 'object': %s, 'created': %" PRId64 ", 'model': %s", r->id, object, r->created, r->model);
}

// The end of a choice: log probabilities and the reason of its end.
static void choice_end(struct berth_json_writer *w, const struct api_reply *r, const struct api_choice *c) {
    if (c->logprobs == NULL) {
        berth_json_printf(w, "'logprobs': null");
    } else if (r->kind == API_CHAT) {
        chat_logprobs_write(w, r->vocab, c);
    } else {
        text_logprobs_write(w, r->vocab, c);
    }
    berth_json_printf(w, "'finish_reason': %s", end_name(c));
    berth_json_end(w);
}

void api_write_answers(
    FILE *file, const struct api_reply *r, const struct api_choice *choices, int n, const struct api_usage *usage) {
    struct berth_json_writer w = {.file = file};
    head_write(&w, r, r->kind == API_CHAT ? "chat.completion" : "text_completion");
    berth_json_begin(&w, "choices", '[');
    for (int i = 0; i < n; i++) {
        const struct api_choice *c = &choices[i];
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'index': %d", c->index);
        if (r->kind == API_CHAT) {
            berth_json_begin(&w, "message", '{');
            berth_json_printf(&w, "'role': 'assistant'");
        }
        content_write(&w, r->kind == API_CHAT ? "content" : "text", c);
        calls_write(&w, c, false);
        if (r->kind == API_CHAT) {
            berth_json_printf(&w, "'refusal': null");
            berth_json_end(&w);
        }
        choice_end(&w, r, c);
    }
    berth_json_end(&w);
    usage_write(&w, usage, false);
    berth_json_end(&w);
}

static void delta_write(struct berth_json_writer *w, const struct api_reply *r, const struct api_choice *c) {
    const bool is_chat = r->kind == API_CHAT;
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'index': %d", c->index);
    if (is_chat) {
        berth_json_begin(w, "delta", '{');
    }
    if (is_chat && c->is_first) {
        berth_json_printf(w, "'role': 'assistant'");
    }
    if (!is_chat || c->is_first || c->n_text > 0) {
        content_write(w, is_chat ? "content" : "text", c);
    }
    calls_write(w, c, true);
    if (is_chat) {
        berth_json_end(w);
    }
    choice_end(w, r, c);
}

void api_write_event(FILE *file, const struct api_reply *r, const struct api_choice *choice, const struct api_usage *usage) {
    struct berth_json_writer w = {.file = file};
    fputs("data: ", file);
    head_write(&w, r, r->kind == API_CHAT ? "chat.completion.chunk" : "text_completion");
    berth_json_begin(&w, "choices", '[');
    if (choice != NULL) {
        delta_write(&w, r, choice);
    }
    berth_json_end(&w);
    if (choice == NULL) {
        usage_write(&w, usage, false);
    } else if (r->has_stream_usage) {
        berth_json_printf(&w, "'usage': null");
    }
    berth_json_end(&w);
    fputs("\n\n", file);
}

// ---- embeddings ----

static double vector_scale(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double) x[i] * (double) x[i];
    }
    return sum > 0 ? 1 / sqrt(sum) : 1;
}

// The little-endian bytes of the f32 values, in base64.
static void vector_write_base64(FILE *file, const float *x, int64_t n, double scale) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int n_bits = 0;
    size_t n_bytes = 0;
    fputc('"', file);
    for (int64_t i = 0; i < n; i++) {
        const float value = (float) ((double) x[i] * scale);
        uint32_t word;
        memcpy(&word, &value, sizeof word);
        for (int k = 0; k < 4; k++, word >>= 8, n_bytes++) {
            bits = bits << 8 | (word & 0xff);
            for (n_bits += 8; n_bits >= 6; n_bits -= 6) {
                fputc(digits[bits >> (n_bits - 6) & 63], file);
            }
        }
    }
    if (n_bits > 0) {
        fputc(digits[bits << (6 - n_bits) & 63], file);
    }
    for (; n_bytes % 3 != 0; n_bytes++) {
        fputc('=', file);
    }
    fputc('"', file);
}

void api_write_embeddings(
    FILE *file, const struct api_reply *r, const float *const *vectors, int n, int64_t n_embd, const struct api_usage *usage) {
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'object': 'list', 'model': %s", r->model);
    berth_json_begin(&w, "data", '[');
    for (int i = 0; i < n; i++) {
        const double scale = vector_scale(vectors[i], n_embd);
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'object': 'embedding', 'index': %d", i);
        if (r->is_base64) {
            berth_json_put_key(&w, "embedding");
            vector_write_base64(file, vectors[i], n_embd, scale);
        } else {
            berth_json_begin(&w, "embedding", '[');
            for (int64_t k = 0; k < n_embd; k++) {
                berth_json_printf(&w, "%.7g", (double) vectors[i][k] * scale);
            }
            berth_json_end(&w);
        }
        berth_json_end(&w);
    }
    berth_json_end(&w);
    usage_write(&w, usage, true);
    berth_json_end(&w);
}

// ---- models ----

void api_write_model(struct berth_json_writer *w, const char *key, const char *name, int64_t created, int64_t n_ctx) {
    berth_json_begin(w, key, '{');
    berth_json_printf(w, "'id': %s, 'object': 'model', 'created': %" PRId64 ", 'owned_by': 'berth', 'context_length': %" PRId64,
        name, created, n_ctx);
    berth_json_end(w);
}

void api_write_models(FILE *file, const char *name, int64_t created, int64_t n_ctx) {
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'object': 'list'");
    berth_json_begin(&w, "data", '[');
    api_write_model(&w, NULL, name, created, n_ctx);
    berth_json_end(&w);
    berth_json_end(&w);
}
