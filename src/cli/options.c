// SPDX-License-Identifier: MIT
// options.c: parses a command line by the command's table (help.h), and checks the number of operands.

#include "base/min.h"
#include "base/size.h"
#include "cli/help.h"

#include <assert.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- values ----

static int value_refuse(const struct cli_option *o, const char *command, const char *value) {
    char most[40] = "";
    switch (o->kind) {
        case CLI_WORD: return cli_usage(command, "--%s '%s' is not one of: %s", o->name, value, o->takes);
        case CLI_SIZE: return cli_usage(command, "--%s '%s' is not a number of bytes from 1 to 2^62", o->name, value);
        case CLI_MS: return cli_usage(command, "--%s '%s' is not a number of milliseconds from 0 to 1e12", o->name, value);
        default: break;
    }
    if (o->max != 0) {
        snprintf(most, sizeof most, o->kind == CLI_REAL ? " to %g" : " to %.0f", o->max);
    }
    return cli_usage(
        command, "--%s '%s' is not %s from %g%s", o->name, value, o->kind == CLI_REAL ? "a number" : "an integer", o->min, most);
}

int cli_option_int(const struct cli_option *o, const char *command, const char *value, int64_t *out) {
    const int64_t max = o->max != 0 ? (int64_t) o->max : INT64_MAX;
    return cli_parse_int(value, (int64_t) o->min, max, out) ? CLI_OK : value_refuse(o, command, value);
}

int cli_option_word(const struct cli_option *o, const char *command, const char *value, int64_t *out) {
    *out = 0;
    for (const char *p = o->takes; *p != '\0'; ++*out) {
        const size_t n = strcspn(p, " ");
        if (n == strlen(value) && strncmp(p, value, n) == 0) {
            return CLI_OK;
        }
        p += n + (p[n] == ' ');
    }
    return value_refuse(o, command, value);
}

// Stores n in a field of the options. o->size: size of the field, which is a bool, an int32_t or an int64_t.
static void integer_store(const struct cli_option *o, int64_t n, void *target) {
    const int32_t small = (int32_t) n;
    const bool flag = n != 0;
    switch (o->size) {
        case sizeof flag: memcpy(target, &flag, sizeof flag); break;
        case sizeof small:
            assert(n == small);
            memcpy(target, &small, sizeof small);
            break;
        default: memcpy(target, &n, sizeof n);
    }
}

static int real_parse(const struct cli_option *o, const char *command, const char *value, void *target) {
    char *end;
    const float small = strtof(value, &end);
    const double large = strtod(value, &end);
    const double x = o->size == sizeof small ? (double) small : large;
    if (end == value || *end != '\0' || !isfinite(x) || x < o->min || (o->max != 0 && x > o->max)) {
        return value_refuse(o, command, value);
    }
    memcpy(target, o->size == sizeof small ? (const void *) &small : &large, o->size);
    return CLI_OK;
}

static int ints_parse(const struct cli_option *o, const char *command, const char *value, struct cli_ints *list) {
    char part[32];
    list->n = 0;
    for (const char *p = value; p != NULL; p = p[0] == ',' ? p + 1 : NULL) {
        const size_t n = strcspn(p, ",");
        if (n >= sizeof part) {
            return value_refuse(o, command, value);
        }
        if (!berth_grow((void **) &list->items, &list->cap, list->n + 1, sizeof *list->items)) {
            return cli_fail(CLI_FAILURE, "out of memory for --%s", o->name);
        }
        snprintf(part, sizeof part, "%.*s", (int) n, p);
        const int code = cli_option_int(o, command, part, &list->items[list->n++]);
        if (code != CLI_OK) {
            return code;
        }
        p += n;
    }
    return CLI_OK;
}

int cli_option_text(const struct cli_option *o, const char *value, struct cli_texts *list) {
    if (!berth_grow((void **) &list->items, &list->cap, list->n + 1, sizeof *list->items)) {
        return cli_fail(CLI_FAILURE, "out of memory for --%s", o->name);
    }
    list->items[list->n++] = value;
    return CLI_OK;
}

