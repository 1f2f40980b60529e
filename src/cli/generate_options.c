// SPDX-License-Identifier: MIT
// generate_options.c: the functions of generate_options.h.

#include "cli/generate_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- sampling ----

int cli_sampling_mirostat(const struct cli_option *option, const char *command, const char *value, void *target) {
    int64_t *mirostat = target;
    const int code = cli_option_int(option, command, value, mirostat);
    if (code != CLI_OK || *mirostat != 1) {
        return code;
    }
    return cli_usage(command, "--mirostat 1 is not supported; use its successor 2");
}

// Parses a bias such as "15043+1", "15043-0.5" or "15043-inf".
int cli_sampling_bias(const struct cli_option *option, const char *command, const char *text, void *target) {
    struct cli_biases *list = target;
    char *sign, *end;
    const long long token = strtoll(text, &sign, 10);
    const double x = strtod(sign, &end);
    if (sign == text || (*sign != '+' && *sign != '-') || end == sign || isnan(x) || *end != '\0' || token < 0 ||
        token > INT32_MAX || x > 1e6) {
        return cli_usage(command, "--logit-bias '%s' is not a token id followed by + or - and a number", text);
    }
    if (!berth_grow((void **) &list->items, &list->cap, list->n + 1, sizeof *list->items)) {
        return cli_fail(CLI_FAILURE, "out of memory for --%s", option->name);
    }
    list->items[list->n++] = (struct sample_bias){(int32_t) token, (float) x};
    return CLI_OK;
}

int cli_sampling_stop(const struct cli_option *option, const char *command, const char *text, void *target) {
    return text[0] != '\0' ? cli_option_text(option, text, target)
                           : cli_usage(command, "--stop requires a text that is not empty");
}

int cli_sampling_grammar(const struct cli_option *option, const char *command, const char *value, void *target) {
    struct cli_sampling *o = target;
    *(strcmp(option->name, "grammar") == 0 ? &o->grammar : &o->schema) = value;
    return o->grammar != NULL && o->schema != NULL ? cli_usage(command, "--grammar and --json-schema cannot be combined")
                                                   : CLI_OK;
}

void cli_sampling_init(struct cli_sampling *o) {
    if (o->seed < 0) {
        o->seed = sampler_seed_new();
    }
    if (o->mirostat == 0) {
        o->sampler.tau = 0;
    }
    o->sampler.biases = o->biases.items;
    o->sampler.n_biases = (int64_t) o->biases.n;
    sampler_seed(&o->sampler, (uint64_t) o->seed);
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
    berth_free(text);
    if (ok) {
        return CLI_OK;
    }
    return cli_fail(cli_is_interrupted(NULL) ? CLI_STOPPED : CLI_FAILURE, "%s", error.text);
}

// ---- contexts ----

int cli_contexts_read(struct workbench *m, const struct cli_contexts *o, struct context_reader *r, int64_t *n_read) {
    struct model_error error = {""};
    char *text = cli_read_text(o->text, &r->size);
    if (text == NULL) {
        return CLI_FAILURE;
    }
    r->session = m->session;
    r->vocab = m->vocab;
    r->text = text;
    r->name = o->text;
    r->n_max = o->n_max;
    r->stop = cli_is_interrupted;
    const bool ok = contexts_read(r, n_read, &error);
    cli_progress_end();
    berth_free(text);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}
