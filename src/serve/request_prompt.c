// SPDX-License-Identifier: MIT
// request_prompt.c: turns the prompts of a request into tokens, and checks the request against the model.

#include "base/min.h"
#include "serve/request_internal.h"

#include <inttypes.h>
#include <string.h>

#define TEXT_MAX_TOKENS 16 // default of /v1/completions, as in OpenAI's API

static const char *input_name(enum api_kind kind) {
    static const char *const names[API_N_KINDS] = {"messages", "prompt", "input"};
    return names[kind];
}

static bool too_long(const struct request *r, struct api_error *error, const char *what) {
    return api_fail(error, 400, "context_length_exceeded", input_name(r->api.kind), "%s, and the context has %" PRId64 " tokens",
        what, r->service->params.n_ctx);
}

static bool text_encode(
    struct request *r, const char *text, size_t size, unsigned how, struct token_list *out, struct api_error *error) {
    const struct service_params *p = &r->service->params;
    struct model_error why = {""};
    char what[160];
    // A text with more bytes than this cannot fit, so it is refused before the tokenizer processes it.
    const size_t fits = (size_t) p->n_ctx * (p->vocab->max_size > 0 ? p->vocab->max_size : 1);
    const size_t most = p->max_text > 0 && p->max_text < fits ? p->max_text : fits;
    if (size > most) {
        snprintf(what, sizeof what, "the prompt has %zu bytes, above the limit of %zu", size, most);
        return too_long(r, error, what);
    }
    return vocab_encode(p->vocab, text, size, how, out, &why) ||
           api_fail(error, 500, NULL, NULL, "cannot tokenize the prompt: %s", why.text);
}

// Checks that the template has tools if the request does.
static bool tools_check(const struct request *r, struct api_error *error) {
    const struct service_params *p = &r->service->params;
    bool has_tools = r->api.n_tools > 0;
    for (size_t i = 0; i < r->api.n_messages; i++) {
        has_tools = has_tools || r->api.messages[i].is_result || r->api.messages[i].n_calls > 0;
    }
    if (has_tools && p->chat->tools == NULL) {
        return api_fail(error, 400, "unsupported_parameter", r->api.n_tools > 0 ? "tools" : "messages",
            "the chat template of the model %s (%s) has no tools that this server knows", p->model, p->chat->name);
    }
    if (r->api.n_tools > 0 && r->api.is_one_call && r->api.n_stops == ENGINE_MAX_STOPS) {
        return api_fail(error, 400, "invalid_value", "stop", "stop: at most %d texts are allowed if parallel_tool_calls is false",
            ENGINE_MAX_STOPS - 1);
    }
    return true;
}

// Returns the prompt of a conversation. A call that is required has begun at its end. NULL: out of memory.
static char *chat_text(const struct request *r) {
    const struct service_params *p = &r->service->params;
    const char *functions[API_MAX_TOOLS];
    const struct chat_conversation c = {
        .turns = r->api.messages, .n_turns = r->api.n_messages, .functions = functions, .n_functions = r->api.n_tools};
    for (size_t i = 0; i < r->api.n_tools; i++) {
        functions[i] = r->api.tools[i].text;
    }
    char *text = chat_format_tools(p->chat, &c);
    if (text == NULL || r->api.choice != API_TOOLS_REQUIRED) {
        return text;
    }
    const size_t size = strlen(text) + strlen(p->chat->tools->call_begin) + 2;
    char *longer = berth_malloc(size);
    if (longer != NULL) {
        snprintf(longer, size, "%s%s\n", text, p->chat->tools->call_begin);
    }
    berth_free(text);
    return longer;
}

static bool chat_encode(struct request *r, struct token_list *out, struct api_error *error) {
    const struct service_params *p = &r->service->params;
    if (p->chat == NULL) {
        return api_fail(error, 400, "no_chat_template", "messages",
            "the model %s has no chat template: use /v1/completions, or start the server with --template", p->model);
    }
    if (!tools_check(r, error)) {
        return false;
    }
    char *text = chat_text(r);
    if (text == NULL) {
        return api_out_of_memory(error);
    }
    const bool ok = text_encode(r, text, strlen(text), ENCODE_ADD | ENCODE_PARSE, out, error);
    berth_free(text);
    return ok;
}

static bool tokens_copy(struct request *r, const struct api_input *in, struct token_list *out, struct api_error *error) {
    const struct vocab *vocab = r->service->params.vocab;
    if (in->n_tokens == 0) {
        return true;
    }
    if (!BERTH_GROW(&out->ids, &out->cap, in->n_tokens)) {
        return api_out_of_memory(error);
    }
    for (size_t i = 0; i < in->n_tokens; i++) {
        if (in->tokens[i] >= vocab->n_tokens) {
            return api_fail(error, 400, "invalid_value", input_name(r->api.kind),
                "token %d is not below %d, the size of the vocabulary", in->tokens[i], vocab->n_tokens);
        }
        out->ids[out->n++] = in->tokens[i];
    }
    return true;
}

