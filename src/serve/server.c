// SPDX-License-Identifier: MIT
// server.c: opens and closes the parts of a server (server.h).

#include "serve/server.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#define RESERVED_FDS 64 // descriptors besides those of connections

static bool files_raise(int n_connections, struct model_error *error) {
    const rlim_t n = (rlim_t) n_connections + RESERVED_FDS;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= n) {
        return true;
    }
    if (limit.rlim_max < n) {
        return model_fail(error, "%d connections require %ju open files, but the limit is %ju; raise it with ulimit -n",
            n_connections, (uintmax_t) n, (uintmax_t) limit.rlim_max);
    }
    limit.rlim_cur = n;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ||
           model_fail(error, "the limit of open files cannot be raised to %ju: %s", (uintmax_t) n, strerror(errno));
}

bool server_open(struct server *s, const struct serve_plan *plan, struct service_params *service, struct http_params *http,
    struct model_error *error) {
    *s = (struct server){0};
    if (!files_raise(http->n_connections, error)) {
        return false;
    }
    s->engine = engine_new(&plan->engine, error);
    if (s->engine == NULL) {
        return false;
    }
    service->engine = s->engine;
    if (!service_init(&s->service, service)) {
        return model_fail(error, "out of memory for %d requests", service->n_requests);
    }
    http->service = &s->service;
    s->http = http_new(http, error);
    return s->http != NULL;
}

void server_close(struct server *s) {
    if (s->engine != NULL) {
        engine_close(s->engine, 0);
    }
    http_free(s->http); // releases the requests, so the engine must still exist
    engine_free(s->engine);
    if (s->service.slots != NULL) {
        service_fini(&s->service);
    }
}
