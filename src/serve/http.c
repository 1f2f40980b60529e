// SPDX-License-Identifier: MIT
// http.c: the HTTP server (http.h): its sockets, limits and event loop, with libmicrohttpd. The loop waits for libmicrohttpd's
// own epoll set, for the engine (wake_fd), and for clients that leave.

#include "base/min.h"
#include "serve/http_exchange.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_MS 500 // longest wait, for deadlines and stalled requests
#define FULL_US 2000000
#define N_EVENTS 64
#define BACKLOG 128
#define CONNECTION_SIZE 4096 // bytes of a connection's structs in libmicrohttpd and here, without its pool

bool http_is_available(void) {
    return true;
}

size_t http_size(const struct http_params *p) {
    return (size_t) p->n_connections * (HTTP_POOL_SIZE + HTTP_BLOCK_SIZE + CONNECTION_SIZE) + p->bodies_size;
}

// ---- calls from libmicrohttpd ----

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url, const char *method,
    const char *version, const char *data, size_t *size, void **state) {
    (void) version;
    struct exchange *e = *state;
    const enum MHD_Result result = exchange_receive(user, &e, &(struct exchange_call){connection, method, url, data, size});
    *state = e;
    return result;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code) {
    (void) user;
    (void) connection;
    if (*state != NULL) {
        exchange_free(*state, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
        *state = NULL;
    }
}

static void client_add(struct http *h, struct MHD_Connection *connection, void **context) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_client *c = berth_calloc(1, sizeof *c);
    h->n_clients++;
    *context = c;
    if (c == NULL) {
        return; // the connection has no deadline, but libmicrohttpd's timeout
    }
    c->fd = info->connect_fd;
    c->deadline_us = ggml_time_us() + (int64_t) h->params.timeout_s * 1000000;
    c->next = h->clients;
    if (c->next != NULL) {
        c->next->prev = c;
    }
    h->clients = c;
}

static void client_remove(struct http *h, struct http_client *c) {
    h->n_clients--;
    if (c == NULL) {
        return;
    }
    *(c->prev != NULL ? &c->prev->next : &h->clients) = c->next;
    if (c->next != NULL) {
        c->next->prev = c->prev;
    }
    berth_free(c);
}

static void on_connection(
    void *user, struct MHD_Connection *connection, void **context, enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        client_add(user, connection, context);
    } else {
        client_remove(user, *context);
    }
}

// ---- sockets ----

static bool address_is_local(const struct sockaddr *a) {
    if (a->sa_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *) (const void *) a)->sin_addr.s_addr) >> 24 == 127;
    }
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *) (const void *) a)->sin6_addr);
}

static int port_get(int fd) {
    struct sockaddr_storage a = {0};
    socklen_t size = sizeof a;
    if (getsockname(fd, (struct sockaddr *) &a, &size) != 0) {
        return -1;
    }
    const in_port_t port =
        a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *) &a)->sin6_port : ((struct sockaddr_in *) &a)->sin_port;
    return ntohs(port);
}

static bool listen_open(struct http *h, struct model_error *error) {
    const struct http_params *p = &h->params;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    char port[16];
    const int one = 1;
    snprintf(port, sizeof port, "%d", p->port);
    const int rc = getaddrinfo(p->host, port, &hints, &list);
    if (rc != 0) {
        return model_fail(error, "--host %s: %s", p->host, gai_strerror(rc));
    }
    h->listen_fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool ok = h->listen_fd >= 0;
    if (ok) {
        (void) setsockopt(h->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        ok = bind(h->listen_fd, list->ai_addr, list->ai_addrlen) == 0 && listen(h->listen_fd, BACKLOG) == 0;
    }
    if (ok) {
        h->is_local = address_is_local(list->ai_addr);
        h->port = port_get(h->listen_fd);
    } else {
        model_fail(error, "cannot listen on %s port %d: %s", p->host, p->port, strerror(errno));
    }
    freeaddrinfo(list);
    return ok;
}

static bool fd_watch(struct http *h, int fd, void *what) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool daemon_open(struct http *h, struct model_error *error) {
    const struct http_params *p = &h->params;
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll_fd < 0) {
        return model_fail(error, "cannot create the event loop: %s", strerror(errno));
    }
    h->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET,
        h->listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned) p->n_connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned) p->n_per_address,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned) p->timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t) HTTP_POOL_SIZE,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (h->daemon == NULL) {
        return model_fail(error, "cannot start the HTTP server with %d connections: %s", p->n_connections, strerror(errno));
    }
    h->listen_fd = -1; // libmicrohttpd closes it
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || !fd_watch(h, info->epoll_fd, NULL) || !fd_watch(h, h->wake_fd, h)) {
        return model_fail(error, "cannot watch the descriptors of the event loop: %s", strerror(errno));
    }
    return true;
}

