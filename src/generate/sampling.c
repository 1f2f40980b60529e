// SPDX-License-Identifier: MIT
// sampling.c: see sampling.h.

#include "generate/sampling.h"

#include "cli/cli.h"
#include "cli/models.h"
#include "generate/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// One number of a known range.
static const struct real_row {
    int id;
    const char *name;
    double min, max;
    size_t at;
} reals[] = {
    {CLI_TEMP, "temp", 0, 1e6, offsetof(struct cli_sampling, temperature)},
    {CLI_TYPICAL, "typical", 0, 1, offsetof(struct cli_sampling, typical)},
    {CLI_TOP_P, "top-p", 0, 1, offsetof(struct cli_sampling, top_p)},
    {CLI_MIN_P, "min-p", 0, 1, offsetof(struct cli_sampling, min_p)},
    {CLI_REPEAT, "repeat-penalty", 1e-6, 1e6, offsetof(struct cli_sampling, repeat)},
    {CLI_FREQUENCY, "frequency-penalty", -1e6, 1e6, offsetof(struct cli_sampling, frequency)},
    {CLI_PRESENCE, "presence-penalty", -1e6, 1e6, offsetof(struct cli_sampling, presence)},
    {CLI_TAU, "mirostat-ent", 1e-6, 1e6, offsetof(struct cli_sampling, tau)},
    {CLI_ETA, "mirostat-lr", 0, 1e6, offsetof(struct cli_sampling, eta)},
};

static const struct whole_row {
    int id;
    const char *name;
    int64_t max;
    size_t at;
} wholes[] = {
    {CLI_TOP_K, "top-k", INT64_MAX, offsetof(struct cli_sampling, top_k)},
    {CLI_LAST_N, "repeat-last-n", 1 << 24, offsetof(struct cli_sampling, last_n)},
    {CLI_MIROSTAT, "mirostat", 2, offsetof(struct cli_sampling, mirostat)},
    {'s', "seed", INT64_MAX, offsetof(struct cli_sampling, seed)},
};

static int real(const char *command, const struct real_row *row, const char *text, struct cli_sampling *o) {
    char *end;
    const double x = strtod(text, &end);
    memcpy((char *) o + row->at, &x, sizeof x);
    return end != text && *end == '\0' && x >= row->min && x <= row->max
               ? CLI_OK
               : cli_usage(command, "--%s '%s' is not a number from %g to %g", row->name, text, row->min, row->max);
}

static int whole(const char *command, const struct whole_row *row, const char *text, struct cli_sampling *o) {
    int64_t *out = (int64_t *) (void *) ((char *) o + row->at);
    if (!cli_parse_int(text, 0, row->max, out)) {
        return row->max == INT64_MAX
                   ? cli_usage(command, "--%s '%s' is not a whole number from 0", row->name, text)
                   : cli_usage(command, "--%s '%s' is not a whole number from 0 to %" PRId64, row->name, text, row->max);
    }
    return row->id == CLI_MIROSTAT && *out == 1 ? cli_usage(command, "--mirostat 1 is not made; 2 is its successor") : CLI_OK;
}

// "15043+1", "15043-0.5", "15043-inf"
static int bias(const char *command, const char *text, struct cli_sampling *o) {
    char *sign, *end;
    const long long token = strtoll(text, &sign, 10);
    const double x = sign != text && (*sign == '+' || *sign == '-') ? strtod(sign, &end) : NAN;
    if (isnan(x) || *end != '\0' || token < 0 || token > INT32_MAX || x > 1e6) {
        return cli_usage(command, "--logit-bias '%s' is not a token's number with + or - and a number behind it", text);
    }
    if (o->n_biases == CLI_MAX_BIASES) {
        return cli_usage(command, "more than %d biases are given", CLI_MAX_BIASES);
    }
    o->biases[o->n_biases++] = (struct sample_bias){(int32_t) token, (float) x};
    return CLI_OK;
}

static int stop(const char *command, const char *text, struct cli_sampling *o) {
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
            *code = real(command, &reals[i], value, o);
            return true;
        }
    }
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        if (wholes[i].id == c) {
            *code = whole(command, &wholes[i], value, o);
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
        *code = (c == CLI_BIAS ? bias : stop)(command, value, o);
        return true;
    }
    return false;
}

void cli_sampling_seed(struct cli_sampling *o) {
    if (o->seed < 0) {
        o->seed = (int64_t) (((uint64_t) time(NULL) * 1000003 + (uint64_t) ggml_time_us()) % 1000000000);
    }
}

void cli_sampling_start(const struct cli_sampling *o, struct sampler *s) {
    sampler_init(s, (float) o->temperature, o->top_k, (float) o->top_p, (uint64_t) o->seed);
    s->typical = (float) o->typical;
    s->min_p = (float) o->min_p;
    s->repeat = (float) o->repeat;
    s->frequency = (float) o->frequency;
    s->presence = (float) o->presence;
    s->last_n = o->last_n;
    s->tau = o->mirostat == 2 ? (float) o->tau : 0;
    s->eta = (float) o->eta;
    s->biases = o->biases;
    s->n_biases = o->n_biases;
}

// ---- grammars ----

int cli_guide_open(const struct cli_sampling *o, const struct vocab *vocab, struct cli_guide *guide) {
    const char *path = o->grammar != NULL ? o->grammar : o->schema;
    struct model_error error = {""};
    size_t size = 0;
    *guide = (struct cli_guide){NULL, NULL};
    if (path == NULL) {
        return CLI_OK;
    }
    char *text = cli_read_text(path, &size);
    if (text != NULL && o->schema != NULL) {
        char *grammar = cli_schema_grammar(text, size, path, cli_is_interrupted, NULL);
        free(text);
        text = grammar;
        size = text != NULL ? strlen(text) : 0;
    }
    if (text == NULL) {
        return cli_is_interrupted(NULL) ? CLI_STOPPED : CLI_FAILURE;
    }
    guide->grammar = grammar_new(text, size, cli_is_interrupted, NULL, &error);
    guide->guide = guide->grammar != NULL ? guide_new(guide->grammar, vocab, &error) : NULL;
    free(text);
    if (guide->guide == NULL) {
        cli_guide_close(guide);
        return cli_fail(cli_is_interrupted(NULL) ? CLI_STOPPED : CLI_FAILURE, "%s: %s", path, error.text);
    }
    return CLI_OK;
}

void cli_guide_close(struct cli_guide *guide) {
    guide_free(guide->guide);
    grammar_free(guide->grammar);
    *guide = (struct cli_guide){NULL, NULL};
}
