// SPDX-License-Identifier: MIT
// http_reply.c: the responses of an exchange (http_exchange.h).

#include "base/json.h"
#include "base/min.h"
#include "serve/http_exchange.h"
#include "serve/metrics.h"
#include "serve/page.h"

#include <string.h>
#include <sys/epoll.h>

#define SEND_US 600000000 // time to receive an answer that is complete
#define LATE_TIMEOUTS 5   // timeouts in which the client of a stream must catch up with the engine

static const char json_type[] = "application/json";

static void header_add(struct MHD_Response *response, const char *name, const char *value) {
    (void) MHD_add_response_header(response, name, value);
}

static void headers_add(const struct exchange *e, struct MHD_Response *response, const char *type) {
    const struct http *h = e->http;
    if (type != NULL) {
        header_add(response, "Content-Type", type);
    }
    header_add(response, "Cache-Control", "no-store");
    header_add(response, "X-Content-Type-Options", "nosniff");
    if (h->params.cors != NULL) {
        header_add(response, "Access-Control-Allow-Origin", h->params.cors);
        header_add(response, "Access-Control-Expose-Headers", "Retry-After");
        header_add(response, "Vary", "Origin");
    }
    if (h->is_closing) {
        header_add(response, "Connection", "close");
    }
}

// Queues the response and drops the caller's reference.
static enum MHD_Result response_queue(struct exchange *e, int status, struct MHD_Response *response) {
    const enum MHD_Result result = MHD_queue_response(e->connection, (unsigned) status, response);
    MHD_destroy_response(response);
    e->is_replied = true;
    e->status = status;
    return result;
}

// Queues a text that the response then owns. NULL: closes the connection.
static enum MHD_Result text_queue(struct exchange *e, int status, const char *type, struct berth_stream *s) {
    if (!berth_stream_close(s)) {
        return MHD_NO;
    }
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(s->size, s->text, berth_free);
    if (response == NULL) {
        berth_stream_fini(s);
        return MHD_NO;
    }
    headers_add(e, response, type);
    return response_queue(e, status, response);
}

static const char *allowed_method(enum http_route route) {
    return route == ROUTE_CHAT || route == ROUTE_COMPLETIONS || route == ROUTE_EMBEDDINGS ? "POST" : "GET, HEAD";
}

enum MHD_Result reply_error(struct exchange *e, const struct api_error *error) {
    struct berth_stream s;
    char retry[16];
    if (!berth_stream_open(&s)) {
        return MHD_NO;
    }
    api_write_error(s.file, error);
    if (!berth_stream_close(&s)) {
        return MHD_NO;
    }
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(s.size, s.text, berth_free);
    if (response == NULL) {
        berth_stream_fini(&s);
        return MHD_NO;
    }
    headers_add(e, response, json_type);
    if (error->retry_s > 0) {
        snprintf(retry, sizeof retry, "%d", error->retry_s);
        header_add(response, "Retry-After", retry);
    }
    if (error->status == 401) {
        header_add(response, "WWW-Authenticate", "Bearer");
    }
    if (error->status == 405) {
        header_add(response, "Allow", allowed_method(e->route));
    }
    return response_queue(e, error->status, response);
}

enum MHD_Result reply_preflight(struct exchange *e) {
    struct MHD_Response *response = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        return MHD_NO;
    }
    headers_add(e, response, NULL);
    header_add(response, "Access-Control-Allow-Methods", "GET, POST");
    header_add(response, "Access-Control-Allow-Headers", "Authorization, Content-Type, *");
    header_add(response, "Access-Control-Max-Age", "600");
    return response_queue(e, 204, response);
}

// ---- routes that only read ----

static void metrics_get(const struct http *h, struct metrics *m) {
    const struct service_params *p = &h->params.service->params;
    *m = (struct metrics){.model = p->model,
        .n_ctx = p->n_ctx,
        .n_running = p->n_running,
        .n_waiting = p->n_waiting,
        .http_size = h->size + service_size(p, p->vocab->n_tokens),
        .is_closing = h->is_closing,
        .uptime_s = (double) (ggml_time_us() - h->start_us) / 1e6,
        .n_connections = h->n_clients,
        .n_gone = h->n_gone};
    memcpy(m->n_answers, h->n_answers, sizeof m->n_answers);
    engine_stats(p->engine, &m->engine);
}

