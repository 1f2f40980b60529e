// SPDX-License-Identifier: MIT
// api_parse.c: reads values of a request body, and refuses the request if a value is not of the expected type (api.h).

#include "serve/api.h"

bool api_parse_object(struct api_parser *p, api_member_t member, void *user) {
    struct berth_json_text key;
    if (!berth_json_object(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_key(p->json, &key)) {
        if (!member(p, key, user)) {
            return false;
        }
    }
    return p->json->status == GGML_STATUS_SUCCESS || api_refuse_json(p);
}

bool api_parse_array(struct api_parser *p, api_element_t element, void *user) {
    if (!berth_json_array(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_next(p->json)) {
        if (!element(p, user)) {
            return false;
        }
    }
    return p->json->status == GGML_STATUS_SUCCESS || api_refuse_json(p);
}

bool api_parse_string(struct api_parser *p, struct berth_json_text *out) {
    return berth_json_string(p->json, out) || api_refuse_json(p);
}

bool api_parse_is(struct api_parser *p, const char *want, bool *is) {
    struct berth_json_text text;
    if (!api_parse_string(p, &text)) {
        return false;
    }
    *is = berth_json_is(text, want);
    return true;
}

bool api_parse_copy(struct api_parser *p, const char **out) {
    struct berth_json_text text;
    if (!api_parse_string(p, &text)) {
        return false;
    }
    *out = api_text_copy(p, text.text, text.len);
    return *out != NULL;
}

bool api_parse_bool(struct api_parser *p, bool *out) {
    return berth_json_bool(p->json, out) || api_refuse_json(p);
}

bool api_parse_int(struct api_parser *p, int64_t min, int64_t max, int64_t *out) {
    return berth_json_int(p->json, min, max, out) || api_refuse_json(p);
}

bool api_parse_skip(struct api_parser *p) {
    return berth_json_skip(p->json) || api_refuse_json(p);
}
