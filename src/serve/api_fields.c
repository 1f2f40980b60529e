// SPDX-License-Identifier: MIT
// api_fields.c: the parameters of OpenAI's API. A row of the table says what Berth does with a parameter: it reads the value,
// ignores it because no result depends on it, or refuses it.

#include "base/min.h"
#include "serve/api.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum field_how {
    FIELD_IGNORE, // no result depends on it
    FIELD_REFUSE, // not supported; null, false and an empty array are accepted
    FIELD_INT,
    FIELD_REAL,
    FIELD_BOOL,
    FIELD_OTHER, // read by a function
};

struct field {
    const char *name;
    unsigned kinds; // bits 1 << api_kind: where OpenAI has the parameter
    enum field_how how;
    double min, max;
    size_t at; // offset in struct api_request: int64_t, float or bool
    bool (*read)(struct api_parser *p);
};

// ---- values ----

static bool real_read(struct api_parser *p, double min, double max, float *out) {
    struct berth_json_text text;
    char number[64];
    if (!berth_json_number_text(p->json, &text)) {
        return api_refuse_json(p);
    }
    if (text.len >= sizeof number) {
        return api_refuse(p, "%s: the number has %zu characters, at most %zu are allowed", p->name, text.len, sizeof number - 1);
    }
    memcpy(number, text.text, text.len);
    number[text.len] = '\0';
    const double x = strtod(number, NULL);
    if (!(x >= min && x <= max)) {
        return api_refuse(p, "%s %s is not a number from %g to %g", p->name, number, min, max);
    }
    *out = (float) x;
    return true;
}

static bool unsupported_read(struct api_parser *p) {
    bool flag = true;
    const char c = berth_json_peek(p->json);
    if (c == 'f' || c == 't') {
        if (!api_parse_bool(p, &flag)) {
            return false;
        }
    } else if (c == '[') {
        flag = !berth_json_array(p->json) || berth_json_next(p->json);
    }
    if (p->json->status != GGML_STATUS_SUCCESS) {
        return api_refuse_json(p);
    }
    return !flag || api_fail(p->error, 400, "unsupported_parameter", p->name, "%s is not supported", p->name);
}

// ---- parameters with a function ----

static bool read_model(struct api_parser *p) {
    return api_parse_copy(p, &p->r->model);
}

static bool read_n_max(struct api_parser *p) {
    const bool is_new = strcmp(p->name, "max_completion_tokens") == 0;
    int64_t n = 0;
    if (!api_parse_int(p, 1, INT32_MAX, &n)) {
        return false;
    }
    if (is_new || !p->is_last_max) {
        p->r->n_max = n;
    }
    p->is_last_max = p->is_last_max || is_new;
    return true;
}

static bool read_seed(struct api_parser *p) {
    int64_t seed = 0;
    if (!api_parse_int(p, INT64_MIN + 1, INT64_MAX, &seed)) {
        return false;
    }
    p->r->sampling.seed = (uint64_t) seed;
    p->r->has_seed = true;
    return true;
}

static bool stop_add(struct api_parser *p, void *unused) {
    (void) unused;
    struct api_request *r = p->r;
    struct berth_json_text text;
    if (!api_parse_string(p, &text)) {
        return false;
    }
    if (text.len == 0 || text.len > ENGINE_MAX_STOP_SIZE) {
        return api_refuse(p, "stop: a text has %zu bytes, 1 to %d are allowed", text.len, ENGINE_MAX_STOP_SIZE);
    }
    if (r->n_stops == ENGINE_MAX_STOPS) {
        return api_refuse(p, "stop: at most %d texts are allowed", ENGINE_MAX_STOPS);
    }
    char *copy = api_text_copy(p, text.text, text.len);
    if (copy == NULL || !BERTH_GROW(&r->stops, &r->stops_room, r->n_stops + 1)) {
        return api_out_of_memory(p->error);
    }
    r->stops[r->n_stops++] = copy;
    return true;
}

static bool read_stop(struct api_parser *p) {
    p->r->n_stops = 0;
    return berth_json_peek(p->json) == '"' ? stop_add(p, NULL) : api_parse_array(p, stop_add, NULL);
}