struct http *http_new(const struct http_params *params, struct model_error *error) {
    struct http *h = berth_calloc(1, sizeof *h);
    if (h == NULL) {
        model_fail(error, "out of memory for the HTTP server");
        return NULL;
    }
    *h = (struct http){.params = *params,
        .size = http_size(params),
        .listen_fd = -1,
        .epoll_fd = -1,
        .wake_fd = params->service->wake_fd,
        .start_us = ggml_time_us()};
    atomic_init(&h->n_stops, 0);
    if (!listen_open(h, error) || !daemon_open(h, error)) {
        http_free(h);
        return NULL;
    }
    return h;
}

int http_port(const struct http *h) {
    return h->port;
}

static void fd_close(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

void http_free(struct http *h) {
    if (h == NULL) {
        return;
    }
    struct service *s = h->params.service;
    for (int i = 0; i < s->params.n_requests; i++) { // suspended connections cannot be closed
        if (s->slots[i].request != NULL) {
            exchange_lose(s->slots[i].request->user);
        }
    }
    if (h->daemon != NULL) {
        (void) MHD_run(h->daemon);
        MHD_stop_daemon(h->daemon);
    }
    fd_close(h->listen_fd);
    fd_close(h->epoll_fd);
    berth_free(h);
}

// ---- the loop ----

void http_stop(struct http *h) {
    const uint64_t one = 1;
    const int old_errno = errno;
    atomic_fetch_add(&h->n_stops, 1);
    (void) !write(h->wake_fd, &one, sizeof one);
    errno = old_errno;
}

static void wake_clear(struct http *h) {
    uint64_t n;
    (void) !read(h->wake_fd, &n, sizeof n);
}

// all: also requests that wait to submit more prompts.
static void requests_wake(struct http *h, bool all) {
    struct service *s = h->params.service;
    for (int i = 0; i < s->params.n_requests; i++) {
        struct request *r = s->slots[i].request;
        const bool has_news = atomic_exchange(&s->slots[i].has_news, false);
        if (r != NULL && r->user != NULL && (has_news || (all && r->is_stalled))) {
            exchange_wake(r->user);
        }
    }
}

// Closes connections that take too long; libmicrohttpd notices it and frees them. If all connections are in use, clients have only
// FULL_US to send a request, so that idle connections do not keep others out.
static void deadlines_check(struct http *h, int64_t now_us) {
    const int64_t timeout_us = (int64_t) h->params.timeout_s * 1000000;
    const int64_t spared_us = h->n_clients >= h->params.n_connections ? max_i64(timeout_us - FULL_US, 0) : 0;
    for (struct http_client *c = h->clients; c != NULL; c = c->next) {
        if (c->deadline_us != 0 && now_us > c->deadline_us - spared_us) {
            (void) shutdown(c->fd, SHUT_RDWR);
        }
    }
}

// Waits for events and handles them. False: the event loop failed.
static bool loop_step(struct http *h, struct model_error *error) {
    struct epoll_event events[N_EVENTS];
    MHD_UNSIGNED_LONG_LONG timeout = TICK_MS;
    if (MHD_get_timeout(h->daemon, &timeout) != MHD_YES || timeout > TICK_MS) {
        timeout = TICK_MS;
    }
    const int n = epoll_wait(h->epoll_fd, events, N_EVENTS, (int) timeout);
    if (n < 0 && errno != EINTR) {
        return model_fail(error, "epoll_wait failed: %s", strerror(errno));
    }
    for (int i = 0; i < n; i++) {
        void *what = events[i].data.ptr;
        if (what == h) {
            wake_clear(h);
        } else if (what != NULL) {
            exchange_lose(what);
        }
    }
    requests_wake(h, false);
    if (MHD_run(h->daemon) != MHD_YES) {
        return model_fail(error, "libmicrohttpd's event loop failed");
    }
    return true;
}

bool http_run(struct http *h, struct model_error *error) {
    int64_t end_us = INT64_MAX, checked_us = 0;
    bool is_cancelled = false;
    while (true) {
        if (!loop_step(h, error)) {
            return false;
        }
        const int64_t now_us = ggml_time_us();
        const int n_stops = atomic_load(&h->n_stops);
        if (now_us - checked_us > TICK_MS * 1000) {
            checked_us = now_us;
            deadlines_check(h, now_us);
            requests_wake(h, true);
        }
        if (n_stops > 0 && !h->is_closing) {
            h->is_closing = true;
            end_us = now_us + h->params.drain_us;
        }
        if (h->is_closing && h->params.service->n_active == 0) {
            return true;
        }
        if (h->is_closing && !is_cancelled && (now_us > end_us || n_stops > 1)) {
            is_cancelled = true;
            end_us = now_us + HTTP_FLUSH_US;
            engine_close(h->params.service->params.engine, 0);
        } else if (is_cancelled && now_us > end_us) {
            return true;
        }
    }
}
