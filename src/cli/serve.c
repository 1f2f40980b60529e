// SPDX-License-Identifier: MIT
// serve.c: `berth serve [MODEL]` serves a model with OpenAI's HTTP API. All memory is planned before the first request.

#include "base/min.h"
#include "cli/help.h"
#include "cli/models.h"
#include "model/chat.h"
#include "model/vocab.h"
#include "serve/server.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

struct options {
    struct model_options model;
    const char *host, *key_file, *cors, *template, *name;
    size_t memory;
    int32_t port, n_parallel, n_queue, wait_s, drain_s, timeout_s, n_connections, n_per_address;
    bool is_deterministic, is_plan, json, has_speed;
};

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_OPTION(
        0, "host", "ADDRESS", "listen on this address; 0.0.0.0: on all", .preset = "127.0.0.1", CLI_TO(struct options, host)),
    CLI_OPTION(0, "port", "N", "listen on this port; 0: any free port", .preset = "8080", CLI_RANGE(0, 65535),
        CLI_TO(struct options, port)),
    CLI_OPTION(0, "memory", "SIZE",
        "use at most SIZE bytes for weights, cache, compute buffers, engine and HTTP together (default: enough for every "
        "sequence of --parallel with a full context)",
        .kind = CLI_SIZE, CLI_TO(struct options, memory)),
    CLI_OPTION(0, "parallel", "N", "compute at most N sequences at the same time", .preset = "8", CLI_RANGE(1, 1024),
        CLI_TO(struct options, n_parallel)),
    CLI_OPTION('c', "ctx", "N", "tokens of one sequence, prompt and answer (default: the context of training, at most 4096)",
        .also = "ctx-size", CLI_INT_OF_MODEL(n_ctx, INT32_MAX)),
    CLI_OPT_BATCH,
    CLI_OPTION(0, "queue", "N", "at most N sequences wait for memory; more get status 429", .preset = "64", CLI_RANGE(1, 65536),
        CLI_TO(struct options, n_queue)),
    CLI_OPTION(0, "wait", "SECONDS", "a sequence waits at most this long; then it gets status 429", .preset = "60",
        CLI_RANGE(1, 86400), CLI_TO(struct options, wait_s)),
    CLI_OPTION(0, "drain", "SECONDS", "after SIGTERM or Ctrl-C, running requests have this time to finish", .preset = "30",
        CLI_RANGE(0, 86400), CLI_TO(struct options, drain_s)),
    CLI_OPTION(0, "deterministic", NULL, "the result of a request does not depend on the other requests",
        CLI_TO(struct options, is_deterministic)),
    CLI_OPTION(0, "api-key-file", "FILE", "accept only clients with a key of FILE, which has one key per line", .takes = "*",
        .use = CLI_READ, CLI_TO(struct options, key_file)),
    CLI_OPTION(0, "cors", "ORIGIN", "web pages of ORIGIN, such as https://chat.example, may use the server; *: all pages",
        CLI_TO(struct options, cors)),
    CLI_OPTION(0, "connections", "N", "accept at most N connections", .preset = "256", CLI_RANGE(1, 65536),
        CLI_TO(struct options, n_connections)),
    CLI_OPTION(0, "per-address", "N", "accept at most N connections of one address", .preset = "64", CLI_RANGE(1, 65536),
        CLI_TO(struct options, n_per_address)),
    CLI_OPTION(0, "timeout", "SECONDS", "close connections that need longer to send a request, or that make no progress",
        .preset = "60", CLI_RANGE(1, 86400), CLI_TO(struct options, timeout_s)),
    CLI_OPTION(0, "template", "NAME", "chat template: chatml, llama3, gemma, ... (default: that of the file)",
        .takes = "@templates", CLI_TO(struct options, template), .also = "chat-template"),
    CLI_OPTION(0, "alias", "NAME", "name of the model in the API (default: that of the file, without .gguf)",
        CLI_TO(struct options, name)),
    CLI_OPTION(0, "plan", NULL, "print the plan of the memory and exit", CLI_TO(struct options, is_plan)),
    CLI_PLACE_ROWS,
    CLI_OPT_LLAMA,
    {0},
};

