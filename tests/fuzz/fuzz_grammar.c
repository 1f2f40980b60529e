// SPDX-License-Identifier: MIT
// fuzz_grammar.c: takes the first bytes of the input as a grammar and the following ones as a text; the last byte is the length of
// the text, at most MAX_TEXT. The grammar must be refused with a message, or a token must be allowed exactly if all its bytes are
// allowed one after another.

#include "fuzz/guided.h"

#define MAX_TEXT 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct vocab *vocab;
    if (vocab == NULL) {
        ggml_log_set(quiet, NULL);
        vocab = guided_vocab();
    }
    const size_t n_text = size > 0 ? data[size - 1] % (size <= MAX_TEXT ? size : MAX_TEXT + 1) : 0;
    const size_t n_grammar = size > 0 ? size - 1 - n_text : 0;
    const uint8_t *text = data + n_grammar;
    struct grammar *g = guided_grammar((const char *) data, n_grammar);
    if (g == NULL) {
        return 0;
    }
    struct model_error error = {""};
    struct guide *guide = guide_new(g, vocab, &error);
    bool allowed[GUIDED_TOKENS];
    if (guide != NULL && guided_mask(guide, allowed)) {
        for (size_t i = 0; i < n_text && allowed[text[i]] && guided_take(guide, text[i], allowed); i++) {
        }
    }
    expect(guide != NULL || error.text[0] != '\0', "refused without a message");
    guide_free(guide);
    grammar_free(g);
    return 0;
}
