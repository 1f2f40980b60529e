// SPDX-License-Identifier: MIT
// chat.h: formats a conversation as the text that a model expects. Model files describe this format by a Jinja template. Berth
// does not run the template. It searches the template for known strings. They identify a family of templates, which is a row of
// the table in chat.c.
#pragma once

#include "model/model.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_N_ROLES };

// How a family of templates writes tools: functions that the model may call. A call is {"name": ..., "arguments": {...}}.
struct chat_tools {
    const char *list_begin, *list_end;     // before and after the functions, which end the system message; each begins a line
    const char *call_begin, *call_end;     // lines before and after a call
    const char *result_begin, *result_end; // lines before and after the result of a call, in a user message
};

struct chat_template {
    const char *name;     // as in llama.cpp, whose templates have no tools
    const char *marks[3]; // strings that identify the family's Jinja templates
    const char *begin;    // text at the start of a conversation
    struct {
        const char *before, *after; // text before and after a message
    } texts[CHAT_N_ROLES];          // by role
    const char *answer_begin;       // text after the last message, before the answer
    const char *before_next_user;   // text before every user message except the first
    unsigned trims;                 // bits 1 << role: white space around messages is removed
    bool is_system_in_user;         // a system message is formatted into the next user message
    const struct chat_tools *tools; // NULL: the family has no tools, or Berth does not know their format
};

struct chat_message {
    enum chat_role role;
    const char *text;
};

// A message of a conversation with tools.
struct chat_turn {
    enum chat_role role; // CHAT_USER if is_result
    const char *text;
    bool is_result;     // the text is the result of a call
    const char **calls; // [n_calls] calls of CHAT_ASSISTANT, as JSON
    size_t n_calls;
};

extern const struct chat_template chat_templates[]; // ends with a row whose name is NULL

// NULL: unknown name.
const struct chat_template *chat_template_find(const char *name);
// Returns the family of a Jinja template; NULL: unknown.
const struct chat_template *chat_template_recognise(const char *jinja);
// Returns the template `name`. name NULL: the family of the template in a model file. NULL: *error holds the cause.
const struct chat_template *chat_template_of(const struct gguf_context *meta, const char *name, struct model_error *error);
// Returns the formatted conversation. If is_answer_next is set, the text ends with row->answer_begin. The caller frees the text
// with berth_free. NULL: out of memory.
char *chat_format(const struct chat_template *row, const struct chat_message *messages, size_t n, bool is_answer_next);
// Returns the formatted conversation with an answer next. functions: [n_functions] their descriptions as JSON. If row->tools is NULL,
// there must be no functions, calls and results. The caller frees the text with berth_free. NULL: out of memory.
struct chat_conversation {
    const struct chat_turn *turns;
    size_t n_turns;
    const char **functions;
    size_t n_functions;
};
char *chat_format_tools(const struct chat_template *row, const struct chat_conversation *c);
