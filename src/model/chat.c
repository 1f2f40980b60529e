// SPDX-License-Identifier: MIT
// chat.c: see chat.h.

#include "model/chat.h"

#include <string.h>

const struct chat_template *chat_template_find(const char *name) {
    for (const struct chat_template *t = chat_templates; t->name != NULL; t++) {
        if (strcmp(t->name, name) == 0) {
            return t;
        }
    }
    return NULL;
}

const struct chat_template *chat_template_recognise(const char *program) {
    for (const struct chat_template *t = chat_templates; t->name != NULL; t++) {
        bool is_it = t->marks[0] != NULL && (t->no_mark == NULL || strstr(program, t->no_mark) == NULL);
        for (int i = 0; is_it && i < 3 && t->marks[i] != NULL; i++) {
            is_it = strstr(program, t->marks[i]) != NULL;
        }
        if (is_it) {
            return t;
        }
    }
    return NULL;
}

// ---- writing ----

struct text {
    char *bytes;
    size_t n, cap;
    bool is_failed;
};

static void put(struct text *t, const char *bytes, size_t n) {
    if (t->n + n + 1 > t->cap && !t->is_failed) {
        const size_t cap = 2 * (t->n + n + 64);
        char *more = model_alloc_realloc(t->bytes, cap);
        t->is_failed = more == NULL;
        t->bytes = more != NULL ? more : t->bytes;
        t->cap = more != NULL ? cap : t->cap;
    }
    if (!t->is_failed) {
        memcpy(t->bytes + t->n, bytes, n);
        t->n += n;
        t->bytes[t->n] = '\0';
    }
}

static void put_text(struct text *t, const char *text) {
    if (text != NULL) {
        put(t, text, strlen(text));
    }
}

static void put_words(struct text *t, const struct chat_template *row, const struct chat_message *m) {
    static const char blanks[] = " \t\n\v\f\r";
    const char *words = m->text;
    size_t n = strlen(words);
    if ((row->trims >> m->role & 1) != 0) {
        const size_t skip = strspn(words, blanks);
        words += skip;
        n -= skip;
        while (n > 0 && strchr(blanks, words[n - 1]) != NULL) {
            n--;
        }
    }
    put(t, words, n);
}

static void put_system(struct text *t, const struct chat_template *row, const struct chat_message *m) {
    put_text(t, row->says[CHAT_SYSTEM].before);
    put_words(t, row, m);
    put_text(t, row->says[CHAT_SYSTEM].behind);
}

char *chat_format(const struct chat_template *row, const struct chat_message *messages, size_t n, bool ask) {
    struct text t = {0};
    const struct chat_message *system = NULL; // waits for the next user
    bool has_user = false;
    put_text(&t, row->begin != NULL ? row->begin : "");
    for (size_t i = 0; i < n; i++) {
        const struct chat_message *m = &messages[i];
        if (m->role == CHAT_SYSTEM && row->is_system_in_user) {
            system = m;
            continue;
        }
        if (m->role == CHAT_SYSTEM) {
            put_system(&t, row, m);
            continue;
        }
        put_text(&t, m->role == CHAT_USER && has_user ? row->again : NULL);
        has_user = has_user || m->role == CHAT_USER;
        put_text(&t, row->says[m->role].before);
        if (m->role == CHAT_USER && system != NULL) {
            put_system(&t, row, system);
            system = NULL;
        }
        put_words(&t, row, m);
        put_text(&t, row->says[m->role].behind);
    }
    if (ask) {
        put_text(&t, row->ask);
    }
    if (t.is_failed) {
        model_alloc_free(t.bytes);
        return NULL;
    }
    return t.bytes;
}
