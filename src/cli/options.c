// SPDX-License-Identifier: MIT
// options.c: parsing a command's options by its table (help.h), and operands that several commands have.

#include "cli/help.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define N_NAMES 96 // long names of a command with all its others
#define N_LETTERS 96

// ---- the table as getopt takes it ----

static struct option names[N_NAMES];
static char others[2048]; // texts of names that come from `also`
static char letters[N_LETTERS];

static int id_of(const struct cli_option *o) {
    return o->id != 0 ? o->id : o->letter;
}

static size_t add_name(size_t n, const char *name, const struct cli_option *o) {
    if (n + 3 < N_NAMES) { // --help, --quiet and the end come behind them
        names[n++] = (struct option){name, o->value != NULL ? required_argument : no_argument, NULL, id_of(o)};
    }
    return n;
}

static void table_make(const struct cli_help *help) {
    size_t n = 0, n_letters = 0, at = 0;
    letters[n_letters++] = ':';
    for (const struct cli_option *o = help->options; o->name != NULL || o->letter != 0; o++) {
        n = o->name != NULL ? add_name(n, o->name, o) : n;
        for (const char *p = o->also; p != NULL && *p != '\0';) {
            const size_t len = strcspn(p, " ");
            if (at + len + 1 < sizeof others) {
                memcpy(others + at, p, len);
                others[at + len] = '\0';
                n = add_name(n, others + at, o);
                at += len + 1;
            }
            p += len + (p[len] == ' ');
        }
        if (o->letter != 0 && n_letters + 4 < N_LETTERS) {
            letters[n_letters++] = o->letter;
            letters[n_letters] = ':';
            n_letters += o->value != NULL;
        }
    }
    letters[n_letters++] = 'h';
    letters[n_letters++] = 'q';
    letters[n_letters] = '\0';
    names[n++] = (struct option){"help", no_argument, NULL, 'h'};
    names[n++] = (struct option){"quiet", no_argument, NULL, 'q'};
    names[n] = (struct option){0};
}

// The row that answers c; NULL: none.
static const struct cli_option *row_find(const struct cli_help *help, int c) {
    for (const struct cli_option *o = help->options; o->name != NULL || o->letter != 0; o++) {
        if (id_of(o) == c) {
            return o;
        }
    }
    return NULL;
}

// What the command reads, as far as its table says.
static void inputs_add(const struct cli_help *help, const struct cli_option *row, int argc, char **argv) {
    if (row != NULL && row->use != CLI_NOT_READ) {
        cli_input_add(optarg, row->use);
    }
    for (int i = optind; row == NULL && i < argc && i - optind < help->n_read; i++) {
        cli_input_add(argv[i], CLI_READ);
    }
}

// llama.cpp writes -ngl, which getopt takes for three letters.
static void long_letters(int argc, char **argv) {
    static char layers[] = "--ngl";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-ngl") == 0) {
            argv[i] = layers;
        }
    }
}

// ---- parsing ----

// A word of short options that holds this one?
static bool has_short(const char *word, int c) {
    return word[0] == '-' && word[1] != '-' && strchr(word + 1, c) != NULL;
}

static int bad_option(const char *command, int argc, char **argv) {
    const char *last = argv[optind - 1]; // unless getopt is still within a word of several
    if (optopt > 0 && ((optind < argc && has_short(argv[optind], optopt)) || has_short(last, optopt))) {
        return cli_usage(command, "unknown option '-%c'", optopt);
    }
    return cli_usage(command, optopt > 0 ? "'%s': this option takes no value" : "unknown option '%s'", last);
}

int cli_option_next(const struct cli_help *help, int argc, char **argv) {
    static const struct cli_help *made;
    if (made != help) {
        table_make(help);
        long_letters(argc, argv);
        made = help;
        opterr = 0;
    }
    int c;
    while ((c = getopt_long(argc, argv, letters, names, NULL)) == 'q') {
        cli_quiet_set();
    }
    const struct cli_option *row = c > 0 ? row_find(help, c) : NULL;
    if (row != NULL && row->name == NULL) {
        cli_usage(help->command, "'-%c' has another meaning or none in other commands: it is %s here", c, row->what);
        return CLI_WRONG;
    }
    if (row != NULL || c == CLI_END) {
        inputs_add(help, row, argc, argv);
    }
    switch (c) {
        case 'h': cli_help_print(help, stdout); return CLI_SHOWN;
        case ':': cli_usage(help->command, "'%s' needs a value", argv[optind - 1]); return CLI_WRONG;
        case '?': bad_option(help->command, argc, argv); return CLI_WRONG;
        default: return c;
    }
}

int cli_option_json(const struct cli_help *help, int argc, char **argv, bool *json) {
    for (int c; (c = cli_option_next(help, argc, argv)) != CLI_END;) {
        if (c != CLI_JSON) {
            return c == CLI_SHOWN ? CLI_OK : CLI_USAGE;
        }
        *json = true;
    }
    return -1;
}

// ---- operands ----

int cli_no_arguments(const char *command, int argc, char **argv) {
    return optind < argc ? cli_usage(command, "'%s' is one argument too many", argv[optind]) : -1;
}

int cli_one_argument(const struct cli_help *help, int argc, char **argv, const char **text) {
    if (argc - optind != 1) {
        return cli_usage(help->command, "%s is wanted, %d are given", help->operands, argc - optind);
    }
    *text = argv[optind];
    return -1;
}

int cli_one_file(const char *command, int argc, char **argv, const char **path) {
    const int n = argc - optind + (*path != NULL);
    if (n == 0) {
        return cli_usage(command, "no file is given");
    }
    if (n > 1) {
        return cli_usage(command, "'%s' is one file too many", argv[argc - 1]);
    }
    *path = *path != NULL ? *path : argv[optind];
    return -1;
}
