// SPDX-License-Identifier: MIT
// chat.h: what the parts of `berth chat` share.
#pragma once

#include "cli/cli.h"
#include "model/chat.h"

// ---- chat_history.c: what was said; saved as JSON ({"messages": [{"role": "user", "content": "..."}, ...]}) ----

struct chat_history {
    struct chat_message *messages; // texts are the history's own
    size_t n, cap;
};

// False: out of memory.
bool chat_history_add(struct chat_history *h, enum chat_role role, const char *text, size_t size);
// Forgets message i.
void chat_history_drop(struct chat_history *h, size_t i);
void chat_history_fini(struct chat_history *h);
// Both after a message if they fail; then the history is as it was.
bool chat_history_save(const struct chat_history *h, const char *path);
bool chat_history_load(struct chat_history *h, const char *path);

// ---- chat_line.c: lines that somebody types, with editing and a history where libedit or readline is installed ----

struct chat_line {
    bool is_terminal;
    void *library;
    char *(*read)(const char *prompt); // of the library, NULL: none
    void (*remember)(const char *line);
    char *text;
    size_t n, cap;
};

void chat_line_open(struct chat_line *line);
// The next line without its end, those joined that a backslash ends; NULL: there is none, or no memory. Valid until the next
// call.
const char *chat_line_next(struct chat_line *line);
void chat_line_close(struct chat_line *line);