static bool stream_option_read(struct api_parser *p, struct berth_json_text key, void *unused) {
    (void) unused;
    return berth_json_is(key, "include_usage") ? api_parse_bool(p, &p->r->has_stream_usage) : api_parse_skip(p);
}

static bool read_stream_options(struct api_parser *p) {
    return api_parse_object(p, stream_option_read, NULL);
}

// A number of alternatives for /v1/completions, a bool for /v1/chat/completions.
static bool read_logprobs(struct api_parser *p) {
    struct api_request *r = p->r;
    if (r->kind == API_CHAT) {
        return api_parse_bool(p, &r->has_logprobs);
    }
    r->has_logprobs = true;
    return api_parse_int(p, 0, API_MAX_TOP_LOGPROBS, &r->n_logprobs);
}

// A member of logit_bias: its key is the number of a token.
static bool bias_read(struct api_parser *p, struct berth_json_text key, void *unused) {
    (void) unused;
    struct api_request *r = p->r;
    char digits[12] = "", *end = digits;
    float bias = 0;
    if (key.len < sizeof digits) {
        memcpy(digits, key.text, key.len);
    }
    const long long token = strtoll(digits, &end, 10);
    if (end == digits || *end != '\0' || token < 0 || token > INT32_MAX) {
        return api_refuse(p, "logit_bias: a key is not a token number");
    }
    if (!real_read(p, -100, 100, &bias)) {
        return false;
    }
    if (r->n_biases == ENGINE_MAX_BIASES) {
        return api_refuse(p, "logit_bias: at most %d tokens are allowed", ENGINE_MAX_BIASES);
    }
    if (!BERTH_GROW(&r->biases, &r->biases_room, r->n_biases + 1)) {
        return api_out_of_memory(p->error);
    }
    // OpenAI: -100 bans a token.
    r->biases[r->n_biases++] = (struct sample_bias){(int32_t) token, bias <= -100 ? -INFINITY : bias};
    return true;
}

static bool read_logit_bias(struct api_parser *p) {
    p->r->n_biases = 0;
    return api_parse_object(p, bias_read, NULL);
}

static bool read_best_of(struct api_parser *p) {
    return api_parse_int(p, 1, API_MAX_CHOICES, &p->n_best);
}

static bool read_encoding(struct api_parser *p) {
    struct berth_json_text text;
    if (!api_parse_string(p, &text)) {
        return false;
    }
    p->r->is_base64 = berth_json_is(text, "base64");
    return p->r->is_base64 || berth_json_is(text, "float") || api_refuse(p, "encoding_format is not float or base64");
}

static bool modality_read(struct api_parser *p, void *unused) {
    (void) unused;
    struct berth_json_text text;
    if (!api_parse_string(p, &text)) {
        return false;
    }
    return berth_json_is(text, "text") ||
           api_fail(p->error, 400, "unsupported_parameter", p->name, "modalities: only text is supported");
}

static bool read_modalities(struct api_parser *p) {
    return api_parse_array(p, modality_read, NULL);
}

static bool read_parallel_calls(struct api_parser *p) {
    bool is_parallel = true;
    const bool ok = api_parse_bool(p, &is_parallel);
    p->r->is_one_call = !is_parallel;
    return ok;
}

// ---- the table ----

#define CHAT (1u << API_CHAT)
#define TEXT (1u << API_COMPLETION)
#define EMBED (1u << API_EMBEDDING)
#define MADE (CHAT | TEXT)
#define ALL (CHAT | TEXT | EMBED)
#define AT(field) .at = offsetof(struct api_request, field)
#define INT(least, most) .how = FIELD_INT, .min = least, .max = most
#define REAL(least, most) .how = FIELD_REAL, .min = least, .max = most
#define READ(function) .how = FIELD_OTHER, .read = function

