// SPDX-License-Identifier: MIT
// metrics.h: the texts of /metrics (Prometheus) and /health (JSON).
#pragma once

#include "serve/engine.h"

struct metrics {
    struct engine_stats engine;
    const char *model; // name
    int64_t n_ctx;
    int n_running, n_waiting; // limits
    size_t http_size;         // bytes that HTTP and requests use at most
    bool is_closing;
    double uptime_s;
    int n_connections;
    int64_t n_answers[6]; // [status / 100] HTTP responses
    int64_t n_gone;       // clients that closed the connection before the end of the response
};

void metrics_write(FILE *file, const struct metrics *m);
// with_details: the caller may see more than the state.
void health_write(FILE *file, const struct metrics *m, bool with_details);
