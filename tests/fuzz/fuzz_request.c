// SPDX-License-Identifier: MIT
// fuzz_request.c: any bytes as the body of a request. The first byte chooses the path; for one value the bytes are a file of API
// keys. A body is refused with a status and a message, or it becomes a request within the limits of api.h.

#include "fuzz/fuzz.h"
#include "serve/access.h"
#include "serve/api.h"

#include <math.h>
#include <string.h>

static void inputs_check(const struct api_request *r) {
    expect(r->n_inputs <= API_MAX_INPUTS && r->n_messages <= API_MAX_MESSAGES, "too many inputs or messages");
    for (size_t i = 0; i < r->n_inputs; i++) {
        const struct api_input *in = &r->inputs[i];
        expect(in->text == NULL || strlen(in->text) == in->size, "the length of a text is wrong");
        for (size_t k = 0; in->text == NULL && k < in->n_tokens; k++) {
            expect(in->tokens[k] >= 0, "a token is negative");
        }
    }
    for (size_t i = 0; i < r->n_messages; i++) {
        expect(r->messages[i].text != NULL && (unsigned) r->messages[i].role < CHAT_N_ROLES, "a message is incomplete");
    }
}

static void request_check(const struct api_request *r) {
    const struct engine_sampling *s = &r->sampling;
    expect(r->kind == API_CHAT ? r->n_messages > 0 : r->n_inputs > 0, "a request without a prompt");
    expect(r->n_choices >= 1 && r->n_choices <= API_MAX_CHOICES && (r->n_max == -1 || r->n_max >= 1), "wrong numbers");
    expect(r->n_logprobs >= 0 && r->n_logprobs <= API_MAX_TOP_LOGPROBS, "too many log probabilities");
    expect(s->temperature >= 0 && s->temperature <= 2 && s->top_p >= 0 && s->top_p <= 1, "wrong settings");
    expect(isfinite(s->frequency) && isfinite(s->presence) && s->repeat > 0, "wrong penalties");
    expect(r->n_stops <= ENGINE_MAX_STOPS && s->n_biases <= ENGINE_MAX_BIASES, "too many stops or biases");
    expect(r->schema == NULL || (r->schema_size <= API_MAX_SCHEMA_SIZE && strlen(r->schema) == r->schema_size), "a wrong schema");
    for (size_t i = 0; i < r->n_stops; i++) {
        expect(strlen(r->stops[i]) >= 1 && strlen(r->stops[i]) <= ENGINE_MAX_STOP_SIZE, "a wrong stop");
    }
    inputs_check(r);
}

static void keys_check(const char *text, size_t size) {
    struct access_keys keys;
    struct model_error error = {""};
    char header[64];
    const bool ok = access_keys_read(&keys, text, size, "keys", &error);
    expect(ok == (keys.n > 0) && ok == (error.text[0] == '\0'), "keys without a message, or a message without keys");
    snprintf(header, sizeof header, "%.*s", (int) (size < 60 ? size : 60), text);
    (void) access_key_is_valid(&keys, header);
    (void) access_host_is_local(header);
    (void) access_origin_is_allowed(header, header, header);
    access_keys_fini(&keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool is_quiet;
    if (!is_quiet) {
        ggml_log_set(quiet, NULL);
        is_quiet = true;
    }
    if (size == 0) {
        return 0;
    }
    const char *body = (const char *) data + 1;
    if (data[0] % 4 == API_N_KINDS) {
        keys_check(body, size - 1);
        return 0;
    }
    struct api_request r;
    struct api_error error = {0};
    const bool ok = api_request_read(&r, (enum api_kind)(data[0] % 4), body, size - 1, &error);
    expect(ok == (error.status == 0), "refused without a status, or accepted with one");
    expect(ok || error.message[0] != '\0', "refused without a message");
    if (ok) {
        request_check(&r);
    }
    api_request_fini(&r);
    return 0;
}
