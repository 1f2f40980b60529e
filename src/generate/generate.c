// SPDX-License-Identifier: MIT
// generate.c: see speak.h.

#include "generate/generate.h"

#include "cli/models.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool speaker_init(struct speaker *w, const struct vocab *vocab, const struct cli_sampling *sampling, FILE *file) {
    *w = (struct speaker){.vocab = vocab, .sampling = sampling, .file = file, .cap = vocab->max_size + 8};
    w->is_terminal = file == stdout && isatty(STDOUT_FILENO);
    for (int i = 0; i < sampling->n_stops; i++) {
        const size_t n = strlen(sampling->stops[i]);
        w->max_stop = n > w->max_stop ? n : w->max_stop;
    }
    w->piece = malloc(w->cap);
    w->chars = malloc(3 * (w->cap + 4));
    w->held = malloc(w->max_stop + 3 * (w->cap + 4));
    return w->piece != NULL && w->chars != NULL && w->held != NULL;
}

void speaker_fini(struct speaker *w) {
    free(w->piece);
    free(w->chars);
    free(w->held);
}

// Models come from anywhere too: on a terminal, characters that would command it become '?'. Characters are whole here.
static void tame(char *chars, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char) chars[i];
        const bool is_command = (c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
        const bool is_two_command = c >= 0x80 && c < 0xa0 && i > 0 && (unsigned char) chars[i - 1] == 0xc2;
        if (is_two_command) { // U+0080 to U+009F
            chars[i - 1] = '?';
        }
        chars[i] = is_command || is_two_command ? '?' : chars[i];
    }
}

static bool write_out(struct speaker *w, char *chars, size_t n) {
    if (w->copy != NULL && fwrite(chars, 1, n, w->copy) != n) {
        return false;
    }
    tame(chars, w->is_terminal ? n : 0);
    return fwrite(chars, 1, n, w->file) == n && fflush(w->file) == 0;
}

// How many of the held bytes can be written: all before a stop word, or before what may be the beginning of one.
static size_t free_to_go(struct speaker *w) {
    size_t n = w->n_held;
    for (int i = 0; i < w->sampling->n_stops; i++) {
        const char *stop = w->sampling->stops[i];
        const size_t size = strlen(stop);
        for (size_t at = 0; at < n; at++) {
            const size_t left = w->n_held - at, some = left < size ? left : size;
            if (memcmp(w->held + at, stop, some) == 0) {
                n = at;
                w->is_over = w->is_over || some == size;
            }
        }
    }
    return n;
}

static bool put(struct speaker *w, size_t m) {
    if (w->max_stop == 0) {
        return write_out(w, w->chars, m);
    }
    memcpy(w->held + w->n_held, w->chars, m);
    w->n_held += m;
    const size_t n = free_to_go(w);
    const bool ok = write_out(w, w->held, n);
    w->n_held = w->is_over ? 0 : w->n_held - n;
    memmove(w->held, w->held + n, w->n_held);
    return ok;
}

bool speaker_put(struct speaker *w, int32_t token) {
    const size_t n = vocab_piece(w->vocab, token, w->piece, w->cap);
    return put(w, utf8_stream_put(&w->stream, w->piece, n, w->chars));
}

bool speaker_end(struct speaker *w) {
    bool ok = put(w, w->is_over ? 0 : utf8_stream_end(&w->stream, w->chars));
    ok = write_out(w, w->held, w->n_held) && ok;
    w->n_held = 0;
    return ok;
}

// The next token: the likeliest, or by chance, of those that the grammar allows. -1 with an error; *is_over: none is allowed, and
// the text ends.
static int32_t choose(struct session *s, struct speaker *w, struct sampler *sampler, bool *is_over, struct model_error *error) {
    const int64_t n = s->model->params.n_vocab;
    bool ok = w->logs == NULL || logprobs_look(w->logs, s->logits, n);
    if (ok && w->guide != NULL) {
        const int64_t n_left = guide_mask(w->guide, s->logits, n, error);
        ok = n_left >= 0;
        *is_over = n_left == 0;
    }
    if (*is_over) {
        logprobs_drop(w->logs);
        return 0;
    }
    const int32_t token = ok ? sampler_pick(sampler, s->logits, n) : -1;
    ok = token >= 0 && sampler_accept(sampler, token) && (w->guide == NULL || guide_accept(w->guide, token, error));
    if (ok && w->logs != NULL) {
        logprobs_choose(w->logs, s->logits, token);
    }
    return ok ? token : (model_fail(error, "the model's answer holds no number, or memory is out"), -1);
}

int cli_parse_predict(const char *command, const char *text, int64_t *n) {
    return cli_parse_int(text, -1, INT64_MAX, n)
               ? CLI_OK
               : cli_usage(command, "--predict '%s' is neither an integer from 0 nor -1 for no limit", text);
}

bool speak(
    struct session *s, struct speaker *w, struct sampler *sampler, int64_t n_most, struct spoken *r, struct model_error *error) {
    const int64_t start = ggml_time_us();
    bool ok = true;
    while (ok && (n_most < 0 || r->n_made < n_most) && !cli_is_interrupted(NULL)) {
        bool is_over = false;
        const int32_t token = choose(s, w, sampler, &is_over, error);
        ok = token >= 0;
        if (!ok || is_over) {
            break;
        }
        r->last = token;
        r->is_last_read = false;
        if (vocab_is_end(w->vocab, token)) {
            break;
        }
        r->n_made++;
        if (!speaker_put(w, token)) {
            ok = model_fail(error, "standard output: writing failed: %s", strerror(errno));
            break;
        }
        if (w->is_over || s->n_past == s->params.n_ctx || (n_most >= 0 && r->n_made == n_most)) {
            break;
        }
        ok = session_decode(s, &token, 1, error);
        r->is_last_read = ok;
        r->n_decoded += ok;
    }
    r->made_us += ggml_time_us() - start;
    return ok;
}
