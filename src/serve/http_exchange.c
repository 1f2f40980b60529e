// SPDX-License-Identifier: MIT
// http_exchange.c: an HTTP request from its headers to its response (http_exchange.h).

#include "serve/http_exchange.h"
#include "serve/page.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define SMALL_BODY 65536                // bytes; a quarter of the memory for bodies is only for bodies up to this size
#define MAX_DROPPED ((size_t) 64 << 20) // bytes of a refused body that are read, so that the client gets the response

// ---- routes ----

static const char model_prefix[] = "/v1/models/";

static const struct {
    const char *path;
    enum http_route route;
    bool is_open; // no key is required
} routes[] = {
    {"/v1/chat/completions", ROUTE_CHAT, false},
    {"/v1/completions", ROUTE_COMPLETIONS, false},
    {"/v1/embeddings", ROUTE_EMBEDDINGS, false},
    {"/v1/models", ROUTE_MODELS, false},
    {"/metrics", ROUTE_METRICS, false},
    {"/health", ROUTE_HEALTH, true},
};

static bool is_post(enum http_route route) {
    return route == ROUTE_CHAT || route == ROUTE_COMPLETIONS || route == ROUTE_EMBEDDINGS;
}

static const char *header_get(const struct exchange *e, const char *name) {
    return MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, name);
}

// Sets route and path. *is_open: no key is required.
static void route_find(struct exchange *e, const char *url, bool *is_open) {
    const char *model = e->http->params.service->params.model;
    *is_open = false;
    snprintf(e->path, sizeof e->path, "%s", "(unknown)"); // a path of the client is not logged
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strcmp(url, routes[i].path) == 0) {
            e->route = routes[i].route;
            *is_open = routes[i].is_open;
            snprintf(e->path, sizeof e->path, "%s", url);
        }
    }
    if (page_find(url) != NULL) {
        e->route = ROUTE_PAGE;
        *is_open = true;
        snprintf(e->path, sizeof e->path, "%s", url);
    }
    if (strncmp(url, model_prefix, sizeof model_prefix - 1) == 0) {
        snprintf(e->path, sizeof e->path, "%s", "/v1/models/...");
        if (strcmp(url + sizeof model_prefix - 1, model) == 0) {
            e->route = ROUTE_MODEL;
        } else {
            api_fail(&e->error, 404, "model_not_found", "model", "the model does not exist; this server has '%.100s'", model);
        }
    }
}

static const char *method_known(const char *method) {
    static const char *const names[] = {"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(method, names[i]) == 0) {
            return names[i];
        }
    }
    return "OTHER";
}

static bool is_preflight(const struct exchange *e) {
    return strcmp(e->method, "OPTIONS") == 0 && e->http->params.cors != NULL;
}

static void body_announced_check(struct exchange *e) {
    const char *length = header_get(e, "Content-Length");
    const unsigned long long n = length != NULL ? strtoull(length, NULL, 10) : 0;
    if (n > e->http->params.max_body) {
        api_fail(&e->error, 413, "body_too_large", NULL, "the body has %llu bytes, at most %zu are allowed", n,
            e->http->params.max_body);
    }
}

