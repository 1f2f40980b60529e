// SPDX-License-Identifier: MIT
// conversation.c: the answers of the model in a conversation (conversation.h).

#include "generate/conversation.h"

#include "base/base.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

// Message n - 1 is an answer. Sets *end to the end of its text: an offset in the formatted conversation. Returns false if out of
// memory.
static bool answer_end(const struct conversation *c, size_t n, size_t *end) {
    char *text = chat_format(c->template, c->history.messages, n, false);
    const char *tail = c->template->texts[CHAT_ASSISTANT].after;
    if (text == NULL) {
        return false;
    }
    *end = strlen(text) - (tail != NULL ? strlen(tail) : 0);
    berth_free(text);
    return true;
}

// Appends to `tokens` the tokens of the conversation that the model has not processed yet. If the cache does not contain the
// beginning of the conversation, resets the session.
static bool tokens_unread(
    struct conversation *c, const struct generator *g, struct token_list *tokens, struct model_error *error) {
    char *text = chat_format(c->template, c->history.messages, c->history.n, true);
    size_t from = 0;
    int32_t first = -1;
    if (text == NULL || (c->is_cached && !answer_end(c, c->history.n - 1, &from))) {
        berth_free(text);
        return model_fail(error, "out of memory");
    }
    if (c->is_cached) { // the cache lacks only the user's last message, and possibly the last token of the answer
        first = c->made.n_made > 0 && !c->made.is_last_read && !vocab_is_end(g->writer->vocab, c->made.last) ? c->made.last : -1;
    } else {
        session_reset(g->session);
    }
    const unsigned how = ENCODE_PARSE | (from == 0 ? ENCODE_ADD : 0);
    const bool ok = (first < 0 || token_push(tokens, first, error)) &&
                    vocab_encode(g->writer->vocab, text + from, strlen(text) - from, how, tokens, error);
    berth_free(text);
    return ok;
}

// Processes the tokens and adds them to the history of the sampler.
static bool tokens_decode(
    struct conversation *c, const struct generator *g, const struct token_list *tokens, struct model_error *error) {
    const int64_t start = ggml_time_us();
    const bool ok = session_decode(g->session, tokens->ids, (int64_t) tokens->n, error);
    c->read_us += ggml_time_us() - start;
    if (!ok) {
        return false;
    }
    c->n_read += (int64_t) tokens->n;
    for (size_t i = 0; i < tokens->n; i++) {
        if (!sampler_accept(g->sampler, tokens->ids[i])) {
            return model_fail(error, "out of memory");
        }
    }
    return true;
}

// Processes the tokens of the conversation that the model has not processed yet. If the context has too few free positions, drops
// the oldest turns and processes the remaining conversation from position 0.
static bool tokens_process(struct conversation *c, const struct generator *g, struct model_error *error) {
    struct session *s = g->session;
    for (;;) {
        struct token_list tokens = {0};
        bool ok = tokens_unread(c, g, &tokens, error);
        const int64_t n = (int64_t) tokens.n, room = s->params.n_ctx - s->n_past;
        const size_t first = c->history.n > 0 && c->history.messages[0].role == CHAT_SYSTEM;
        if (ok && n >= room && c->history.n > first + 1) {
            chat_history_drop(&c->history, first);
            if (c->history.messages[first].role == CHAT_ASSISTANT && c->history.n > first + 1) {
                chat_history_drop(&c->history, first);
            }
            c->is_cached = false;
            token_list_fini(&tokens);
            continue;
        }
        if (ok && n >= room) {
            ok = model_fail(error,
                "the message has %" PRId64 " tokens, but the context has %" PRId64
                " free positions; enlarge it with --ctx (n_ctx)",
                n, room);
        } else if (ok) {
            ok = tokens_decode(c, g, &tokens, error);
        }
        token_list_fini(&tokens);
        return ok;
    }
}

// Generates the answer and stores its text.
static bool answer_generate(struct conversation *c, const struct generator *g, int64_t n_max, struct model_error *error) {
    const bool is_read = (g->guide == NULL || guide_reset(g->guide, error)) && tokens_process(c, g, error);
    c->made = (struct generate_result){0};
    const bool is_made = is_read && text_generate(g, n_max, &c->made, error);
    const bool is_stopped = g->stop != NULL && g->stop(g->stop_data);
    c->n_made += c->made.n_made;
    c->made_us += c->made.made_us;
    // The tokens of a stop text are in the cache, but not in the history.
    c->is_cached = is_made && !g->writer->filter.is_over && error->text[0] == '\0';
    if (!text_writer_end(g->writer)) {
        return model_fail(error, "writing the text failed: %s", strerror(errno));
    }
    return is_made || is_stopped;
}

bool conversation_answer(struct conversation *c, const struct generator *g, int64_t n_max, struct model_error *error) {
    struct berth_stream copy = {0};
    bool ok = berth_stream_open(&copy);
    g->writer->copy = copy.file;
    if (ok) {
        ok = answer_generate(c, g, n_max, error);
    }
    g->writer->copy = NULL;
    const bool is_closed = berth_stream_close(&copy);
    if (!is_closed || (ok && !chat_history_add(&c->history, CHAT_ASSISTANT, copy.text, copy.size))) {
        ok = model_fail(error, "out of memory");
    }
    if (!ok) {
        chat_history_drop(&c->history, c->history.n - 1); // the user's message
        c->is_cached = false;
    }
    berth_stream_fini(&copy);
    return ok;
}