static int value_parse(const struct cli_option *o, const char *command, const char *value, void *target) {
    uint64_t size = 0;
    int64_t n = 0;
    int code = CLI_OK;
    switch (o->kind) {
        case CLI_TEXT:
            if (o->value != NULL) {
                memcpy(target, &value, sizeof value);
                return CLI_OK;
            }
            n = 1;
            break;
        case CLI_INT: code = cli_option_int(o, command, value, &n); break;
        case CLI_WORD: code = cli_option_word(o, command, value, &n); break;
        case CLI_REAL: return real_parse(o, command, value, target);
        case CLI_INTS: return ints_parse(o, command, value, target);
        case CLI_TEXTS: return cli_option_text(o, value, target);
        case CLI_SIZE:
            if (!berth_parse_size(value, &size) || size == 0) {
                return value_refuse(o, command, value);
            }
            n = (int64_t) size;
            break;
        case CLI_MS:
            if (!cli_parse_ms(value, &n)) {
                return value_refuse(o, command, value);
            }
            break;
    }
    if (code == CLI_OK) {
        integer_store(o, n, target);
    }
    return code;
}

// Returns the address of the field that the option sets.
static void *option_target(const struct cli_help *help, const struct cli_option *o, void *options) {
    return (char *) options + help->bases[o->base] + o->at;
}

static int option_set(const struct cli_help *help, const struct cli_option *o, const char *value, void *options) {
    return (o->parse != NULL ? o->parse : value_parse)(o, help->command, value, option_target(help, o, options));
}

// ---- the table for getopt ----

struct names {
    struct option *list; // val: FIRST_ROW + index of the row; for --help and --quiet the letter
    char *letters;       // the string of short options
    char *also;          // copies of the rows' `also`, split into names
    size_t n;
};
enum { FIRST_ROW = 256 };

static void name_add(struct names *t, const char *name, const struct cli_option *o, int val) {
    t->list[t->n++] = (struct option){name, o->value != NULL ? required_argument : no_argument, NULL, val};
}

static void row_add(struct names *t, const struct cli_option *o, int val, char **letter, char **also) {
    name_add(t, o->name, o, val);
    if (o->also != NULL) {
        char *names = *also;
        *also = stpcpy(names, o->also) + 1;
        while (names != NULL) {
            name_add(t, strsep(&names, " "), o, val);
        }
    }
    if (o->letter != 0) {
        *(*letter)++ = o->letter;
        if (o->value != NULL) {
            *(*letter)++ = ':';
        }
    }
}

static void names_fini(struct names *t) {
    berth_free(t->list);
    berth_free(t->letters);
    berth_free(t->also);
}

// Makes the table of a command's options for getopt. Returns false if memory is exhausted.
static bool names_init(struct names *t, const struct cli_option *rows) {
    static const struct cli_option common[] = {{.letter = 'h', .name = "help"}, {.letter = 'q', .name = "quiet"}};
    size_t n_rows = 0, size = 1;
    for (; rows[n_rows].name != NULL; n_rows++) {
        size += rows[n_rows].also != NULL ? strlen(rows[n_rows].also) + 1 : 0; // there are at most as many names as bytes
    }
    *t = (struct names){
        berth_calloc(n_rows + size + 3, sizeof *t->list), berth_calloc(2 * n_rows + 4, 1), berth_calloc(size, 1), 0};
    if (t->list == NULL || t->letters == NULL || t->also == NULL) {
        names_fini(t);
        return false;
    }
    char *letter = t->letters, *also = t->also;
    *letter++ = ':';
    for (size_t i = 0; i < n_rows; i++) {
        row_add(t, &rows[i], FIRST_ROW + (int) i, &letter, &also);
    }
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        row_add(t, &common[i], common[i].letter, &letter, &also);
    }
    return true;
}

// Returns the row of an option. c: result of getopt_long. Returns NULL if c is not an option of the table.
static const struct cli_option *row_find(const struct cli_option *rows, int c) {
    if (c >= FIRST_ROW) {
        return &rows[c - FIRST_ROW];
    }
    for (const struct cli_option *o = rows; c > 0 && o->name != NULL; o++) {
        if (o->letter == c) {
            return o;
        }
    }
    return NULL;
}

// ---- parsing ----

// getopt would parse llama.cpp's -ngl as three short options.
static void ngl_replace(int argc, char **argv) {
    static char layers[] = "--ngl";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-ngl") == 0) {
            argv[i] = layers;
        }
    }
}

// Returns whether the word is a group of short options that contains the letter c.
static bool has_short(const char *word, int c) {
    return word[0] == '-' && word[1] != '-' && strchr(word + 1, c) != NULL;
}

