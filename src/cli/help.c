// SPDX-License-Identifier: MIT
// help.c: prints a command's table (help.h) as text of 80 columns and as a part of the man page.

#include "cli/help.h"
#include "base/base.h"
#include "base/min.h"

#include <ctype.h>
#include <string.h>

#define WIDTH 79
#define INDENT 22 // column of the descriptions

// Options that every command has.
static const struct cli_option common_rows[] = {
    {.letter = 'q', .name = "quiet", .what = "print only errors to standard error: no warnings, no progress, no statistics"},
    {.letter = 'h', .name = "help", .what = "print this help"},
};
#define N_COMMON (sizeof common_rows / sizeof *common_rows)

// ---- text ----

// Prints n bytes of the text, wrapped at WIDTH. at: current column. indent: column at which further lines begin.
static void text_wrap(const char *text, size_t n, int at, int indent, FILE *file) {
    for (size_t i = 0; i < n;) {
        const size_t len = min_size(strcspn(text + i, " "), n - i);
        if (at > indent && at + 1 + (int) len > WIDTH) {
            fprintf(file, "\n%*s", indent, "");
            at = indent;
        } else if (i > 0) {
            fputc(' ', file);
            at++;
        }
        fwrite(text + i, 1, len, file);
        at += (int) len;
        i += len;
        i += i < n;
    }
    fputc('\n', file);
}

static void print_about(const char *text, FILE *file) {
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n");
        if (*text == ' ') {
            fprintf(file, "%.*s\n", (int) n, text);
        } else {
            text_wrap(text, n, 0, 0, file);
        }
        text += n + (text[n] == '\n');
    }
}

// Writes the description of an option, with its default and its other names. before_also precedes the first other name, `between`
// each further name. False: out of memory.
static bool option_text(const struct cli_option *o, const char *before_also, const char *between, struct berth_stream *text) {
    if (!berth_stream_open(text)) {
        return false;
    }
    fputs(o->what, text->file);
    if (o->preset != NULL) {
        fprintf(text->file, " (default %s)", o->preset);
    }
    const char *before = before_also;
    for (const char *p = o->also; p != NULL && *p != '\0'; before = between) {
        const size_t n = strcspn(p, " ");
        fprintf(text->file, "%s%.*s", before, (int) n, p);
        p += n + (p[n] == ' ');
    }
    return berth_stream_close(text);
}

static void print_option(const struct cli_option *o, FILE *file) {
    struct berth_stream text;
    char letter[] = {'-', o->letter, ',', '\0'};
    int at = fprintf(file, "  %3s --%s%s%s", o->letter != 0 ? letter : "", o->name, o->value != NULL ? " " : "",
        o->value != NULL ? o->value : "");
    if (at + 2 > INDENT) {
        fputc('\n', file);
        at = 0;
    }
    fprintf(file, "%*s", INDENT - at, "");
    const bool ok = option_text(o, "; also --", ", --", &text);
    text_wrap(ok ? text.text : o->what, ok ? text.size : strlen(o->what), INDENT, INDENT, file);
    berth_stream_fini(&text);
}

void cli_help_print(const struct cli_help *help, FILE *file) {
    const char *space = *help->operands != '\0' ? " " : "";
    fprintf(file, "Usage: berth %s [OPTION]...%s%s\n\n", help->command, space, help->operands);
    print_about(help->about, file);
    fputc('\n', file);
    for (const struct cli_option *o = help->options; o->name != NULL; o++) {
        print_option(o, file);
    }
    for (size_t i = 0; i < N_COMMON; i++) {
        print_option(&common_rows[i], file);
    }
    fputs("\nExamples:\n", file);
    for (size_t i = 0; i < sizeof help->examples / sizeof *help->examples && help->examples[i].line != NULL; i++) {
        const char *what = help->examples[i].what;
        fprintf(file, "  %s%s\n    berth %s\n", what, berth_ends_with(what, "?") ? "" : ":", help->examples[i].line);
    }
    char exits[256];
    snprintf(exits, sizeof exits, "Exit codes: 0 success,%s%s%s 2 wrong usage, 3 failure%s%s, 130 stopped by Ctrl-C.",
        help->negative != NULL ? " 1 " : "", help->negative != NULL ? help->negative : "", help->negative != NULL ? "," : "",
        help->further != NULL ? ", " : "", help->further != NULL ? help->further : "");
    fputc('\n', file);
    text_wrap(exits, strlen(exits), 0, 0, file);
}

// ---- lists of commands ----

const char *cli_name(const struct cli_command *command) {
    const char *blank = strrchr(command->help->command, ' ');
    return blank != NULL ? blank + 1 : command->help->command;
}