static const struct field fields[] = {
    {"model", ALL, READ(read_model)},
    {"messages", CHAT, READ(api_read_messages)},
    {"prompt", TEXT, READ(api_read_inputs)},
    {"input", EMBED, READ(api_read_inputs)},
    {"max_tokens", MADE, READ(read_n_max)},
    {"max_completion_tokens", CHAT, READ(read_n_max)},
    {"temperature", MADE, REAL(0, API_MAX_TEMPERATURE), AT(sampling.temperature)},
    {"top_p", MADE, REAL(0, 1), AT(sampling.top_p)},
    {"n", MADE, INT(1, API_MAX_CHOICES), AT(n_choices)},
    {"seed", MADE, READ(read_seed)},
    {"stop", MADE, READ(read_stop)},
    {"stream", MADE, .how = FIELD_BOOL, AT(is_stream)},
    {"stream_options", MADE, READ(read_stream_options)},
    {"logprobs", MADE, READ(read_logprobs)},
    {"top_logprobs", CHAT, INT(0, API_MAX_TOP_LOGPROBS), AT(n_logprobs)},
    {"response_format", MADE, READ(api_read_response_format)},
    {"frequency_penalty", MADE, REAL(-2, 2), AT(sampling.frequency)},
    {"presence_penalty", MADE, REAL(-2, 2), AT(sampling.presence)},
    {"logit_bias", MADE, READ(read_logit_bias)},
    {"best_of", TEXT, READ(read_best_of)},
    {"encoding_format", EMBED, READ(read_encoding)},
    {"dimensions", EMBED, INT(1, INT32_MAX), AT(dimensions)},
    {"modalities", CHAT, READ(read_modalities)},
    // Not of OpenAI; with the names that other servers use.
    {"top_k", MADE, INT(0, INT32_MAX), AT(sampling.top_k)},
    {"min_p", MADE, REAL(0, 1), AT(sampling.min_p)},
    {"repeat_penalty", MADE, REAL(1e-6, 1e6), AT(sampling.repeat)},
    {"tools", CHAT, READ(api_read_tools)},
    {"tool_choice", CHAT, READ(api_read_tool_choice)},
    {"parallel_tool_calls", CHAT, READ(read_parallel_calls)},
    {"functions", CHAT, .how = FIELD_REFUSE},
    {"audio", CHAT, .how = FIELD_REFUSE},
    {"web_search_options", CHAT, .how = FIELD_REFUSE},
    {"echo", TEXT, .how = FIELD_REFUSE},
    {"suffix", TEXT, .how = FIELD_REFUSE},
    {"function_call", CHAT, .how = FIELD_IGNORE},
    {"user", ALL, .how = FIELD_IGNORE},
    {"store", CHAT, .how = FIELD_IGNORE},
    {"metadata", CHAT, .how = FIELD_IGNORE},
    {"service_tier", CHAT, .how = FIELD_IGNORE},
    {"safety_identifier", CHAT, .how = FIELD_IGNORE},
    {"prompt_cache_key", CHAT, .how = FIELD_IGNORE},
    {"prompt_cache_retention", CHAT, .how = FIELD_IGNORE},
    {"prediction", CHAT, .how = FIELD_IGNORE}, // a hint for speed
    {"reasoning_effort", CHAT, .how = FIELD_IGNORE},
    {"verbosity", CHAT, .how = FIELD_IGNORE},
};
#define N_FIELDS (sizeof fields / sizeof *fields)

static bool value_read(struct api_parser *p, const struct field *f) {
    void *target = (char *) p->r + f->at;
    int64_t n = 0;
    switch (f->how) {
        case FIELD_IGNORE: return api_parse_skip(p);
        case FIELD_REFUSE: return unsupported_read(p);
        case FIELD_REAL: return real_read(p, f->min, f->max, target);
        case FIELD_BOOL: return api_parse_bool(p, target);
        case FIELD_OTHER: return f->read(p);
        case FIELD_INT: break;
    }
    if (!api_parse_int(p, (int64_t) f->min, (int64_t) f->max, &n)) {
        return false;
    }
    memcpy(target, &n, sizeof n);
    return true;
}

bool api_field_read(struct api_parser *p, struct berth_json_text name, void *unused) {
    (void) unused;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if ((fields[i].kinds >> p->r->kind & 1) != 0 && berth_json_is(name, fields[i].name)) {
            p->name = fields[i].name;
            const bool ok = berth_json_null(p->json) || value_read(p, &fields[i]);
            p->name = NULL;
            return ok;
        }
    }
    char shown[48];
    snprintf(shown, sizeof shown, "%.*s", (int) min_size(name.len, 40), name.text);
    return api_fail(p->error, 400, "unknown_parameter", shown, "unknown parameter: '%s'", shown);
}
