// SPDX-License-Identifier: MIT
// guide.c: the grammar that the next token is held to (generate.h).

#include "generate/generate.h"

#include <string.h>

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
    berth_free(from_schema);
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