static bool prompt_encode(struct request *r, size_t i, struct api_error *error) {
    struct token_list *out = &r->prompts[i];
    if (r->api.kind == API_CHAT) {
        return chat_encode(r, out, error);
    }
    const struct api_input *in = &r->api.inputs[i];
    if (in->text == NULL) {
        return tokens_copy(r, in, out, error);
    }
    const unsigned how =
        r->api.kind == API_EMBEDDING ? ENCODE_ADD : ENCODE_ADD | ENCODE_PARSE; // as `berth embed` and `berth run`
    return text_encode(r, in->text, in->size, how, out, error);
}

// Checks the length of prompt and answer. Sets n_max if the request does not have it.
static bool prompt_check(const struct request *r, size_t i, int64_t *n_max, struct api_error *error) {
    const int64_t n = (int64_t) r->prompts[i].n, n_ctx = r->service->params.n_ctx;
    const bool is_embedding = r->api.kind == API_EMBEDDING;
    // Tokens whose log probabilities the engine can keep.
    const int64_t n_logged = r->api.has_logprobs ? ENGINE_MAX_ITEMS / (r->api.n_logprobs + 1) : INT64_MAX;
    char what[160];
    if (n == 0) {
        return api_fail(error, 400, "invalid_value", input_name(r->api.kind), "%s has no tokens", input_name(r->api.kind));
    }
    if (n > n_ctx - !is_embedding) {
        snprintf(
            what, sizeof what, "the prompt has %" PRId64 " tokens%s", n, is_embedding ? "" : ", the answer needs at least 1");
        return too_long(r, error, what);
    }
    if (is_embedding) {
        *n_max = 0;
    } else if (r->api.n_max < 0) {
        const int64_t left = min_i64(n_ctx - n, n_logged);
        *n_max = r->api.kind == API_COMPLETION && left > TEXT_MAX_TOKENS ? TEXT_MAX_TOKENS : left;
    } else if (r->api.n_max > n_ctx - n) {
        snprintf(what, sizeof what, "the prompt has %" PRId64 " tokens and the answer up to %" PRId64, n, r->api.n_max);
        return too_long(r, error, what);
    } else if (r->api.n_max > n_logged) {
        return api_fail(error, 400, "too_many_logprobs", "top_logprobs",
            "%" PRId64 " alternatives are possible for at most %" PRId64 " tokens, and the answer has up to %" PRId64,
            r->api.n_logprobs, n_logged, r->api.n_max);
    } else {
        *n_max = r->api.n_max;
    }
    return true;
}

static bool model_check(const struct request *r, struct api_error *error) {
    const struct service_params *p = &r->service->params;
    const char *model = r->api.model;
    if (model != NULL && model[0] != '\0' && strcmp(model, p->model) != 0) {
        return api_fail(error, 404, "model_not_found", "model", "the model '%.100s' does not exist; this server has '%.100s'",
            model, p->model);
    }
    if (r->api.dimensions >= 0 && r->api.dimensions != p->n_embd) {
        return api_fail(error, 400, "invalid_value", "dimensions",
            "dimensions %" PRId64 " is not %" PRId64 ", the length of the model's vectors", r->api.dimensions, p->n_embd);
    }
    for (size_t i = 0; i < r->api.n_biases; i++) {
        if (r->api.biases[i].token >= p->vocab->n_tokens) {
            return api_fail(error, 400, "invalid_value", "logit_bias",
                "logit_bias: token %d is not below %d, the size of the vocabulary", r->api.biases[i].token, p->vocab->n_tokens);
        }
    }
    return true;
}

bool request_prompts_make(struct request *r, int64_t *n_max, struct api_error *error) {
    *n_max = 0;
    if (!model_check(r, error)) {
        return false;
    }
    r->n_prompts = r->api.kind == API_CHAT ? 1 : r->api.n_inputs;
    r->prompts = berth_calloc(r->n_prompts, sizeof *r->prompts);
    if (r->prompts == NULL) {
        return api_out_of_memory(error);
    }
    for (size_t i = 0; i < r->n_prompts; i++) {
        int64_t n = 0;
        if (!prompt_encode(r, i, error) || !prompt_check(r, i, &n, error)) {
            return false;
        }
        if (n > *n_max) {
            *n_max = n;
        }
    }
    return true;
}

int64_t request_item_max(const struct request *r, size_t i_prompt) {
    struct api_error unused = {0};
    int64_t n = 0;
    (void) prompt_check(r, i_prompt, &n, &unused);
    return n;
}
