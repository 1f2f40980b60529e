// SPDX-License-Identifier: MIT
// http_absent.c: the functions of http.h in builds without libmicrohttpd.

#include "serve/http.h"

bool http_is_available(void) {
    return false;
}

size_t http_size(const struct http_params *params) {
    (void) params;
    return 0;
}

struct http *http_new(const struct http_params *params, struct model_error *error) {
    (void) params;
    model_fail(error, "this build has no HTTP server: libmicrohttpd was not found when Berth was built");
    return NULL;
}

int http_port(const struct http *h) {
    (void) h;
    return -1;
}

bool http_run(struct http *h, struct model_error *error) {
    (void) h;
    return model_fail(error, "this build has no HTTP server");
}

void http_stop(struct http *h) {
    (void) h;
}

void http_free(struct http *h) {
    (void) h;
}
