// SPDX-License-Identifier: MIT
// chat_history.c: see chat_history.h.

#include "cli/chat_history.h"

#include "base/json.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static const char *const role_names[CHAT_N_ROLES] = {"system", "user", "assistant"};

bool chat_history_add(struct chat_history *h, enum chat_role role, const char *text, size_t size) {
    if (h->n == h->cap) {
        const size_t cap = 2 * h->cap + 8;
        struct chat_message *messages = realloc(h->messages, cap * sizeof *messages);
        if (messages == NULL) {
            return false;
        }
        h->messages = messages;
        h->cap = cap;
    }
    char *copy = malloc(size + 1);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    h->messages[h->n++] = (struct chat_message){role, copy};
    return true;
}

void chat_history_drop(struct chat_history *h, size_t i) {
    free((char *) h->messages[i].text);
    h->n--;
    memmove(h->messages + i, h->messages + i + 1, (h->n - i) * sizeof *h->messages);
}

void chat_history_fini(struct chat_history *h) {
    while (h->n > 0) {
        chat_history_drop(h, h->n - 1);
    }
    free(h->messages);
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

// One {"role": ..., "content": ...}
static bool message_read(struct berth_json *r, struct chat_history *h) {
    struct berth_json_text key, text;
    int role = -1;
    bool has_text = false;
    size_t size = 0;
    char *words = NULL;
    bool ok = berth_json_object(r);
    while (ok && berth_json_key(r, &key)) {
        const bool is_role = berth_json_is(key, "role"), is_content = berth_json_is(key, "content");
        ok = is_role || is_content ? berth_json_string(r, &text) : berth_json_skip(r);
        for (int i = 0; ok && is_role && i < CHAT_N_ROLES; i++) {
            if (berth_json_is(text, role_names[i])) {
                role = i;
            }
        }
        if (ok && is_content) {
            free(words);
            words = malloc(text.len + 1);
            has_text = words != NULL;
            size = has_text ? text.len : 0;
            memcpy(has_text ? words : (char *) "", text.text, size);
        }
    }
    ok = ok && r->status == GGML_STATUS_SUCCESS && role >= 0 && has_text &&
         chat_history_add(h, (enum chat_role) role, words, size);
    free(words);
    return ok;
}

bool chat_history_load(struct chat_history *h, const char *path) {
    struct chat_history read = {0};
    struct berth_json r;
    struct berth_json_text key;
    size_t size = 0;
    char *text = cli_read_text(path, &size);
    if (text == NULL) {
        return false;
    }
    berth_json_init(&r, text, size, path);
    bool ok = berth_json_object(&r), has_messages = false;
    while (ok && berth_json_key(&r, &key)) {
        if (!berth_json_is(key, "messages")) {
            ok = berth_json_skip(&r);
            continue;
        }
        has_messages = true;
        ok = berth_json_array(&r);
        while (ok && berth_json_next(&r)) {
            ok = message_read(&r, &read);
        }
    }
    ok = ok && r.status == GGML_STATUS_SUCCESS && has_messages && berth_json_done(&r);
    if (!ok) {
        cli_fail(CLI_FAILURE, "%s: %s", path,
            r.status != GGML_STATUS_SUCCESS ? berth_last_error()
                                            : "no conversation: {\"messages\": [{\"role\": ..., \"content\": ...}]}");
    }
    berth_json_fini(&r);
    free(text);
    if (ok) {
        chat_history_fini(h);
        *h = read;
    } else {
        chat_history_fini(&read);
    }
    return ok;
}
