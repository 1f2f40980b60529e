// SPDX-License-Identifier: MIT
// chat.h: how a conversation is spelled out for a model. A family of models is one row of a table (chat.c): what stands
// before and behind what each says. Files carry a program for it (Jinja); it is not run, but the row it belongs to is recognised
// by its words.
#pragma once

#include "model/model.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_N_ROLES };

struct chat_template {
    const char *name;     // as llama.cpp calls it
    const char *marks[3]; // a file's program that has all of these is this family's
    const char *begin;    // of every conversation
    struct {
        const char *before, *behind;
    } says[CHAT_N_ROLES];
    const char *ask;        // what makes the model answer
    const char *again;      // before every user's message but the first
    unsigned trims;         // bits 1 << role: blanks around what it says go
    bool is_system_in_user; // the system's words, as says[CHAT_SYSTEM] has them, stand inside the first user's message
};

struct chat_message {
    enum chat_role role;
    const char *text;
};

extern const struct chat_template chat_templates[]; // until one without a name

// NULL: none of this name.
const struct chat_template *chat_template_find(const char *name);
// The family that a file's program belongs to; NULL: none that is known.
const struct chat_template *chat_template_recognise(const char *program);
// The conversation, and with `ask` what makes the model answer; to be freed with berth_free. NULL: out of memory.
char *chat_format(const struct chat_template *row, const struct chat_message *messages, size_t n, bool ask);
