// SPDX-License-Identifier: MIT
// api_error.c: how a request is refused (api.h).

#include "base/json.h"
#include "serve/api.h"

#include <stdarg.h>
#include <string.h>

bool api_fail(struct api_error *error, int status, const char *code, const char *param, const char *fmt, ...) {
    if (error->status != 0) {
        return false;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(error->message, sizeof error->message, fmt, args);
    va_end(args);
    error->status = status;
    error->code = code;
    snprintf(error->param, sizeof error->param, "%s", param != NULL ? param : "");
    return false;
}

bool api_out_of_memory(struct api_error *error) {
    return api_fail(error, 500, "out_of_memory", NULL, "out of memory for the request");
}

bool api_refuse(struct api_parser *p, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return api_fail(p->error, 400, "invalid_value", p->name, "%s", text);
}

bool api_refuse_json(struct api_parser *p) {
    if (p->json->status == GGML_STATUS_ALLOC_FAILED) {
        return api_out_of_memory(p->error);
    }
    return api_fail(p->error, 400, p->name != NULL ? "invalid_value" : "invalid_json", p->name, "%s", berth_last_error());
}

char *api_text_copy(struct api_parser *p, const char *text, size_t size) {
    char *copy = berth_arrays_new(&p->r->memory, size + 1, 1);
    if (copy == NULL) {
        api_out_of_memory(p->error);
        return NULL;
    }
    memcpy(copy, text, size);
    return copy;
}
