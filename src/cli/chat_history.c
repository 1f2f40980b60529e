// SPDX-License-Identifier: MIT
// chat_history.c: see chat.h.

#include "base/json.h"
#include "cli/chat.h"

#include <string.h>

static const char *const role_names[CHAT_N_ROLES] = {"system", "user", "assistant"};

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

bool chat_history_save(const struct chat_history *h, const char *path) {
    FILE *file = cli_open(path);
    if (file == NULL) {
        return false;
    }
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_begin(&w, "messages", '[');
    for (size_t i = 0; i < h->n; i++) {
        berth_json_line(&w, 2);
        berth_json_printf(&w, "{'role': %s, 'content': %s}", role_names[h->messages[i].role], h->messages[i].text);
    }
    fputs("\n]}\n", file);
    return cli_close(file, path, !ferror(file)) == CLI_OK;
}

// One {"role": ..., "content": ...}, in any order.
static bool message_read(struct berth_json *r, struct chat_history *h) {
    struct berth_json_text key, text;
    int role = -1;
    const size_t n = h->n;
    if (!berth_json_object(r)) {
        return false;
    }
    while (berth_json_key(r, &key)) {
        const bool is_role = berth_json_is(key, "role"), is_content = berth_json_is(key, "content");
        if (!(is_role || is_content ? berth_json_string(r, &text) : berth_json_skip(r))) {
            return false;
        }
        for (int i = 0; is_role && i < CHAT_N_ROLES; i++) {
            if (berth_json_is(text, role_names[i])) {
                role = i;
            }
        }
        if (is_content && h->n > n) { // the last one counts
            chat_history_drop(h, n);
        }
        if (is_content && !chat_history_add(h, CHAT_USER, text.text, text.len)) {
            return false;
        }
    }
    if (r->status != GGML_STATUS_SUCCESS || role < 0 || h->n == n) {
        return false;
    }
    h->messages[n].role = (enum chat_role) role;
    return true;
}

static bool messages_read(struct berth_json *r, struct chat_history *h) {
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
            if (!message_read(r, h)) {
                return false;
            }
        }
        has_messages = has_messages || is_list;
    }
    return berth_json_done(r) && has_messages;
}

bool chat_history_load(struct chat_history *h, const char *path) {
    struct chat_history read = {0};
    struct berth_json r;
    size_t size = 0;
    char *text = cli_read_text(path, &size);
    if (text == NULL) {
        return false;
    }
    berth_json_init(&r, text, size, path);
    const bool ok = messages_read(&r, &read);
    if (!ok) {
        cli_fail(CLI_FAILURE, "%s: %s", path,
            r.status != GGML_STATUS_SUCCESS ? berth_last_error()
                                            : "no conversation: {\"messages\": [{\"role\": ..., \"content\": ...}]}");
    }
    berth_json_fini(&r);
    berth_free(text);
    if (ok) {
        chat_history_fini(h);
        *h = read;
    } else {
        chat_history_fini(&read);
    }
    return ok;
}
