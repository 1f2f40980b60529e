// SPDX-License-Identifier: MIT
// version.c: `berth version`: what this build holds.

#include "cli/cli.h"

#include <sys/utsname.h>

static const char usage[] = "Usage: berth version [OPTION]...\n\n"
                            "Prints the version, the ggml API that is served, the compiler and the machine.\n\n"
                            "      --json   print one JSON object\n"
                            "  -h, --help   this text\n";

#if defined(__clang__)
#    define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#    define COMPILER "gcc " __VERSION__
#else
#    define COMPILER "unknown"
#endif
#if defined(GGML_SHARED)
#    define LIBRARIES "shared: libggml-base, libggml-cpu, libggml"
#else
#    define LIBRARIES "static: libggml-base, libggml-cpu, libggml"
#endif
#if defined(__SANITIZE_ADDRESS__)
#    define SANITIZED ", address sanitizer"
#else
#    define SANITIZED ""
#endif

int cli_version(int argc, char **argv) {
    bool json = false;
    int code  = cli_options_json("version", usage, argc, argv, &json);
    code      = code < 0 ? cli_no_arguments("version", argc, argv) : code;
    if (code >= 0) {
        return code;
    }
    struct utsname os;
    const bool known = uname(&os) == 0;
    if (json) {
        printf("{\"version\": \"%s\", \"ggml\": \"%s\", \"compiler\": \"%s\", \"libraries\": \"%s\", \"machine\": \"%s\"}\n",
            berth_version(), ggml_version(), COMPILER, LIBRARIES, known ? os.machine : "unknown");
        return CLI_OK;
    }
    const char *bold = cli_colour(stdout, CLI_BOLD), *reset = cli_colour(stdout, CLI_RESET);
    printf("%sberth %s%s\n", bold, berth_version(), reset);
    printf("  ggml API   %s\n", ggml_version());
    printf("  compiler   %s%s\n", COMPILER, SANITIZED);
    printf("  libraries  %s\n", LIBRARIES);
    printf("  machine    %s, %s\n", known ? os.machine : "unknown", known ? os.sysname : "unknown");
    return CLI_OK;
}