// Prints why getopt refused an option.
static int option_refuse(const char *command, int argc, char **argv) {
    const char *last = argv[optind - 1]; // the refused option, unless getopt is still inside a group of letters
    const bool is_letter = optopt > 0 && optopt < FIRST_ROW;
    if (is_letter && ((optind < argc && has_short(argv[optind], optopt)) || has_short(last, optopt))) {
        return cli_usage(command, "unknown option '-%c'", optopt);
    }
    return cli_usage(command, optopt > 0 ? "option '%s' takes no value" : "unknown option '%s'", last);
}

// c: result of getopt_long. Returns -1 if parsing continues, else the exit code.
static int option_take(const struct cli_help *help, int c, int argc, char **argv, void *options) {
    const struct cli_option *o = row_find(help->options, c);
    switch (c) {
        case 'q': cli_quiet_set(); return -1;
        case 'h': cli_help_print(help, stdout); return CLI_OK;
        case ':': return cli_usage(help->command, "option '%s' requires a value", argv[optind - 1]);
        case '?': return option_refuse(help->command, argc, argv);
        default: break;
    }
    if (o->use != CLI_NOT_READ) {
        cli_input_add(optarg, o->use);
    }
    const int code = option_set(help, o, optarg, options);
    return code == CLI_OK ? -1 : code;
}

// Operands give the values of options with is_operand that were not given, in the order of the table. Returns -1 if the command
// can run, else the exit code.
static int operands_take(const struct cli_help *help, int argc, char **argv, void *options) {
    int n = argc - optind;
    for (int i = optind; i < argc && i - optind < help->n_operands.read; i++) {
        cli_input_add(argv[i], CLI_READ);
    }
    for (const struct cli_option *o = help->options; o->name != NULL; o++) {
        const char **text = option_target(help, o, options);
        if (o->is_operand && *text != NULL) {
            n++;
        } else if (o->is_operand && optind < argc) {
            *text = argv[optind++];
        }
        if (o->is_required && *text == NULL) {
            return cli_usage(help->command, "missing option: --%s %s", o->name, o->value);
        }
    }
    if (n < help->n_operands.least) {
        return cli_usage(help->command, "missing argument: %s", help->operands);
    }
    if (n > help->n_operands.most) {
        return cli_usage(help->command, "unexpected argument '%s': %s takes %s", argv[argc - 1], help->command,
            *help->operands != '\0' ? help->operands : "none");
    }
    return -1;
}

void cli_options_init(const struct cli_help *help, void *options) {
    memset(options, 0, help->size);
    if (help->initial != NULL) {
        memcpy(options, help->initial, help->size);
    }
    for (const struct cli_option *o = help->options; o->name != NULL; o++) {
        if (o->preset != NULL) {
            (void) option_set(help, o, o->preset, options);
        }
    }
}

static int options_parse(const struct cli_help *help, int argc, char **argv, void *options) {
    struct names names;
    int code = -1;
    if (!names_init(&names, help->options)) {
        return cli_fail(CLI_FAILURE, "out of memory for the options of %s", help->command);
    }
    ngl_replace(argc, argv);
    opterr = 0;
    for (int c; code < 0 && (c = getopt_long(argc, argv, names.letters, names.list, NULL)) != -1;) {
        code = option_take(help, c, argc, argv, options);
    }
    names_fini(&names);
    return code < 0 ? operands_take(help, argc, argv, options) : code;
}

int cli_command_run(const struct cli_command *command, int argc, char **argv) {
    const struct cli_help *help = command->help;
    if (help->parts != NULL) {
        return command->run(&(struct cli_args){.operands = argv + 1, .n = argc - 1});
    }
    void *options = berth_calloc(1, max_size(help->size, 1)); // a command may have no options
    if (options == NULL) {
        return cli_fail(CLI_FAILURE, "out of memory for the options of %s", help->command);
    }
    cli_options_init(help, options);
    int code = options_parse(help, argc, argv, options);
    if (code < 0) {
        code = command->run(&(struct cli_args){options, argv + optind, argc - optind});
    }
    for (const struct cli_option *o = help->options; o->name != NULL; o++) {
        if (o->is_list) {
            void *items;
            memcpy(&items, option_target(help, o, options), sizeof items);
            berth_free(items);
        }
    }
    berth_free(options);
    return code;
}
