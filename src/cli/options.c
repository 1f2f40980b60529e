// SPDX-License-Identifier: MIT
// options.c: command lines that several commands have: --json and --help alone, and one file behind the options.

#include "cli/cli.h"

#include <getopt.h>
#include <string.h>

// A word of short options that holds this one?
static bool has_short(const char *word, int c) {
    return word[0] == '-' && word[1] != '-' && strchr(word + 1, c) != NULL;
}

int cli_bad_option(const char *command, int argc, char **argv) {
    const char *last = argv[optind - 1]; // unless getopt is still within a word of several
    if (optopt > 0 && ((optind < argc && has_short(argv[optind], optopt)) || has_short(last, optopt))) {
        return cli_usage(command, "unknown option '-%c'", optopt);
    }
    return cli_usage(command, optopt > 0 ? "'%s': this option takes no value" : "unknown option '%s'", last);
}

int cli_options_json(const char *command, const char *usage, int argc, char **argv, bool *json) {
    static const struct option table[] = {{"json", no_argument, NULL, 'J'}, {"help", no_argument, NULL, 'h'}, {0}};
    opterr                             = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", table, NULL)) != -1;) {
        switch (c) {
            case 'J': *json = true; break;
            case 'h': fputs(usage, stdout); return CLI_OK;
            default: return cli_bad_option(command, argc, argv);
        }
    }
    return -1;
}

int cli_no_arguments(const char *command, int argc, char **argv) {
    return optind < argc ? cli_usage(command, "'%s' is one argument too many", argv[optind]) : -1;
}

int cli_one_file(const char *command, int argc, char **argv, const char **path) {
    if (optind == argc) {
        return cli_usage(command, "no file is given");
    }
    if (optind + 1 < argc) {
        return cli_usage(command, "'%s' is one file too many", argv[optind + 1]);
    }
    *path = argv[optind];
    return -1;
}
