// SPDX-License-Identifier: MIT
// http.h: the HTTP server. One thread, the caller of http_run, handles all connections; the engine computes in its own thread.
// Builds without libmicrohttpd have http_absent.c, in which http_new fails.
#pragma once

#include "serve/access.h"
#include "serve/request.h"

#define HTTP_POOL_SIZE 32768  // bytes per connection: limits the header of a request
#define HTTP_BLOCK_SIZE 8192  // bytes of a stream that are sent at a time
#define HTTP_FLUSH_US 2000000 // time for the last responses at the end

struct http_log { // of one response
    const char *method, *path;
    int status;
    int64_t n_prompt, n_made; // -1: not a request of the model
    int64_t time_us;
};

struct http_params {
    struct service *service;
    const char *host;               // address or name to listen on
    int port;                       // 0: any free port
    const struct access_keys *keys; // NULL: no key is required
    const char *cors;               // origin whose pages may use the server; "*": all; NULL: none
    int n_connections, n_per_address;
    int timeout_s;                                         // for a complete request; also the longest time without progress
    size_t max_body;                                       // bytes of a request body
    size_t bodies_size;                                    // bytes of all bodies that are being received
    int64_t drain_us;                                      // time for running requests after http_stop
    void (*log)(void *user, const struct http_log *entry); // NULL: none
    void *log_user;
};

struct http;

// Returns whether this build has an HTTP server.
bool http_is_available(void);
// Bytes that connections and bodies use at most.
size_t http_size(const struct http_params *params);
// Begins to listen. NULL: *error holds the cause.
struct http *http_new(const struct http_params *params, struct model_error *error);
int http_port(const struct http *h);
// Serves until http_stop. Then new requests get status 503, and running requests may finish within drain_us; at the end of this
// time, or after a second http_stop, the engine is closed, which cancels them. False: the event loop failed.
bool http_run(struct http *h, struct model_error *error);
// May be called in a signal handler.
void http_stop(struct http *h);
void http_free(struct http *h);
