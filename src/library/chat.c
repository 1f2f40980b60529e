// SPDX-License-Identifier: MIT
// chat.c: conversations (berth-model.h).

#include "library/library.h"

#include "base/base.h"

struct berth_chat {
    struct berth_session *session;
    struct conversation talk;
};

struct berth_chat *berth_chat_new(struct berth_session *session, const char *template_name) {
    struct model_error error = {""};
    if (session == NULL) {
        berth_set_error("berth_chat_new requires a session");
        return NULL;
    }
    const struct chat_template *template = chat_template_of(berth_model_keys(session->model), template_name, &error);
    if (template == NULL) {
        berth_set_error("%s: %s", session->model->w.path, error.text);
        return NULL;
    }
    struct berth_chat *chat = berth_calloc(1, sizeof *chat);
    if (chat == NULL) {
        berth_set_error("out of memory");
        return NULL;
    }
    chat->session = session;
    chat->talk.template = template;
    return chat;
}

void berth_chat_free(struct berth_chat *chat) {
    if (chat != NULL) {
        if (chat->session->cached == chat) {
            chat->session->cached = NULL;
        }
        chat_history_fini(&chat->talk.history);
        berth_free(chat);
    }
}

enum ggml_status berth_chat_add(struct berth_chat *chat, const char *role, const char *text, size_t size) {
    if (chat == NULL || role == NULL || text == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_chat_add requires a chat, a role and a text");
    }
    const enum chat_role found = chat_role_find(role, strlen(role));
    if (found == CHAT_N_ROLES) {
        return berth_fail(GGML_STATUS_FAILED, "unknown role '%s'; the roles are system, user and assistant", role);
    }
    // The cache lacks only the last message when the answer begins, so another message makes it useless.
    struct conversation *talk = &chat->talk;
    if (talk->history.n > 0 && talk->history.messages[talk->history.n - 1].role != CHAT_ASSISTANT) {
        talk->is_cached = false;
    }
    if (!chat_history_add(&talk->history, found, text, size)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory");
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_chat_answer(
    struct berth_chat *chat, const struct berth_generate_params *params, struct berth_generate_result *result) {
    struct berth_generate_params defaults;
    struct model_error error = {""};
    struct library_call call;
    if (result != NULL) {
        *result = (struct berth_generate_result){0};
    }
    if (chat == NULL || chat->talk.history.n == 0 || chat->talk.history.messages[chat->talk.history.n - 1].role != CHAT_USER) {
        return berth_fail(GGML_STATUS_FAILED, "berth_chat_answer requires a chat whose last message is the user's");
    }
    struct conversation *talk = &chat->talk;
    struct berth_session *session = chat->session;
    if (session->cached != chat) {
        talk->is_cached = false;
    }
    session->cached = chat;
    berth_generate_params_init(&defaults);
    const int64_t n_read = talk->n_read, read_us = talk->read_us;
    const bool is_ready = library_call_init(&call, session, params != NULL ? params : &defaults, &error);
    if (!is_ready) {
        talk->made = (struct generate_result){0};
        talk->is_cached = false;
        chat_history_drop(&talk->history, talk->history.n - 1);
    }
    const bool ok = is_ready && conversation_answer(talk, &call.generator, call.params->max_tokens, &error);
    const enum ggml_status status = library_call_end(&call, &talk->made, ok, &error, result);
    if (result != NULL) {
        result->n_prompt = talk->n_read - n_read;
        result->prompt_us = talk->read_us - read_us;
    }
    library_call_fini(&call);
    return status;
}

int64_t berth_chat_n_messages(const struct berth_chat *chat) {
    return chat != NULL ? (int64_t) chat->talk.history.n : 0;
}

bool berth_chat_message(const struct berth_chat *chat, int64_t i, const char **role, const char **text) {
    if (chat == NULL || role == NULL || text == NULL || i < 0 || i >= (int64_t) chat->talk.history.n) {
        return false;
    }
    *role = chat_role_names[chat->talk.history.messages[i].role];
    *text = chat->talk.history.messages[i].text;
    return true;
}
