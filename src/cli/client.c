// SPDX-License-Identifier: MIT
// client.c: `berth client FOLDER` checks whether libraries that were built for ggml, such as llama.cpp's, run on this Berth. A
// client is such a library (client/folder.h).

#include "client/folder.h"

#include "base/json.h"
#include "cli/help.h"

static const struct cli_option option_rows[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object: release, tested, libraries with missing functions, works"),
    {0},
};

const struct cli_help cli_client_help = {
    .command = "client",
    .what = "check whether a client of ggml, such as llama.cpp, runs on Berth",
    .operands = "FOLDER",
    .takes = "/",
    .n_operands = {1, 1, 0},
    .about =
        "Checks whether the libraries of a folder that call ggml's functions, such as llama.cpp's, run on this Berth. Prints "
        "their release, the functions that they import, the functions that Berth lacks, and the libraries of ggml that they "
        "need. Reads the files whose names end in '.so' or '.node' or contain '.so.'. Runs none of their code. Not available on "
        "Windows, which itself refuses to load a client that calls functions which Berth lacks.",
    .options = option_rows,
    .size = sizeof(bool),
    .negative = "a function or library is missing",
    .examples = {{"Does it run on Berth?", "client node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"},
        {"For scripts", "client --json /opt/llama/lib"}},
};

// ---- as text ----

static void print_names(const struct client_names *names) {
    for (size_t i = 0; i < names->n; i++) {
        putchar(' ');
        cli_text(stdout, 0, names->items[i]);
    }
}

static void print_release(const struct client_folder *folder) {
    const char *ggml = client_release_ggml(folder->release);
    printf("%s%-10s%s ", cli_colour(stdout, CLI_BOLD), "client", cli_colour(stdout, CLI_RESET));
    if (ggml != NULL) {
        printf("llama.cpp %s for ggml %s: tested with Berth\n", folder->release, ggml);
    } else if (folder->release[0] != '\0') {
        fputs("llama.cpp ", stdout);
        cli_text(stdout, 0, folder->release);
        puts(": not tested with Berth");
    } else {
        puts("unknown: no library name contains a release");
    }
    printf("%s%-10s%s %s for ggml %s\n\n", cli_colour(stdout, CLI_BOLD), "Berth", cli_colour(stdout, CLI_RESET), berth_version(),
        ggml_version());
}

static void print_libraries(const struct client_folder *folder) {
    printf("  %-28s %9s %8s  %s\n", "library", "functions", "missing", "depends on");
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        fputs("  ", stdout);
        cli_text(stdout, 28, library->name);
        if (library->role == CLIENT_CALLER) {
            printf(" %9zu %8zu ", library->n_imports, library->absent.n);
            print_names(&library->needs);
        } else {
            printf("  %s", library->is_berth ? "Berth's" : "replaced by Berth's");
        }
        putchar('\n');
    }
    for (size_t i = 0; i < folder->unreadable.n; i++) {
        fputs("  ", stdout);
        cli_text(stdout, 0, folder->unreadable.items[i]);
        putchar('\n');
    }
    putchar('\n');
}

static void print_missing(const struct client_folder *folder) {
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        if (library->role == CLIENT_CALLER && library->absent.n > 0) {
            cli_text(stdout, 0, library->name);
            printf(" calls functions that Berth lacks, and ends at the first such call:");
            print_names(&library->absent);
            putchar('\n');
        }
    }
    if (folder->missing_libraries.n > 0) {
        printf("Berth has no library with the name:");
        print_names(&folder->missing_libraries);
        printf(". Without it, ggml's library is loaded, or the program cannot start. To fix it, create a link with each of these "
               "names to Berth's libggml.so, libggml-base.so or libggml-cpu.so%s%s.\n",
            folder->place[0] != '\0' ? " in " : "", folder->place);
    }
    if (folder->has_rpath) {
        puts("A library sets RPATH, which takes precedence over LD_LIBRARY_PATH: copy Berth's files into its folders.");
    }
}

static void print_answer(const struct client_folder *folder) {
    const bool works = client_folder_works(folder);
    printf("%s%s%s: ", cli_colour(stdout, works ? CLI_GREEN : CLI_RED), works ? "works" : "would fail",
        cli_colour(stdout, CLI_RESET));
    if (!works) {
        printf("%zu functions and %zu libraries are missing\n", folder->n_missing, folder->missing_libraries.n);
    } else if (folder->n_callers == 0) {
        puts("the folder has no client, only libraries of ggml");
    } else if (folder->is_berth) {
        puts("Berth has already replaced ggml");
    } else if (folder->place[0] != '\0') {
        fputs("LD_LIBRARY_PATH=", stdout);
        cli_text(stdout, 0, folder->place);
        puts(" replaces ggml by Berth");
    } else {
        puts("every function is available");
    }
}

// ---- as JSON ----

static void json_names(struct berth_json_writer *w, const char *key, const struct client_names *names) {
    berth_json_begin(w, key, '[');
    for (size_t i = 0; i < names->n; i++) {
        berth_json_printf(w, "%s", names->items[i]);
    }
    berth_json_end(w);
}

// JSON writes NULL as null.
static const char *text_or_null(const char *text) {
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static void json_print(const struct client_folder *folder) {
    static const char *const roles[] = {"client", "cpu", "base"};
    const char *ggml = client_release_ggml(folder->release);
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'folder': %s, 'release': %s, 'release_ggml': %s, 'tested': %c, 'berth': %s, 'ggml': %s, 'place': %s",
        text_or_null(folder->path), text_or_null(folder->release), ggml, ggml != NULL, berth_version(), ggml_version(),
        text_or_null(folder->place));
    berth_json_begin(&w, "libraries", '[');
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        berth_json_line(&w, 2);
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'name': %s, 'role': %s, 'is_berth': %c, 'has_rpath': %c, 'functions': %zu",
            text_or_null(library->name), roles[library->role], library->is_berth, library->has_rpath, library->n_imports);
        json_names(&w, "asks_for", &library->needs);
        json_names(&w, "missing", &library->absent);
        berth_json_end(&w);
    }
    berth_json_end(&w);
    berth_json_line(&w, 2);
    json_names(&w, "unreadable", &folder->unreadable);
    json_names(&w, "missing_libraries", &folder->missing_libraries);
    berth_json_printf(&w, "'missing_functions': %zu, 'works': %c", folder->n_missing, client_folder_works(folder));
    berth_json_end(&w);
    putchar('\n');
}

int cli_client(const struct cli_args *args) {
    int code;
    const char *path = args->operands[0];
    struct client_folder folder;
    if (!client_folder_read(&folder, path, NULL)) {
        code = cli_fail(CLI_FAILURE, "%s", folder.why);
    } else if (folder.n == 0) {
        code = cli_fail(CLI_FAILURE, "%s: no library in this folder uses ggml's functions%s%s", path,
            folder.unreadable.n > 0 ? "; " : "", folder.unreadable.n > 0 ? folder.unreadable.items[0] : "");
    } else {
        code = client_folder_works(&folder) ? CLI_OK : CLI_NEGATIVE;
        if (*(const bool *) args->options) {
            json_print(&folder);
        } else {
            print_release(&folder);
            print_libraries(&folder);
            print_missing(&folder);
            print_answer(&folder);
        }
    }
    client_folder_fini(&folder);
    return code;
}
