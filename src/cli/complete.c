// SPDX-License-Identifier: MIT
// complete.c: `berth help --complete`: the answers for bash completion (tools/completion/berth.bash), one per line.
//     --complete [COMMAND]         the commands, or the subcommands of COMMAND if it has any
//     --complete COMMAND [PART]    one line per option, such as "-o --out =.svg .html"; without '=' if the option takes no value.
//                                  Then one line for operands, such as "=.gguf|@types": values of the first, values of the others
//     --complete @LIST             the words of a list
// A value (`takes` in help.h) is one of: file name endings (".svg .html"), "*" any file, "/" a folder, "@LIST", or the words
// themselves.

#include "cli/help.h"
#include "quantize/quantize.h"

#include "ggml-backend.h"
#include "model/chat.h"

#include <string.h>

static void list_types(void) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (quantize_can_make((enum ggml_type) t, false)) {
            puts(ggml_type_name((enum ggml_type) t));
        }
    }
    for (int i = 0; recipe_mix_name(i) != NULL; i++) {
        enum ggml_type type;
        if (!recipe_type_parse(recipe_mix_name(i), &type) || !quantize_can_make(type, false)) { // not listed above
            puts(recipe_mix_name(i));
        }
    }
}

// A head must be a multiple of the block size. Heads have 64 or more elements, so blocks of up to 32 elements fit.
static void list_cache_types(void) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (ggml_blck_size((enum ggml_type) t) <= 32 && quantize_can_make((enum ggml_type) t, false)) {
            puts(ggml_type_name((enum ggml_type) t));
        }
    }
}

static void list_devices(void) {
    ggml_backend_load_all();
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        puts(ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
}

static void list_ops(void) {
    for (int op = GGML_OP_NONE + 1; op < GGML_OP_COUNT; op++) {
        if (op != GGML_OP_UNARY && op != GGML_OP_GLU) {
            puts(ggml_op_name((enum ggml_op) op));
        }
    }
    for (int i = 0; i < GGML_UNARY_OP_COUNT; i++) {
        puts(ggml_unary_op_name((enum ggml_unary_op) i));
    }
    for (int i = 0; i < GGML_GLU_OP_COUNT; i++) {
        puts(ggml_glu_op_name((enum ggml_glu_op) i));
    }
}

static void list_templates(void) {
    for (const struct chat_template *t = chat_templates; t->name != NULL; t++) {
        puts(t->name);
    }
}

static const struct {
    const char *name;
    void (*print)(void);
} lists[] = {{"@cache-types", list_cache_types}, {"@devices", list_devices}, {"@ops", list_ops}, {"@templates", list_templates},
    {"@types", list_types}};

static void print_options(const struct cli_help *help) {
    for (const struct cli_option *o = help->options; o->name != NULL; o++) {
        if (o->letter != 0) {
            printf("-%c ", o->letter);
        }
        printf("--%s%s%s\n", o->name, o->value != NULL ? " =" : "", o->value != NULL && o->takes != NULL ? o->takes : "");
    }
    printf("-q --quiet\n-h --help\n=%s\n", help->takes != NULL ? help->takes : "");
}

int cli_complete(const struct cli_command *commands, int argc, char **argv) {
    for (size_t i = 0; argc == 1 && i < sizeof lists / sizeof *lists; i++) {
        if (strcmp(argv[0], lists[i].name) == 0) {
            lists[i].print();
            return CLI_OK;
        }
    }
    const bool is_help = argc > 0 && strcmp(argv[0], "help") == 0;
    if (argc == 0) {
        puts("help");
    }
    for (int i = is_help; i < argc && commands != NULL; i++) {
        const struct cli_command *c = cli_find(commands, argv[i]);
        commands = c != NULL ? c->help->parts : NULL;
        if (c != NULL && commands == NULL && !is_help) {
            print_options(c->help);
        }
    }
    for (const struct cli_command *c = commands; c != NULL && c->help != NULL; c++) {
        puts(cli_name(c));
    }
    return CLI_OK;
}
