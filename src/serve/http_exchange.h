// SPDX-License-Identifier: MIT
// http_exchange.h: an exchange is one HTTP request and its response. http.c has the connections and the event loop,
// http_exchange.c the exchanges, http_reply.c their responses. All functions run in the thread of http_run.
//
//     headers --exchange_receive--> body --request_new--> suspended --exchange_wake--> response or stream --> exchange_free
//
// While the engine works on a request, its connection is suspended: libmicrohttpd ignores it. http.c watches its socket, because
// libmicrohttpd would notice a lost client only at the next write.
#pragma once

#include "serve/http.h"

#include <microhttpd.h>

// One connection. Its deadline limits the time of a client that sends or receives a byte now and then.
struct http_client {
    struct http_client *prev, *next;
    int fd;
    int64_t deadline_us; // 0: none
};

enum http_route {
    ROUTE_UNKNOWN,
    ROUTE_CHAT,
    ROUTE_COMPLETIONS,
    ROUTE_EMBEDDINGS,
    ROUTE_MODELS,
    ROUTE_MODEL, // /v1/models/NAME
    ROUTE_HEALTH,
    ROUTE_METRICS,
    ROUTE_PAGE, // a file of the page; page_find(path) is not NULL
};

struct exchange {
    struct http *http;
    struct MHD_Connection *connection;
    struct http_client *client; // NULL: out of memory when it connected
    enum http_route route;
    const char *method; // constant text
    char path[64];      // for the log
    bool has_key;       // the client has a valid key, or none is required
    char *body;         // [n_body]
    size_t n_body, body_room;
    size_t n_dropped; // bytes of a body that is not kept, because the request is refused
    struct request *request;
    struct api_error error;
    bool is_suspended, is_watched, is_replied, is_gone;
    int status; // of the response
    int64_t start_us;
};

struct http {
    struct http_params params;
    struct MHD_Daemon *daemon;
    int listen_fd, epoll_fd, wake_fd, port;
    size_t size;   // http_size
    bool is_local; // listens on a loopback address only
    atomic_int n_stops;
    bool is_closing;
    struct http_client *clients;
    int n_clients;
    size_t bodies_used; // bytes
    int64_t start_us;
    int64_t n_answers[6], n_gone; // as in struct metrics
};

// What libmicrohttpd passes to its callback.
struct exchange_call {
    struct MHD_Connection *connection;
    const char *method, *url;
    const char *data; // [*size] a part of the body
    size_t *size;     // set to 0 when the data is taken; 0: the end of the request
};

// Handles a call of libmicrohttpd: the headers (*slot is NULL), a part of the body, or the end of the request.
enum MHD_Result exchange_receive(struct http *h, struct exchange **slot, const struct exchange_call *call);
// Called when the engine has news for the exchange's request, and now and then.
void exchange_wake(struct exchange *e);
// The client has closed the connection: cancels its request.
void exchange_lose(struct exchange *e);
// is_complete: the response was sent.
void exchange_free(struct exchange *e, bool is_complete);

// ---- http_reply.c: each function queues the response of an exchange ----

enum MHD_Result reply_error(struct exchange *e, const struct api_error *error);
enum MHD_Result reply_request(struct exchange *e); // the complete answers
enum MHD_Result reply_stream(struct exchange *e);
enum MHD_Result reply_get(struct exchange *e); // the routes that only read
enum MHD_Result reply_preflight(struct exchange *e);
void exchange_suspend(struct exchange *e);
