// SPDX-License-Identifier: MIT
// metrics.c: the functions of metrics.h.

#include "serve/metrics.h"
#include "base/json.h"

#include <inttypes.h>

static void row_write(FILE *file, const char *name, const char *type, const char *help, double value) {
    fprintf(file, "# HELP berth_%s %s\n", name, help);
    fprintf(file, "# TYPE berth_%s %s\n", name, type);
    fprintf(file, "berth_%s %.17g\n", name, value);
}

static void latency_write(FILE *file, const char *name, const char *help, const struct latency *l) {
    int64_t n = 0;
    fprintf(file, "# HELP berth_%s %s\n# TYPE berth_%s histogram\n", name, help, name);
    for (int i = 0; i + 1 < LATENCY_N_BUCKETS; i++) {
        n += l->counts[i];
        fprintf(file, "berth_%s_bucket{le=\"%g\"} %" PRId64 "\n", name, latency_limit(i), n);
    }
    fprintf(file, "berth_%s_bucket{le=\"+Inf\"} %" PRId64 "\n", name, l->n);
    fprintf(file, "berth_%s_sum %.6f\nberth_%s_count %" PRId64 "\n", name, 1e-6 * (double) l->sum_us, name, l->n);
}

void metrics_write(FILE *file, const struct metrics *m) {
    const struct engine_stats *e = &m->engine;
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"requests_running", "gauge", "Sequences that compute.", e->n_running},
        {"requests_waiting", "gauge", "Sequences in the queue.", e->n_waiting},
        {"requests_total", "counter", "Sequences submitted.", (double) e->n_requests},
        {"requests_done_total", "counter", "Sequences completed.", (double) e->n_done},
        {"requests_refused_total", "counter", "Sequences refused: queue full, too long, or waited too long.",
            (double) e->n_refused},
        {"requests_cancelled_total", "counter", "Sequences cancelled by their client.", (double) e->n_cancelled},
        {"requests_failed_total", "counter", "Admitted sequences that failed.", (double) e->n_failed},
        {"steps_total", "counter", "Batches computed.", (double) e->n_steps},
        {"prompt_tokens_total", "counter", "Prompt tokens computed.", (double) e->n_prompt_tokens},
        {"cached_tokens_total", "counter", "Prompt tokens that another sequence had computed.", (double) e->n_cached_tokens},
        {"generated_tokens_total", "counter", "Tokens generated.", (double) e->n_made_tokens},
        {"pool_tokens", "gauge", "Tokens that the cache holds.", (double) e->n_pool},
        {"pool_used_tokens", "gauge", "Tokens of the cache in use.", (double) e->n_used},
        {"pool_promised_peak_tokens", "gauge", "Largest number of tokens promised for a future step.",
            (double) e->n_promised_peak},
        {"context_tokens", "gauge", "Tokens of one sequence, at most.", (double) m->n_ctx},
        {"requests_running_limit", "gauge", "Sequences that compute at the same time, at most.", m->n_running},
        {"requests_waiting_limit", "gauge", "Sequences in the queue, at most.", m->n_waiting},
        {"uptime_seconds", "gauge", "Time since the start.", m->uptime_s},
        {"http_connections", "gauge", "Open connections.", m->n_connections},
        {"http_clients_gone_total", "counter", "Clients that left before the end of the response.", (double) m->n_gone},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        row_write(file, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    }
    latency_write(file, "first_token_seconds", "Time from a request to its first token.", &e->first);
    latency_write(file, "next_token_seconds", "Time between two tokens of a request.", &e->next);
    const struct {
        const char *kind;
        size_t size;
    } sizes[] = {{"weights", e->weights}, {"cache", e->cache}, {"compute", e->compute}, {"work", e->work}, {"engine", e->own},
        {"http", m->http_size}};
    fputs("# HELP berth_memory_bytes Planned memory.\n# TYPE berth_memory_bytes gauge\n", file);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fprintf(file, "berth_memory_bytes{kind=\"%s\"} %zu\n", sizes[i].kind, sizes[i].size);
    }
    if (e->waiting_kind != NULL) {
        fputs("# HELP berth_waiting_reason What the first sequence of the queue waits for.\n# TYPE berth_waiting_reason gauge\n",
            file);
        fprintf(file, "berth_waiting_reason{reason=\"%s\"} 1\n", e->waiting_kind);
        fprintf(file, "# The first sequence of the queue waits: %s.\n", e->why_waiting);
    }
    fputs("# HELP berth_http_responses_total Responses by class of status.\n# TYPE berth_http_responses_total counter\n", file);
    for (int i = 2; i < 6; i++) {
        fprintf(file, "berth_http_responses_total{class=\"%dxx\"} %" PRId64 "\n", i, m->n_answers[i]);
    }
}

void health_write(FILE *file, const struct metrics *m, bool with_details) {
    const struct engine_stats *e = &m->engine;
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'status': %s", m->is_closing ? "closing" : "ok");
    if (with_details) {
        berth_json_printf(&w, "'model': %s, 'context': %" PRId64 ", 'version': %s, 'uptime_s': %.1f", m->model, m->n_ctx,
            berth_version(), m->uptime_s);
        berth_json_printf(&w, "'queue': {'running': %d, 'waiting': %d, 'why_waiting': %s}", e->n_running, e->n_waiting,
            e->why_waiting[0] != '\0' ? e->why_waiting : NULL);
        berth_json_printf(&w, "'pool': {'tokens': %" PRId64 ", 'used': %" PRId64 ", 'promised_peak': %" PRId64 "}", e->n_pool,
            e->n_used, e->n_promised_peak);
        berth_json_printf(&w, "'memory': {'weights': %zu, 'cache': %zu, 'compute': %zu, 'work': %zu, 'engine': %zu, 'http': %zu}",
            e->weights, e->cache, e->compute, e->work, e->own, m->http_size);
    }
    berth_json_end(&w);
}