const struct cli_help cli_serve_help = {
    .command = "serve",
    .what = "serve a model with OpenAI's HTTP API",
    .operands = "[MODEL]",
    .takes = ".gguf",
    .n_operands = {0, 1, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model)},
    .about =
        "Serves a model to many users: /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/models of OpenAI's API, "
        "with streaming; /health, /metrics for Prometheus, and a chat page at /. All memory is planned at the start. A request "
        "is admitted only if it fits until its last token; others wait in a queue, and beyond --queue and --wait they get status "
        "429. The server listens on 127.0.0.1 unless --host is given. Each response is logged on standard error, without its "
        "contents; --quiet switches the log off.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.model = {.may_llama = true, .is_pool = true}},
    .examples = {{"Serve the shipped model", "serve"},
        {"Serve a model within 6 GiB, for up to 16 users", "serve -m model.gguf --memory 6G --parallel 16"},
        {"For other machines, with keys", "serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt"}},
};

struct call {
    const struct options *o;
    struct workbench m;
    struct access_keys keys;
    char name[256]; // of the model
    struct service_params service_params;
    struct http_params http_params;
    struct serve_plan plan;
    int n_users;       // with a full context, at the same time
    char why[160];     // why one more user waits
    double per_second; // tokens of all of them; 0: unknown
    struct server server;
};

// ---- before the start ----

