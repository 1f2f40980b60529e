// SPDX-License-Identifier: MIT
// client_windows.c: takes the place of client.c on Windows: `berth client` reads libraries in the format of Linux.

#include "cli/help.h"

static const struct cli_option option_rows[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object"),
    {0},
};

const struct cli_help cli_client_help = {
    .command = "client",
    .what = "check whether a client of ggml, such as llama.cpp, runs on Berth (not on Windows)",
    .operands = "FOLDER",
    .takes = "/",
    .n_operands = {1, 1, 0},
    .about = "Is not available on Windows, which itself refuses to load a client that calls functions which Berth lacks.",
    .options = option_rows,
    .size = sizeof(bool),
    .examples = {{"Does it run on Berth?", "client node_modules/@node-llama-cpp/win-x64/bins/win-x64"}},
};

int cli_client(const struct cli_args *args) {
    return cli_fail(CLI_FAILURE,
        "%s: 'berth client' is not available on Windows: load the client; Windows refuses it if Berth lacks a function",
        args->operands[0]);
}