static enum MHD_Result page_queue(struct exchange *e) {
    const struct page_file *file = page_find(e->path);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(file->text), (void *) file->text, MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        return MHD_NO;
    }
    headers_add(e, response, file->type);
    header_add(response, "Content-Security-Policy",
        "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    header_add(response, "Referrer-Policy", "no-referrer");
    return response_queue(e, 200, response);
}

enum MHD_Result reply_get(struct exchange *e) {
    const struct service_params *p = &e->http->params.service->params;
    const char *type = json_type;
    struct metrics m;
    struct berth_stream s;
    if (e->route == ROUTE_PAGE) {
        return page_queue(e);
    }
    if (!berth_stream_open(&s)) {
        return MHD_NO;
    }
    if (e->route == ROUTE_MODELS) {
        api_write_models(s.file, p->model, p->created, p->n_ctx);
    } else if (e->route == ROUTE_MODEL) {
        struct berth_json_writer w = {.file = s.file};
        api_write_model(&w, NULL, p->model, p->created, p->n_ctx);
    } else {
        metrics_get(e->http, &m);
        if (e->route == ROUTE_METRICS) {
            type = "text/plain; version=0.0.4; charset=utf-8";
            metrics_write(s.file, &m);
        } else {
            health_write(s.file, &m, e->has_key);
        }
    }
    return text_queue(e, e->route == ROUTE_HEALTH && e->http->is_closing ? 503 : 200, type, &s);
}

// ---- answers ----

// Limits the time of a slow client, unless a limit is set already.
static void deadline_set(struct exchange *e, int64_t limit_us) {
    if (e->client != NULL && e->client->deadline_us == 0) {
        e->client->deadline_us = ggml_time_us() + limit_us;
    }
}

static void deadline_clear(struct exchange *e) {
    if (e->client != NULL) {
        e->client->deadline_us = 0;
    }
}

enum MHD_Result reply_request(struct exchange *e) {
    struct berth_stream s;
    if (!berth_stream_open(&s)) {
        return MHD_NO;
    }
    deadline_set(e, SEND_US);
    request_write(e->request, s.file);
    return text_queue(e, 200, json_type, &s);
}

// Registers the socket in http's own epoll set, so that a lost client is noticed while the connection is suspended.
static void socket_watch(struct exchange *e) {
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = e};
    if (!e->is_watched && e->client != NULL) {
        e->is_watched = epoll_ctl(e->http->epoll_fd, EPOLL_CTL_ADD, e->client->fd, &event) == 0;
    }
}

void exchange_suspend(struct exchange *e) {
    socket_watch(e);
    deadline_clear(e); // the client waits for the engine
    e->is_suspended = true;
    MHD_suspend_connection(e->connection);
}

// Gives the next bytes of a stream to libmicrohttpd. Text is taken from the engine only when the client can receive it, so a slow
// client's text stays in the engine's buffers. It keeps its tickets meanwhile, so its time is limited: from the first bytes that are
// there to be sent, until the client has got everything that the engine has made.
static ssize_t stream_read(void *user, uint64_t pos, char *to, size_t max) {
    struct exchange *e = user;
    struct request *r = e->request;
    const bool was_closed = r->is_closed;
    (void) pos;
    if (e->is_gone) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (r->out_at == r->n_out) {
        r->out_at = r->n_out = 0;
        if (!r->is_closed && request_poll(r) == REQUEST_FAILED && !r->is_closed) {
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        if (!was_closed && !r->has_more) {
            deadline_clear(e);
        }
    }
    if (r->is_closed) {
        deadline_set(e, SEND_US);
    } else if (r->out_at < r->n_out) {
        deadline_set(e, LATE_TIMEOUTS * (int64_t) e->http->params.timeout_s * 1000000);
    }
    if (r->out_at < r->n_out) {
        const size_t n = min_size(max, r->n_out - r->out_at);
        memcpy(to, r->out + r->out_at, n);
        r->out_at += n;
        return (ssize_t) n;
    }
    if (r->is_closed) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    exchange_suspend(e);
    return 0;
}

enum MHD_Result reply_stream(struct exchange *e) {
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, HTTP_BLOCK_SIZE, stream_read, e, NULL);
    if (response == NULL) {
        return MHD_NO;
    }
    headers_add(e, response, "text/event-stream; charset=utf-8");
    header_add(response, "X-Accel-Buffering", "no"); // nginx passes events on at once
    return response_queue(e, 200, response);
}
