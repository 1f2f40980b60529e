// SPDX-License-Identifier: MIT
// version.c: `berth version`: prints version and build information.

#include "base/json.h"
#include "cli/help.h"

#include <sys/utsname.h>

static const struct cli_option option_rows[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object"),
    {0},
};

const struct cli_help cli_version_help = {
    .command = "version",
    .what = "print version and build information",
    .operands = "",
    .about = "Prints the version, the version of the ggml API, the compiler and the machine.",
    .options = option_rows,
    .size = sizeof(bool),
    .examples = {{"As text", "version"}, {"For scripts", "version --json"}},
};

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

int cli_version(const struct cli_args *args) {
    struct utsname os;
    const bool known = uname(&os) == 0;
    if (*(const bool *) args->options) {
        berth_json_printf(&(struct berth_json_writer){.file = stdout},
            "{'version': %s, 'ggml': %s, 'compiler': %s, 'libraries': %s, 'machine': %s}\n", berth_version(), ggml_version(),
            COMPILER, LIBRARIES, known ? os.machine : "unknown");
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