// The checks that need only the headers. The first failure stays in e->error.
static void headers_check(struct exchange *e, const char *url) {
    const struct http *h = e->http;
    const char *host = header_get(e, "Host"), *origin = header_get(e, "Origin"), *type = header_get(e, "Content-Type");
    bool is_open = false;
    e->has_key = h->params.keys == NULL || access_key_is_valid(h->params.keys, header_get(e, "Authorization"));
    // Another site's name that resolves to this machine would give its pages access (DNS rebinding).
    if (h->is_local && !access_host_is_local(host)) {
        api_fail(&e->error, 403, "host_not_allowed", NULL, "this server is reached only as localhost; see --host");
    }
    if (!access_origin_is_allowed(origin, host, h->params.cors)) {
        api_fail(&e->error, 403, "origin_not_allowed", NULL, "pages of this origin may not use the server; see --cors");
    }
    route_find(e, url, &is_open);
    if (is_preflight(e)) {
        return;
    }
    if (!is_open && !e->has_key) {
        e->error.status = 0; // says nothing else to a client without a key
        api_fail(&e->error, 401, "invalid_api_key", NULL, "missing or wrong API key: send it as 'Authorization: Bearer KEY'");
    }
    if (e->route == ROUTE_UNKNOWN) {
        api_fail(&e->error, 404, "not_found", NULL, "this path does not exist");
    }
    if (strcmp(e->method, "POST") != 0 && is_post(e->route)) {
        api_fail(&e->error, 405, "method_not_allowed", NULL, "this path requires POST");
    }
    if (strcmp(e->method, "GET") != 0 && strcmp(e->method, "HEAD") != 0 && !is_post(e->route)) {
        api_fail(&e->error, 405, "method_not_allowed", NULL, "this path requires GET");
    }
    // A web page can send other types to any server without asking first.
    if (is_post(e->route) && (type == NULL || strncasecmp(type, "application/json", 16) != 0)) {
        api_fail(&e->error, 415, "unsupported_media_type", NULL, "Content-Type must be application/json");
    }
    if (is_post(e->route) && h->is_closing) {
        api_fail(&e->error, 503, "shutting_down", NULL, "the server is shutting down");
        e->error.retry_s = API_RETRY_S;
    }
    body_announced_check(e);
}

// ---- lifetime ----

