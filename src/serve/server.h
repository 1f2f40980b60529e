// SPDX-License-Identifier: MIT
// server.h: the parts of a server: the engine, the requests on it, and HTTP.
#pragma once

#include "serve/plan.h"

struct server {
    struct engine *engine;
    struct service service;
    struct http *http; // listens after server_open; http_run serves
};

// Allocates all memory of the plan and begins to listen. Raises the limit of open files if the connections require it. Sets the
// engine of *service and the service of *http. False: *error holds the cause. server_close is then necessary, too.
bool server_open(struct server *s, const struct serve_plan *plan, struct service_params *service, struct http_params *http,
    struct model_error *error);
void server_close(struct server *s);
