// SPDX-License-Identifier: MIT
// conversation.h: a conversation with a model. It stays in the model's cache, so each answer processes only new tokens. When the
// context is full, the oldest messages are dropped. A function that fails returns false and writes the cause into a model_error.
#pragma once

#include "generate/generate.h"
#include "model/chat.h"

// ---- the messages (history.c) ----

struct chat_history {
    struct chat_message *messages; // the history owns the texts
    size_t n, cap;
};

// Names of the roles: "system", "user", "assistant".
extern const char *const chat_role_names[CHAT_N_ROLES];
// Returns CHAT_N_ROLES if no role has this name.
enum chat_role chat_role_find(const char *name, size_t size);

// Appends a copy of the text. False: out of memory.
bool chat_history_add(struct chat_history *h, enum chat_role role, const char *text, size_t size);
void chat_history_drop(struct chat_history *h, size_t i);
void chat_history_fini(struct chat_history *h);
// Writes the history as JSON. The caller checks the file for errors.
void chat_history_write(const struct chat_history *h, FILE *file);
// Replaces the history by that of chat_history_write. Accepts any bytes. `name` starts the message of an error. On failure the
// history is unchanged.
bool chat_history_read(struct chat_history *h, const char *text, size_t size, const char *name, struct model_error *error);

// ---- a conversation (conversation.c) ----

struct conversation {
    const struct chat_template *template;
    struct chat_history history;
    bool is_cached;              // the cache contains the history up to the end of the last answer's text
    struct generate_result made; // the last answer
    int64_t n_read, read_us;     // tokens and time of prefill in all turns
    int64_t n_made, made_us;     // tokens and time of decode in all turns
};

// Processes the user's last message, generates at most n_max tokens (-1: no limit) of the answer, and appends it to the history. If
// g->stop ends the call, it returns true, and the incomplete answer is appended. On failure the user's message is dropped.
bool conversation_answer(struct conversation *c, const struct generator *g, int64_t n_max, struct model_error *error);
