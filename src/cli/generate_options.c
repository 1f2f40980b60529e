// SPDX-License-Identifier: MIT
// generate_options.c: see generate_options.h.

#include "cli/generate_options.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- sampling ----

// One number of a known range.
static const struct real_row {
    int id;
    const char *name;
    double min, max;
    size_t at;
} reals[] = {
    {CLI_TEMP, "temp", 0, 1e6, offsetof(struct cli_sampling, params.temperature)},
    {CLI_TYPICAL, "typical", 0, 1, offsetof(struct cli_sampling, params.typical)},
    {CLI_TOP_P, "top-p", 0, 1, offsetof(struct cli_sampling, params.top_p)},
    {CLI_MIN_P, "min-p", 0, 1, offsetof(struct cli_sampling, params.min_p)},
    {CLI_REPEAT, "repeat-penalty", 1e-6, 1e6, offsetof(struct cli_sampling, params.repeat)},
    {CLI_FREQUENCY, "frequency-penalty", -1e6, 1e6, offsetof(struct cli_sampling, params.frequency)},
    {CLI_PRESENCE, "presence-penalty", -1e6, 1e6, offsetof(struct cli_sampling, params.presence)},
    {CLI_TAU, "mirostat-ent", 1e-6, 1e6, offsetof(struct cli_sampling, params.tau)},
    {CLI_ETA, "mirostat-lr", 0, 1e6, offsetof(struct cli_sampling, params.eta)},
};

static const struct whole_row {
    int id;
    const char *name;
    int64_t max;
    size_t at;
} wholes[] = {
    {CLI_TOP_K, "top-k", INT64_MAX, offsetof(struct cli_sampling, params.top_k)},
    {CLI_LAST_N, "repeat-last-n", 1 << 24, offsetof(struct cli_sampling, params.last_n)},
    {CLI_MIROSTAT, "mirostat", 2, offsetof(struct cli_sampling, params.mirostat)},
    {'s', "seed", INT64_MAX, offsetof(struct cli_sampling, params.seed)},
};

static int real_parse(const char *command, const struct real_row *row, const char *text, struct cli_sampling *o) {
    char *end;
    const double x = strtod(text, &end);
    memcpy((char *) o + row->at, &x, sizeof x);
    return end != text && *end == '\0' && x >= row->min && x <= row->max
               ? CLI_OK
               : cli_usage(command, "--%s '%s' is not a number from %g to %g", row->name, text, row->min, row->max);
}

static int whole_parse(const char *command, const struct whole_row *row, const char *text, struct cli_sampling *o) {
    int64_t *out = (int64_t *) (void *) ((char *) o + row->at);
    if (!cli_parse_int(text, 0, row->max, out)) {
        return row->max == INT64_MAX
                   ? cli_usage(command, "--%s '%s' is not a whole number from 0", row->name, text)
                   : cli_usage(command, "--%s '%s' is not a whole number from 0 to %" PRId64, row->name, text, row->max);
    }
    return row->id == CLI_MIROSTAT && *out == 1 ? cli_usage(command, "--mirostat 1 is not made; 2 is its successor") : CLI_OK;
}

// "15043+1", "15043-0.5", "15043-inf"
static int bias_parse(const char *command, const char *text, struct cli_sampling *o) {
    char *sign, *end;
    const long long token = strtoll(text, &sign, 10);
    const double x = sign != text && (*sign == '+' || *sign == '-') ? strtod(sign, &end) : NAN;
    if (isnan(x) || *end != '\0' || token < 0 || token > INT32_MAX || x > 1e6) {
        return cli_usage(command, "--logit-bias '%s' is not a token's number with + or - and a number behind it", text);
    }
    if (o->params.n_biases == CLI_MAX_BIASES) {
        return cli_usage(command, "more than %d biases are given", CLI_MAX_BIASES);
    }
    o->params.biases = o->biases;
    o->biases[o->params.n_biases++] = (struct sample_bias){(int32_t) token, (float) x};
    return CLI_OK;
}

