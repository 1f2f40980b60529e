// SPDX-License-Identifier: MIT
// client.c: `berth client FOLDER`: will these libraries of llama.cpp, or of another client of ggml's, run on this Berth?

#include "cli/client.h"

#include "cli/help.h"

#include <getopt.h>
#include <string.h>

static const struct cli_option option_rows[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object: release, tested, libraries with what is missing, works, why"),
    {0},
};

const struct cli_help cli_client_help = {
    .command = "client",
    .what = "will the libraries of a client, such as llama.cpp, run on Berth?",
    .operands = "FOLDER",
    .takes = "/",
    .n_least = 1,
    .n_most = 1,
    .about = "Checks a folder of libraries that call ggml's functions, such as llama.cpp's, against this Berth: which release "
             "they are of, which functions they import and which of these Berth lacks, which libraries of ggml's they ask for, "
             "and what happens with Berth in their place. Files that end in .so or .node, or hold .so. in their names, are read; "
             "nothing of them is run.",
    .options = option_rows,
    .no = "it would fail",
    .examples = {{"Will it run on Berth?", "client node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"},
        {"For a program", "client --json /opt/llama/lib"}},
};

// Releases of llama.cpp whose binaries are part of Berth's tests.
static const struct release {
    const char *name, *ggml;
} tested[] = {
    {"b10361", "0.19.0"},
    {"v0.5.0", "0.25.1"},
};

// NULL: not one of them.
static const struct release *release_find(const char *name) {
    for (size_t i = 0; i < sizeof tested / sizeof tested[0]; i++) {
        if (strcmp(tested[i].name, name) == 0) {
            return &tested[i];
        }
    }
    return NULL;
}

static const char *role_text(const struct client_library *library) {
    switch (library->role) {
        case CLIENT_CALLER: return "";
        case CLIENT_CPU: return library->is_berth ? "Berth's" : "not loaded: Berth has its own";
        default: return library->is_berth ? "Berth's" : "ggml's: Berth's takes its place";
    }
}

// ---- as text ----

static void print_names(const struct client_names *names) {
    for (size_t i = 0; i < names->n; i++) {
        putchar(' ');
        cli_text(stdout, 0, names->items[i]);
    }
}

static void print_release(const struct client_folder *folder) {
    const struct release *release = release_find(folder->release);
    printf("%s%-10s%s ", cli_colour(stdout, CLI_BOLD), "client", cli_colour(stdout, CLI_RESET));
    if (release != NULL) {
        printf("llama.cpp %s for ggml %s: part of Berth's tests\n", release->name, release->ggml);
    } else if (folder->release[0] != '\0') {
        fputs("llama.cpp ", stdout);
        cli_text(stdout, 0, folder->release);
        puts(": not part of Berth's tests");
    } else {
        puts("its libraries name no release");
    }
    printf("%s%-10s%s %s for ggml %s\n\n", cli_colour(stdout, CLI_BOLD), "Berth", cli_colour(stdout, CLI_RESET), berth_version(),
        ggml_version());
}

static void print_libraries(const struct client_folder *folder) {
    printf("  %-28s %9s %8s  %s\n", "library", "functions", "missing", "asks for");
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        fputs("  ", stdout);
        cli_text(stdout, 28, library->name);
        if (library->role == CLIENT_CALLER) {
            printf(" %9zu %8zu ", library->n_imports, library->absent.n);
            print_names(&library->needs);
        } else {
            printf("  %s", role_text(library));
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
            printf(" calls functions that Berth lacks, and ends the process when it does:");
            print_names(&library->absent);
            putchar('\n');
        }
    }
    if (folder->nameless.n > 0) {
        printf("Berth has no library of the name:");
        print_names(&folder->nameless);
        printf(": ggml's would be loaded, or none. A link of that name to libggml.so, libggml-base.so or libggml-cpu.so%s%s "
               "makes one.\n",
            folder->place[0] != '\0' ? " in " : "", folder->place);
    }
    if (folder->has_rpath) {
        puts("A library here names its folders by RPATH, which comes before LD_LIBRARY_PATH: put Berth's files into them.");
    }
}

static void print_answer(const struct client_folder *folder) {
    const bool works = client_folder_works(folder);
    printf("%s%s%s: ", cli_colour(stdout, works ? CLI_GREEN : CLI_RED), works ? "works" : "would fail",
        cli_colour(stdout, CLI_RESET));
    if (!works) {
        printf("%zu functions and %zu libraries are missing\n", folder->n_missing, folder->nameless.n);
    } else if (folder->n_callers == 0) {
        puts("no client is here, only libraries of ggml's");
    } else if (folder->is_berth) {
        puts("Berth is in ggml's place already");
    } else if (folder->place[0] != '\0') {
        fputs("LD_LIBRARY_PATH=", stdout);
        cli_text(stdout, 0, folder->place);
        puts(" puts Berth in place of ggml");
    } else {
        puts("every function is there");
    }
}

// ---- as JSON ----

static void json_names(const char *key, const struct client_names *names) {
    printf("\"%s\": [", key);
    for (size_t i = 0; i < names->n; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        cli_json_text(stdout, names->items[i]);
    }
    putchar(']');
}

static void json_field(const char *key, const char *text) {
    printf("\"%s\": ", key);
    if (text != NULL && text[0] != '\0') {
        cli_json_text(stdout, text);
    } else {
        fputs("null", stdout);
    }
    fputs(", ", stdout);
}

static void json_print(const struct client_folder *folder) {
    static const char *const roles[] = {"client", "cpu", "base"};
    const struct release *release = release_find(folder->release);
    putchar('{');
    json_field("folder", folder->path);
    json_field("release", folder->release);
    json_field("release_ggml", release != NULL ? release->ggml : NULL);
    printf("\"tested\": %s, ", release != NULL ? "true" : "false");
    json_field("berth", berth_version());
    json_field("ggml", ggml_version());
    json_field("place", folder->place);
    fputs("\"libraries\": [", stdout);
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        fputs(i > 0 ? ",\n  {" : "\n  {", stdout);
        json_field("name", library->name);
        json_field("role", roles[library->role]);
        printf("\"is_berth\": %s, \"has_rpath\": %s, \"functions\": %zu, ", library->is_berth ? "true" : "false",
            library->has_rpath ? "true" : "false", library->n_imports);
        json_names("asks_for", &library->needs);
        fputs(", ", stdout);
        json_names("missing", &library->absent);
        putchar('}');
    }
    fputs("],\n  ", stdout);
    json_names("unreadable", &folder->unreadable);
    fputs(", ", stdout);
    json_names("missing_libraries", &folder->nameless);
    printf(", \"missing_functions\": %zu, \"works\": %s}\n", folder->n_missing, client_folder_works(folder) ? "true" : "false");
}

int cli_client(int argc, char **argv) {
    bool json = false;
    int code = cli_options_parse(&cli_client_help, argc, argv, &json);
    if (code >= 0) {
        return code;
    }
    const char *path = argv[optind];
    struct client_folder folder;
    if (!client_folder_read(&folder, path)) {
        code = CLI_FAILURE;
    } else if (folder.n == 0) {
        code = cli_fail(CLI_FAILURE, "%s: no library in this folder calls ggml's functions%s%s", path,
            folder.unreadable.n > 0 ? "; " : "", folder.unreadable.n > 0 ? folder.unreadable.items[0] : "");
    } else {
        code = client_folder_works(&folder) ? CLI_OK : CLI_NO;
        if (json) {
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
