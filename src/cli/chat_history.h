// SPDX-License-Identifier: MIT
// chat_history.h: what was said in a conversation; saved as JSON ({"messages": [{"role": "user", "content": "..."}, ...]}).
#pragma once

#include "model/chat.h"

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