static int stop_parse(const char *command, const char *text, struct cli_sampling *o) {
    if (text[0] == '\0' || o->n_stops == CLI_MAX_STOPS) {
        return text[0] == '\0' ? cli_usage(command, "--stop is empty")
                               : cli_usage(command, "more than %d texts to stop at are given", CLI_MAX_STOPS);
    }
    o->stops[o->n_stops++] = text;
    return CLI_OK;
}

bool cli_sampling_option(const char *command, int c, const char *value, struct cli_sampling *o, int *code) {
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        if (reals[i].id == c) {
            *code = real_parse(command, &reals[i], value, o);
            return true;
        }
    }
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        if (wholes[i].id == c) {
            *code = whole_parse(command, &wholes[i], value, o);
            return true;
        }
    }
    if (c == CLI_GRAMMAR || c == CLI_SCHEMA) {
        *(c == CLI_GRAMMAR ? &o->grammar : &o->schema) = value;
        *code =
            o->grammar != NULL && o->schema != NULL ? cli_usage(command, "--grammar and --json-schema are two grammars") : CLI_OK;
        return true;
    }
    if (c == CLI_BIAS || c == CLI_STOP) {
        *code = (c == CLI_BIAS ? bias_parse : stop_parse)(command, value, o);
        return true;
    }
    return false;
}

int cli_guide_open(const struct cli_sampling *o, const struct vocab *vocab, struct text_guide *guide) {
    struct model_error error = {""};
    struct guide_source source = {
        .name = o->grammar != NULL ? o->grammar : o->schema, .is_schema = o->schema != NULL, .stop = cli_is_interrupted};
    *guide = (struct text_guide){NULL, NULL};
    if (source.name == NULL) {
        return CLI_OK;
    }
    char *text = cli_read_text(source.name, &source.size);
    if (text == NULL) {
        return cli_is_interrupted(NULL) ? CLI_STOPPED : CLI_FAILURE;
    }
    source.text = text;
    const bool ok = text_guide_open(guide, &source, vocab, &error);
    free(text);
    return ok ? CLI_OK : cli_fail(cli_is_interrupted(NULL) ? CLI_STOPPED : CLI_FAILURE, "%s", error.text);
}

// ---- contexts ----

bool cli_contexts_option(const char *command, int c, const char *value, struct cli_contexts *o, int *code) {
    *code = CLI_OK;
    switch (c) {
        case 'f': o->text = value; return true;
        case CLI_CHUNKS:
            if (!cli_parse_int(value, 1, INT32_MAX, &o->n_max)) {
                *code = cli_usage(command, "--chunks '%s' is not a number from 1 to %d", value, INT32_MAX);
            }
            return true;
        case 'c':
            if (!cli_parse_int(value, 1, INT32_MAX, &o->model.n_ctx)) {
                *code = cli_usage(command, "--ctx '%s' is not an integer from 1 to %d", value, INT32_MAX);
            }
            return true;
        default: return false;
    }
}

int cli_contexts_operands(const char *command, int argc, char **argv, struct cli_contexts *o) {
    const int n_given = argc - optind + (o->model.path != NULL) + (o->text != NULL);
    if (n_given != 2) {
        return cli_usage(command, "MODEL and TEXT are wanted, %d are given", n_given);
    }
    if (o->model.path == NULL) {
        o->model.path = argv[optind++];
    }
    if (o->text == NULL) {
        o->text = argv[optind];
    }
    if (o->model.n_ctx <= 0) {
        o->model.n_ctx = 512;
    }
    o->model.n_batch = o->model.n_ctx;
    o->model.all_outputs = true;
    return -1;
}

int cli_contexts_read(struct workbench *m, const struct cli_contexts *o, struct context_reader *r, int64_t *n_read) {
    struct model_error error = {""};
    char *text = cli_read_text(o->text, &r->size);
    if (text == NULL) {
        return CLI_FAILURE;
    }
    r->session = m->session;
    r->text = text;
    r->name = o->text;
    r->n_max = o->n_max;
    r->stop = cli_is_interrupted;
    const bool ok = contexts_read(r, n_read, &error);
    cli_progress_end();
    free(text);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}
