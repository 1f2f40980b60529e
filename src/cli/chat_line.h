// SPDX-License-Identifier: MIT
// chat_line.h: lines that somebody types, with editing and a history where libedit or readline is installed.
#pragma once

#include "cli/cli.h"

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
