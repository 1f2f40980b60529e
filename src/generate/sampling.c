// SPDX-License-Identifier: MIT
// sampling.c: how the next token is chosen, and the grammar it is held to (generate.h).

#include "generate/generate.h"

#include <string.h>
#include <time.h>

struct sampling_params sampling_params_default(void) {
    return (struct sampling_params){.temperature = 0.8,
        .top_p = 0.95,
        .typical = 1,
        .repeat = 1,
        .tau = 5,
        .eta = 0.1,
        .top_k = 40,
        .last_n = 64,
        .seed = -1};
}

void sampling_params_seed(struct sampling_params *p) {
    if (p->seed < 0) {
        p->seed = (int64_t) (((uint64_t) time(NULL) * 1000003 + (uint64_t) ggml_time_us()) % 1000000000);
    }
}

void sampling_params_start(const struct sampling_params *p, struct sampler *s) {
    sampler_init(s, (float) p->temperature, p->top_k, (float) p->top_p, (uint64_t) p->seed);
    s->typical = (float) p->typical;
    s->min_p = (float) p->min_p;
    s->repeat = (float) p->repeat;
    s->frequency = (float) p->frequency;
    s->presence = (float) p->presence;
    s->last_n = p->last_n;
    s->tau = p->mirostat == 2 ? (float) p->tau : 0;
    s->eta = (float) p->eta;
    s->biases = p->biases;
    s->n_biases = p->n_biases;
}

bool text_guide_open(
    struct text_guide *guide, const struct guide_source *source, const struct vocab *vocab, struct model_error *error) {
    struct model_error why = {""};
    char *from_schema = NULL;
    const char *text = source->text;
    size_t size = source->size;
    *guide = (struct text_guide){NULL, NULL};
    if (source->is_schema) {
        from_schema = schema_to_grammar(source, error);
        if (from_schema == NULL) {
            return false;
        }
        text = from_schema;
        size = strlen(from_schema);
    }
    guide->grammar = grammar_new(text, size, source->stop, source->stop_data, &why);
    model_alloc_free(from_schema);
    guide->guide = guide->grammar != NULL ? guide_new(guide->grammar, vocab, &why) : NULL;
    if (guide->guide == NULL) {
        text_guide_close(guide);
        return model_fail(error, "%s: %s", source->name, why.text);
    }
    return true;
}

void text_guide_close(struct text_guide *guide) {
    guide_free(guide->guide);
    grammar_free(guide->grammar);
    *guide = (struct text_guide){NULL, NULL};
}
