// SPDX-License-Identifier: MIT
// chat.h: formats a conversation for a model. Each family of models is one row of a table (chat.c): the texts before and after the
// messages of each role. Model files contain a Jinja template for this. Berth does not run it, but recognises the family by strings
// in the template.
#pragma once

#include "model/model.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_N_ROLES };

struct chat_template {
    const char *name;     // as in llama.cpp
    const char *marks[3]; // strings; a Jinja template with all of them belongs to this family
    const char *begin;    // text at the start of a conversation
    struct {
        const char *before, *behind; // text before and after a message
    } says[CHAT_N_ROLES];            // by role
    const char *ask;                 // text after the last message, so that the model answers
    const char *again;               // text before every user message except the first
    unsigned trims;                  // bits 1 << role: white space around messages of this role is removed
    bool is_system_in_user;          // the system message, with the texts of says[CHAT_SYSTEM], is inside the first user message
};

struct chat_message {
    enum chat_role role;
    const char *text;
};

extern const struct chat_template chat_templates[]; // ends with a row whose name is NULL

// NULL: unknown name.
const struct chat_template *chat_template_find(const char *name);
// Returns the family of a Jinja template; NULL: unknown.
const struct chat_template *chat_template_recognise(const char *program);
// Returns the formatted conversation, with row->ask at the end if ask is set. The caller frees it with berth_free. NULL: out of
// memory.
char *chat_format(const struct chat_template *row, const struct chat_message *messages, size_t n, bool ask);
