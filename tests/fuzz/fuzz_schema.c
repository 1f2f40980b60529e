// SPDX-License-Identifier: MIT
// fuzz_schema.c: any bytes as a JSON schema. The schema is refused with a message, or it becomes a grammar that accepts only JSON.

#include "base/json.h"
#include "fuzz/guided.h"
#include "generate/generate.h"

#define MAX_TEXT 24

static void text_check(const char *text, size_t size) {
    struct berth_json r;
    berth_json_init(&r, text, size, "text");
    expect(memmem(text, size, "\\u", 2) != NULL || (berth_json_skip(&r) && berth_json_done(&r)),
        "the grammar accepts a text that is not JSON");
    berth_json_fini(&r);
}

// Follows a random path through the grammar and checks each text that may end.
static void walk(struct guide *guide, uint32_t seed) {
    char text[MAX_TEXT];
    bool allowed[GUIDED_TOKENS];
    bool ok = guided_mask(guide, allowed);
    for (size_t n = 0; ok && n < MAX_TEXT; n++) {
        if (allowed[GUIDED_END]) {
            text_check(text, n);
        }
        uint32_t byte = (seed = seed * 1664525u + 1013904223u) >> 24;
        for (int i = 0; i < 256 && !allowed[byte]; i++) {
            byte = (byte + 1) % 256;
        }
        ok = allowed[byte] && guided_take(guide, (uint8_t) byte, allowed);
        text[n] = (char) byte;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct vocab *vocab;
    if (vocab == NULL) {
        ggml_log_set(quiet, NULL);
        vocab = guided_vocab();
    }
    struct model_error error = {""};
    char *text = schema_to_grammar(&(struct guide_source){.text = (const char *) data, .size = size, .name = "schema"}, &error);
    expect((text != NULL) == (error.text[0] == '\0'), "refused without a message, or accepted with one");
    if (text == NULL) {
        return 0;
    }
    struct grammar *g = guided_grammar(text, strlen(text));
    expect(g != NULL, "the grammar of a schema is invalid");
    struct guide *guide = guide_new(g, vocab, &error);
    if (guide != NULL) {
        walk(guide, (uint32_t) size * 2654435761u + data[size / 2]);
    }
    expect(guide != NULL || error.text[0] != '\0', "refused without a message");
    guide_free(guide);
    grammar_free(g);
    berth_free(text);
    return 0;
}