const struct cli_command *cli_find(const struct cli_command *list, const char *name) {
    for (const struct cli_command *c = list; c->help != NULL; c++) {
        if (strcmp(name, cli_name(c)) == 0) {
            return c;
        }
    }
    return NULL;
}

void cli_list_print(const struct cli_command *list, FILE *file) {
    for (const struct cli_command *c = list; c->help != NULL; c++) {
        fprintf(file, "  %-10s %s\n", cli_name(c), c->help->what);
    }
}

// ---- man page ----

// Prints n bytes of a word. at_start: the word begins a line; then a word that looks like a macro of mdoc is escaped.
static void man_word(const char *word, size_t n, bool at_start, FILE *file) {
    fputs(at_start && (*word == '.' || *word == '\'') ? "\\&" : "", file);
    for (size_t i = 0; i < n; i++) {
        fputs(word[i] == '\\' ? "\\e" : (char[]){word[i], '\0'}, file);
    }
}

// Prints a text for mdoc, which needs one sentence per line.
static void man_text(const char *text, FILE *file) {
    size_t at = 0;
    for (const char *p = text; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        if (n == 0) {
            p++;
            continue;
        }
        const bool fits = at + 1 + n < WIDTH;
        if (at > 0) {
            fputc(fits ? ' ' : '\n', file);
        }
        man_word(p, n, at == 0 || !fits, file);
        at = at > 0 && fits ? at + 1 + n : n;
        const bool is_sentence_end = (p[n - 1] == '.' || p[n - 1] == '?') && p[n] == ' ' && isupper((unsigned char) p[n + 1]);
        p += n + (p[n] == ' ');
        if (is_sentence_end) {
            fputc('\n', file);
            at = 0;
        }
    }
    const size_t n = strlen(text);
    fputs(n > 0 && (text[n - 1] == '.' || text[n - 1] == '?' || text[n - 1] == ':') ? "\n" : ".\n", file);
}

static void man_about(const char *text, FILE *file) {
    char line[1024];
    bool in_list = false;
    for (; *text != '\0';) {
        const size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int) n, text);
        if ((*text == ' ') != in_list) {
            fputs(in_list ? ".Ed\n.Pp\n" : ".Bd -literal\n", file);
            in_list = !in_list;
        }
        if (*text == ' ') {
            fprintf(file, "%s\n", line);
        } else if (n > 0) {
            man_text(line, file);
        }
        text += n + (text[n] == '\n');
    }
    fputs(in_list ? ".Ed\n" : "", file);
}

static void man_option(const struct cli_option *o, FILE *file) {
    fputs(".It", file);
    if (o->letter != 0) {
        fprintf(file, " Fl %c ,", o->letter);
    }
    fprintf(file, " Fl Fl %s", o->name);
    if (o->value != NULL) {
        fputs(" Ar ", file);
        for (const char *p = o->value; *p != '\0'; p++) {
            fputc(p[1] == '\0' && p == o->value ? *p : tolower((unsigned char) *p), file);
        }
    }
    fputc('\n', file);
    struct berth_stream text;
    const bool ok = option_text(o, ". Also: ", " ", &text);
    if (ok) {
        text.text[0] = (char) toupper((unsigned char) text.text[0]);
    }
    man_text(ok ? text.text : o->what, file);
    berth_stream_fini(&text);
}

void cli_help_man(const struct cli_help *help, FILE *file) {
    fprintf(file, ".Ss %s\n.Nm\n.Cm %s\n.Op Ar option ...\n", help->command, help->command);
    if (*help->operands != '\0') {
        fprintf(file, ".Li %s%s\n", help->operands[0] == '-' ? "\\&" : "", help->operands);
    }
    fputs(".Pp\n", file);
    man_about(help->about, file);
    fputs(".Bl -tag -width Ds\n", file);
    for (const struct cli_option *o = help->options; o->name != NULL; o++) {
        man_option(o, file);
    }
    for (size_t i = 0; i < N_COMMON; i++) {
        man_option(&common_rows[i], file);
    }
    fputs(".El\n", file);
    char exits[256];
    snprintf(exits, sizeof exits, "Further exit codes: %s%s%s%s", help->negative != NULL ? "1 " : "",
        help->negative != NULL ? help->negative : "", help->negative != NULL && help->further != NULL ? ", " : "",
        help->further != NULL ? help->further : "");
    if (help->negative != NULL || help->further != NULL) {
        fputs(".Pp\n", file);
        man_text(exits, file);
    }
    for (size_t i = 0; i < sizeof help->examples / sizeof *help->examples && help->examples[i].line != NULL; i++) {
        const char *what = help->examples[i].what;
        fprintf(file, ".Pp\n%s%s\n.Dl $ berth %s\n", what, berth_ends_with(what, "?") ? "" : ":", help->examples[i].line);
    }
}
