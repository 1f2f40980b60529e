// SPDX-License-Identifier: MIT
// chat_line.c: see chat.h. The library is looked for when it is needed, since few programs of a machine need it: libedit
// first.

#include "cli/chat.h"
#include "cli/models.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_END "\n(Ctrl-D or /quit ends)\n"

void chat_line_open(struct chat_line *l) {
    static const char *const names[] = {"libedit.so.2", "libreadline.so.8", "libreadline.so.7"};
    const char *term = getenv("TERM");
    *l = (struct chat_line){.is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    const bool is_wanted = l->is_terminal && term != NULL && strcmp(term, "dumb") != 0;
    for (size_t i = 0; is_wanted && l->library == NULL && i < sizeof names / sizeof *names; i++) {
        l->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (l->library != NULL) {
        *(void **) &l->read = dlsym(l->library, "readline");
        *(void **) &l->remember = dlsym(l->library, "add_history");
    }
}

void chat_line_close(struct chat_line *l) {
    berth_free(l->text); // the library stays: it has a handler for the end of the program
}

static bool line_append(struct chat_line *l, const char *text, size_t n) {
    if (!berth_grow((void **) &l->text, &l->cap, l->n + n + 1, 1)) {
        return false;
    }
    memcpy(l->text + l->n, text, n);
    l->n += n;
    l->text[l->n] = '\0';
    return true;
}

// A line of standard input, its end included; false: there is none.
static bool plain_line(struct chat_line *l) {
    int c;
    bool has_any = false;
    while ((c = getchar()) != '\n') {
        if (c == EOF && errno == EINTR && l->is_terminal) { // Ctrl-C while nothing is said
            clearerr(stdin);
            errno = 0;
            cli_interrupt_clear();
            fputs(NO_END "> ", stdout);
            fflush(stdout);
            continue;
        }
        const char byte = (char) c;
        if (c == EOF || !line_append(l, &byte, 1)) {
            return has_any;
        }
        has_any = true;
    }
    return line_append(l, "", 0);
}

static bool one_line(struct chat_line *l, const char *prompt) {
    if (l->read == NULL) {
        if (l->is_terminal) {
            printf("%s%s%s", cli_colour(stdout, CLI_GREEN), prompt, cli_colour(stdout, CLI_RESET));
            fflush(stdout);
        }
        errno = 0;
        return plain_line(l);
    }
    char *text = l->read(prompt);
    while (text == NULL && cli_is_interrupted(NULL)) { // Ctrl-C while nothing is said
        cli_interrupt_clear();
        fputs(NO_END, stdout);
        fflush(stdout);
        text = l->read(prompt);
    }
    const bool ok = text != NULL && line_append(l, text, strlen(text));
    if (ok && text[0] != '\0' && l->remember != NULL) {
        l->remember(text);
    }
    free(text);
    cli_interrupt_clear();
    return ok;
}

const char *chat_line_next(struct chat_line *l) {
    l->n = 0;
    bool is_first = true;
    do {
        if (!is_first) {
            l->text[l->n - 1] = '\n';
        }
        if (!one_line(l, is_first ? "> " : ". ")) {
            break;
        }
        is_first = false;
    } while (l->n > 0 && l->text[l->n - 1] == '\\');
    return is_first ? NULL : l->text;
}