static struct exchange *exchange_new(struct http *h, const struct exchange_call *call) {
    struct exchange *e = berth_calloc(1, sizeof *e);
    if (e == NULL) {
        return NULL;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(call->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    *e = (struct exchange){
        .http = h, .connection = call->connection, .method = method_known(call->method), .start_us = ggml_time_us()};
    if (info != NULL) {
        e->client = info->socket_context;
    }
    headers_check(e, call->url);
    return e;
}

static void body_drop(struct exchange *e) {
    e->http->bodies_used -= e->body_room;
    berth_free(e->body);
    e->body = NULL;
    e->n_body = e->body_room = 0;
}

static void socket_unwatch(struct exchange *e) {
    if (e->is_watched) {
        (void) epoll_ctl(e->http->epoll_fd, EPOLL_CTL_DEL, e->client->fd, NULL);
        e->is_watched = false;
    }
}

void exchange_free(struct exchange *e, bool is_complete) {
    struct http *h = e->http;
    const int class = e->status / 100;
    struct http_log entry = {e->method, e->path, e->status, -1, -1, ggml_time_us() - e->start_us};
    if (e->request != NULL) {
        const struct api_usage usage = request_usage(e->request);
        entry.n_prompt = usage.n_prompt;
        entry.n_made = usage.n_made;
    }
    if (!is_complete || e->is_gone) {
        h->n_gone++;
        entry.status = 499; // as in nginx: the client closed the connection
    } else if (class >= 0 && class < 6) {
        h->n_answers[class]++;
    }
    socket_unwatch(e);
    request_free(e->request);
    body_drop(e);
    if (h->params.log != NULL) {
        h->params.log(h->params.log_user, &entry);
    }
    if (e->client != NULL) { // the next request of the connection
        e->client->deadline_us = ggml_time_us() + (int64_t) h->params.timeout_s * 1000000;
    }
    berth_free(e);
}

// ---- the body ----

static void body_append(struct exchange *e, const char *data, size_t size) {
    struct http *h = e->http;
    const size_t room = e->body_room, most = h->params.bodies_size;
    const size_t limit = e->n_body + size <= SMALL_BODY ? most : most - most / 4;
    if (e->error.status == 0 && size > h->params.max_body - e->n_body) {
        api_fail(&e->error, 413, "body_too_large", NULL, "the body has more than %zu bytes", h->params.max_body);
    }
    if (e->error.status == 0 && e->n_body + size > room) { // the array may double
        if (h->bodies_used - room + 2 * (e->n_body + size) > limit) {
            api_fail(&e->error, 429, "rate_limit_exceeded", NULL,
                "bodies of %zu bytes are being received, at most %zu are allowed", h->bodies_used, limit);
            e->error.retry_s = API_RETRY_S;
        } else if (!BERTH_GROW(&e->body, &e->body_room, e->n_body + size)) {
            api_out_of_memory(&e->error);
        }
        h->bodies_used += e->body_room - room;
    }
    if (e->error.status != 0) {
        body_drop(e);
        e->n_dropped += size;
        return;
    }
    memcpy(e->body + e->n_body, data, size);
    e->n_body += size;
}

// ---- the end of the request ----

static enum api_kind route_kind(enum http_route route) {
    if (route == ROUTE_CHAT) {
        return API_CHAT;
    }
    return route == ROUTE_COMPLETIONS ? API_COMPLETION : API_EMBEDDING;
}

static enum MHD_Result request_begin(struct exchange *e) {
    if (e->client != NULL) {
        e->client->deadline_us = 0; // the engine's limits apply from here
    }
    e->request = request_new(e->http->params.service, route_kind(e->route), e->body != NULL ? e->body : "", e->n_body, &e->error);
    body_drop(e);
    if (e->request == NULL) {
        return reply_error(e, &e->error);
    }
    e->request->user = e;
    exchange_suspend(e);
    return MHD_YES;
}

// The connection was resumed: the state of the request has changed.
static enum MHD_Result request_reply(struct exchange *e) {
    const enum request_state state = request_state(e->request);
    if (e->is_gone) {
        return MHD_NO;
    }
    if (state == REQUEST_FAILED) {
        return reply_error(e, &e->request->error);
    }
    if (e->request->api.is_stream && (state == REQUEST_DONE || e->request->n_out > 0)) {
        return reply_stream(e);
    }
    if (state == REQUEST_DONE) {
        return reply_request(e);
    }
    exchange_suspend(e);
    return MHD_YES;
}

enum MHD_Result exchange_receive(struct http *h, struct exchange **slot, const struct exchange_call *call) {
    struct exchange *e = *slot;
    if (e == NULL) {
        *slot = exchange_new(h, call);
        return *slot != NULL ? MHD_YES : MHD_NO;
    }
    if (*call->size > 0) {
        body_append(e, call->data, *call->size);
        *call->size = 0;
        return e->n_dropped <= MAX_DROPPED ? MHD_YES : MHD_NO;
    }
    if (e->request != NULL) {
        return request_reply(e);
    }
    if (e->error.status != 0) {
        return reply_error(e, &e->error);
    }
    if (is_preflight(e)) {
        return reply_preflight(e);
    }
    return is_post(e->route) ? request_begin(e) : reply_get(e);
}

// ---- news ----

static void exchange_resume(struct exchange *e) {
    e->is_suspended = false;
    MHD_resume_connection(e->connection);
}

void exchange_wake(struct exchange *e) {
    struct request *r = e->request;
    if (!e->is_suspended) {
        return; // the connection is being written to, or it is resumed already
    }
    if (e->is_replied) {
        exchange_resume(e);
        return;
    }
    const enum request_state state = request_poll(r);
    if (state == REQUEST_DONE || state == REQUEST_FAILED || r->n_out > 0) {
        exchange_resume(e);
    }
}

void exchange_lose(struct exchange *e) {
    const enum request_state state = request_state(e->request);
    if (e->is_replied && !e->is_suspended && (state == REQUEST_DONE || state == REQUEST_FAILED)) {
        return; // the response is being sent, or it is sent and the client has closed the connection
    }
    e->is_gone = true;
    for (size_t i = 0; i < e->request->n_items; i++) {
        if (e->request->items[i].ticket != NULL) {
            engine_cancel(e->request->items[i].ticket);
        }
    }
    if (e->is_suspended) {
        exchange_resume(e);
    }
}
