// SPDX-License-Identifier: MIT
// history.c: the messages of a conversation (conversation.h). Saved as JSON, they are
// {"messages": [{"role": "user", "content": "..."}, ...]}.

#include "base/json.h"
#include "generate/conversation.h"

const char *const chat_role_names[CHAT_N_ROLES] = {"system", "user", "assistant"};

enum chat_role chat_role_find(const char *name, size_t size) {
    int i = 0;
    while (i < CHAT_N_ROLES && (strlen(chat_role_names[i]) != size || memcmp(chat_role_names[i], name, size) != 0)) {
        i++;
    }
    return (enum chat_role) i;
}

bool chat_history_add(struct chat_history *h, enum chat_role role, const char *text, size_t size) {
    char *copy = berth_malloc(size + 1);
    if (copy == NULL || !berth_grow((void **) &h->messages, &h->cap, h->n + 1, sizeof *h->messages)) {
        berth_free(copy);
        return false;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    h->messages[h->n++] = (struct chat_message){role, copy};
    return true;
}

void chat_history_drop(struct chat_history *h, size_t i) {
    berth_free((char *) h->messages[i].text);
    h->n--;
    memmove(h->messages + i, h->messages + i + 1, (h->n - i) * sizeof *h->messages);
}

void chat_history_fini(struct chat_history *h) {
    while (h->n > 0) {
        chat_history_drop(h, h->n - 1);
    }
    berth_free(h->messages);
    *h = (struct chat_history){0};
}

void chat_history_write(const struct chat_history *h, FILE *file) {
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_begin(&w, "messages", '[');
    for (size_t i = 0; i < h->n; i++) {
        berth_json_line(&w, 2);
        berth_json_printf(&w, "{'role': %s, 'content': %s}", chat_role_names[h->messages[i].role], h->messages[i].text);
    }
    fputs("\n]}\n", file);
}

// Reads one message and appends it to h. Its keys may be in any order, and the last of equal keys counts. Returns false if the
// message is invalid. *is_out_of_memory: memory is exhausted.
static bool message_read(struct berth_json *r, struct chat_history *h, bool *is_out_of_memory) {
    struct berth_json_text key, text;
    enum chat_role role = CHAT_N_ROLES;
    const size_t n = h->n;
    if (!berth_json_object(r)) {
        return false;
    }
    while (berth_json_key(r, &key)) {
        const bool is_role = berth_json_is(key, "role"), is_content = berth_json_is(key, "content");
        if (!(is_role || is_content ? berth_json_string(r, &text) : berth_json_skip(r))) {
            return false;
        }
        if (is_role) {
            role = chat_role_find(text.text, text.len);
        } else if (is_content) {
            if (h->n > n) {
                chat_history_drop(h, n);
            }
            if (!chat_history_add(h, CHAT_USER, text.text, text.len)) {
                *is_out_of_memory = true;
                return false;
            }
        }
    }
    if (r->status != GGML_STATUS_SUCCESS || role == CHAT_N_ROLES || h->n == n) {
        return false;
    }
    h->messages[n].role = role;
    return true;
}

static bool messages_read(struct berth_json *r, struct chat_history *h, bool *is_out_of_memory) {
    struct berth_json_text key;
    bool has_messages = false;
    if (!berth_json_object(r)) {
        return false;
    }
    while (berth_json_key(r, &key)) {
        const bool is_list = berth_json_is(key, "messages");
        if (!(is_list ? berth_json_array(r) : berth_json_skip(r))) {
            return false;
        }
        while (is_list && berth_json_next(r)) {
            if (!message_read(r, h, is_out_of_memory)) {
                return false;
            }
        }
        has_messages = has_messages || is_list;
    }
    return berth_json_done(r) && has_messages;
}

bool chat_history_read(struct chat_history *h, const char *text, size_t size, const char *name, struct model_error *error) {
    struct chat_history read = {0};
    struct berth_json r;
    bool is_out_of_memory = false;
    berth_json_init(&r, text, size, name);
    const bool ok = messages_read(&r, &read, &is_out_of_memory);
    if (ok) {
        chat_history_fini(h);
        *h = read;
    } else {
        chat_history_fini(&read);
        if (is_out_of_memory) {
            model_fail(error, "%s: out of memory", name);
        } else if (r.status != GGML_STATUS_SUCCESS) {
            model_fail(error, "%s: %s", name, berth_last_error());
        } else {
            model_fail(error, "%s: not a conversation; expected {\"messages\": [{\"role\": ..., \"content\": ...}]}", name);
        }
    }
    berth_json_fini(&r);
    return ok;
}
