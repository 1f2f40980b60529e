// SPDX-License-Identifier: MIT
// options.c: command lines that several commands have: --json and --help alone, and one file behind the options.

#include "cli/cli.h"

#include <getopt.h>

int cli_options_json(const char *command, const char *usage, int argc, char **argv, bool *json) {
    static const struct option table[] = {{"json", no_argument, NULL, 'J'}, {"help", no_argument, NULL, 'h'}, {0}};
    opterr                             = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", table, NULL)) != -1;) {
        switch (c) {
            case 'J': *json = true; break;
            case 'h': fputs(usage, stdout); return CLI_OK;
            default: return cli_usage(command, "unknown option '%s'", argv[optind - 1]);
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
