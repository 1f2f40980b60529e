// SPDX-License-Identifier: MIT
// contexts.c: a text, context by context.

#include "generate/contexts.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>

bool cli_contexts_option(const char *command, int c, const char *value, struct cli_contexts *o, int *code) {
    *code = CLI_OK;
    switch (c) {
        case 'f': o->text = value; return true;
        case CLI_CHUNKS:
            if (!cli_parse_int(value, 1, INT32_MAX, &o->n_max)) {
                *code = cli_usage(command, "--chunks '%s' is not a number from 1 to %d", value, INT32_MAX);
            }
            return true;
        case CLI_JSON: o->json = true; return true;
        default: return cli_model_option(command, c, value, &o->model, code);
    }
}

int cli_contexts_operands(const char *command, int argc, char **argv, struct cli_contexts *o) {
    const int n_given = argc - optind + (o->model.path != NULL) + (o->text != NULL);
    if (n_given != 2) {
        return cli_usage(command, "MODEL and TEXT are wanted, %d are given", n_given);
    }
    o->model.path = o->model.path != NULL ? o->model.path : argv[optind++];
    o->text = o->text != NULL ? o->text : argv[optind];
    o->model.n_ctx = o->model.n_ctx > 0 ? o->model.n_ctx : 512;
    o->model.n_batch = o->model.n_ctx;
    o->model.all_outputs = true;
    return -1;
}

static int64_t read_all(struct workbench *m, const struct cli_contexts *o, const struct vocab *vocab,
    const struct token_list *tokens, cli_context_read each, void *user, struct model_error *error) {
    const int64_t n_ctx = o->model.n_ctx;
    int64_t n = (int64_t) tokens->n / n_ctx, done = 0;
    if (n == 0) {
        model_fail(error, "%s: %zu tokens are less than a context of %" PRId64, o->text, tokens->n, n_ctx);
    }
    n = o->n_max > 0 && o->n_max < n ? o->n_max : n;
    for (; done < n && !cli_is_interrupted(NULL); done++) {
        char note[64] = "";
        int32_t *ids = tokens->ids + done * n_ctx;
        ids[0] = vocab->add_bos && vocab->bos >= 0 ? vocab->bos : ids[0];
        session_reset(m->session);
        if (!session_decode(m->session, ids, n_ctx, error) || !each(user, m->session, ids, note, error)) {
            break;
        }
        cli_progress(
            "reading the text", (uint64_t) done + 1, (uint64_t) n, "context %" PRId64 " of %" PRId64 "%s", done + 1, n, note);
    }
    cli_progress_end();
    return done;
}

int cli_contexts_each(struct workbench *m, const struct cli_contexts *o, const struct vocab *vocab, cli_context_read each,
    void *user, int64_t *n_read) {
    struct model_error error = {""};
    struct token_list tokens = {0};
    size_t size = 0;
    char *text = cli_read_text(o->text, &size);
    if (text == NULL) {
        return CLI_FAILURE;
    }
    *n_read =
        vocab_encode(vocab, text, size, true, false, &tokens, &error) ? read_all(m, o, vocab, &tokens, each, user, &error) : 0;
    token_list_fini(&tokens);
    free(text);
    if (*n_read > 0 && (error.text[0] == '\0' || cli_is_interrupted(NULL))) {
        return CLI_OK;
    }
    return cli_fail(CLI_FAILURE, "%s", error.text[0] != '\0' ? error.text : "stopped within the first context");
}