static int keys_open(struct call *s) {
    struct model_error error = {""};
    size_t size = 0;
    if (s->o->key_file == NULL) {
        return CLI_OK;
    }
    char *text = cli_read_text(s->o->key_file, &size);
    if (text == NULL) {
        return CLI_FAILURE;
    }
    const bool ok = access_keys_read(&s->keys, text, size, s->o->key_file, &error);
    memset(text, 0, size);
    berth_free(text);
    s->http_params.keys = &s->keys;
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

static int template_find(struct call *s) {
    struct model_error error = {""};
    s->service_params.chat = chat_template_of(berth_gguf_map_meta(s->m.model->file), s->o->template, &error);
    if (s->service_params.chat == NULL && s->o->template != NULL) {
        return cli_usage("serve", "unknown --template '%s'; 'berth chat --template x' lists all", s->o->template);
    }
    if (s->service_params.chat == NULL && !s->o->is_plan) {
        cli_warn("%s: %s, so /v1/chat/completions is refused; choose a template with --template", s->m.path, error.text);
    }
    return CLI_OK;
}

// The name of the file without folder and ".gguf".
static void name_set(struct call *s) {
    const char *slash = strrchr(s->m.path, '/'), *file = slash != NULL ? slash + 1 : s->m.path;
    const size_t n = strlen(file) - (berth_ends_with(file, ".gguf") ? 5 : 0);
    if (s->o->name != NULL) {
        snprintf(s->name, sizeof s->name, "%s", s->o->name);
    } else {
        snprintf(s->name, sizeof s->name, "%.*s", (int) n, file);
    }
}

static int plan_find(struct call *s) {
    const struct options *o = s->o;
    struct model_error error = {""};
    const struct serve_question q = {.model = s->m.model,
        .devices = &s->m.devices,
        .vocab = s->m.vocab,
        .n_ctx = o->model.n_ctx,
        .n_batch = o->model.n_batch,
        .n_running = o->n_parallel,
        .n_waiting = o->n_queue,
        .wait_us = (int64_t) o->wait_s * 1000000,
        .memory = o->memory,
        .is_deterministic = o->is_deterministic,
        .http = &s->http_params,
        .service = &s->service_params};
    if (!serve_plan_find(&q, &s->plan, &error)) {
        return cli_fail(o->memory > 0 ? CLI_NEGATIVE : CLI_FAILURE, "%s", error.text);
    }
    s->n_users = serve_plan_users(&s->plan, s->why, sizeof s->why);
    if (o->has_speed) {
        s->per_second = serve_plan_speed(&s->plan, &o->model, s->n_users, &error);
    }
    cli_context_warn(s->plan.engine.n_ctx, s->m.model->params.n_ctx_train);
    return CLI_OK;
}

static void plan_print(const struct call *s) {
    const struct serve_plan *p = &s->plan;
    char text[6][32];
    printf("%s: weights %s, cache %s for %" PRId64 " tokens, compute %s, work %s, engine and HTTP %s\n", s->name,
        cli_short_bytes(p->sizes.weights, text[0]), cli_short_bytes(p->sizes.cache, text[1]), p->engine.n_pool,
        cli_short_bytes(p->sizes.compute, text[2]), cli_short_bytes(p->sizes.work, text[3]),
        cli_short_bytes(p->sizes.own + p->http, text[4]));
    printf("total %s, %d users with a full context of %" PRId64 " tokens, up to %d at the same time\n",
        cli_short_bytes(serve_plan_size(p), text[5]), s->n_users, p->engine.n_ctx, p->engine.n_running);
    if (s->o->is_plan) {
        printf("one more user waits: %s\n", s->why);
    }
    if (s->per_second > 0) {
        printf("%d users: %.1f tokens/s predicted, %.1f per user, with half of each context filled\n", s->n_users, s->per_second,
            s->per_second / s->n_users);
    }
}

static void plan_print_json(const struct call *s) {
    const struct serve_plan *p = &s->plan;
    berth_json_printf(&(struct berth_json_writer){.file = stdout},
        "{'model': %s, 'users': %d, 'parallel': %d, 'ctx': %" PRId64 ", 'pool': %" PRId64 ", 'page': %" PRId64
        ", 'why_waiting': %s, 'per_second': %.3f, 'per_second_user': %.3f, 'total': %zu, 'weights': %zu, 'cache': %zu, "
        "'compute': %zu, 'work': %zu, 'engine': %zu, 'http': %zu}\n",
        s->m.path, s->n_users, p->engine.n_running, p->engine.n_ctx, p->engine.n_pool, p->engine.n_page, s->why, s->per_second,
        s->per_second / max_int(s->n_users, 1), serve_plan_size(p), p->sizes.weights, p->sizes.cache, p->sizes.compute,
        p->sizes.work, p->sizes.own, p->http);
}

// ---- serving ----

static struct http *stop_target; // for the signal handler

static void on_stop(int number) {
    (void) number;
    http_stop(stop_target);
}

static void signals_set(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

static void response_log(void *user, const struct http_log *entry) {
    char when[32] = "";
    struct tm parts;
    const time_t now = time(NULL);
    (void) user;
    if (gmtime_r(&now, &parts) != NULL) {
        (void) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    fprintf(stderr, "%s %s %s %d", when, entry->method, entry->path, entry->status);
    if (entry->n_prompt >= 0) {
        fprintf(stderr, " %" PRId64 "+%" PRId64 " tokens", entry->n_prompt, entry->n_made);
    }
    fprintf(stderr, " %.1f ms\n", (double) entry->time_us / 1000);
}

static int server_run(struct call *s) {
    struct model_error error = {""};
    const char *host = s->o->host;
    const bool is_v6 = strchr(host, ':') != NULL;
    if (!server_open(&s->server, &s->plan, &s->service_params, &s->http_params, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    stop_target = s->server.http;
    signals_set(on_stop);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // a log that cannot grow does not end the server
    printf("listening on http://%s%s%s:%d\n", is_v6 ? "[" : "", host, is_v6 ? "]" : "", http_port(s->server.http));
    fflush(stdout);
    const bool ok = http_run(s->server.http, &error);
    signals_set(SIG_IGN);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

static int serve_all(struct call *s) {
    int code = keys_open(s);
    if (code == CLI_OK) {
        code = template_find(s);
    }
    if (code == CLI_OK) {
        code = plan_find(s);
    }
    if (code != CLI_OK) {
        return code;
    }
    (s->o->json ? plan_print_json : plan_print)(s);
    return s->o->is_plan ? CLI_OK : server_run(s);
}

static int options_serve(const struct options *o) {
    struct model_options model = o->model;
    struct call s = {.o = o};
    if (!o->is_plan && !http_is_available()) {
        return cli_fail(CLI_FAILURE, "this build has no HTTP server: libmicrohttpd was not found when Berth was built");
    }
    model.plan_only = o->is_plan;
    const int opened = cli_model_open_text(&s.m, &model);
    if (opened != CLI_OK) {
        return opened;
    }
    name_set(&s);
    s.service_params = (struct service_params){.vocab = s.m.vocab, .model = s.name, .created = (int64_t) time(NULL)};
    s.http_params = (struct http_params){.host = o->host,
        .port = o->port,
        .cors = o->cors,
        .n_connections = o->n_connections,
        .n_per_address = o->n_per_address,
        .timeout_s = o->timeout_s,
        .drain_us = (int64_t) o->drain_s * 1000000,
        .log = cli_is_quiet() ? NULL : response_log};
    if (o->key_file == NULL && !access_host_is_local(o->host) && !o->is_plan) {
        cli_warn("without --api-key-file, everyone who reaches %s can use the server", o->host);
    }
    const int code = serve_all(&s);
    server_close(&s.server);
    access_keys_fini(&s.keys);
    workbench_close(&s.m);
    return code;
}

int cli_serve(const struct cli_args *args) {
    return options_serve(args->options);
}

int cli_serve_plan(const struct model_options *model, uint64_t memory, int n_parallel, bool json, bool has_speed) {
    struct options o;
    cli_options_init(&cli_serve_help, &o);
    o.model = *model;
    o.memory = memory;
    o.n_parallel = n_parallel;
    o.json = json;
    o.has_speed = has_speed;
    o.is_plan = true;
    return options_serve(&o);
}
