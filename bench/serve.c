// SPDX-License-Identifier: MIT
// serve.c: measures the engine of `berth serve`: B requests at once, with prompts of PP tokens and answers of TG tokens. Prints tokens
// per second of the prompts and of the steps in which every sequence generates a token, by wall clock and by CPU time. Then some of
// the requests run alone, and their texts are compared. With -d, a difference is a failure. Then B clients send CLIENT_REQUESTS
// requests each, one after the other, with answers of TG / 2 to TG tokens, so that prompts and answers are computed in the same steps.
// Prints the median and the 99th percentile of the time to the first token and of the time between two tokens, in ms.
//
// Usage: bench-serve [-b B,B,...] [-p PP] [-n TG] [-g PAGE] [-t THREADS] [-r RUNS] [-d] MODEL
// -g: tokens per page; 0: one page per sequence, so that its keys are adjacent. -d: deterministic, as `berth serve --deterministic`.
// The best of RUNS runs is printed.

#include "clock.h"

#include "model/vocab.h"
#include "serve/engine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_B 256
#define CLIENT_REQUESTS 4

struct options {
    const char *path;
    int n_b, b[16];
    int64_t n_prompt, n_new, n_page;
    int n_threads, n_runs;
    bool is_deterministic;
};

struct bench {
    struct options o;
    struct model_devices devices;
    struct model *model;
    struct vocab *vocab;
    uint64_t texts[MAX_B]; // hash of each request's text
};

static int fail(const char *what) {
    fprintf(stderr, "bench-serve: %s\n", what);
    return 1;
}

static uint64_t text_hash(uint64_t h, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char) text[i]) * 1099511628211u;
    }
    return h;
}

// Prompts differ in their first token, so that no prefix is shared. Every request has its own seed.
static struct engine_ticket *request_start(struct bench *b, struct engine *e, int i, int64_t n_new, struct model_error *error) {
    static int32_t tokens[65536];
    for (int64_t k = 0; k < b->o.n_prompt; k++) {
        tokens[k] = (int32_t) ((3 + 7 * i + 11 * k * (k == 0 ? 0 : 1)) % b->model->params.n_vocab);
    }
    // A bias keeps the tokens that end a text out, so that all answers have the same length.
    struct sample_bias ends[ENGINE_MAX_BIASES];
    int64_t n_ends = 0;
    for (int32_t t = 0; t < b->vocab->n_tokens && n_ends < ENGINE_MAX_BIASES; t++) {
        if (vocab_is_end(b->vocab, t)) {
            ends[n_ends++] = (struct sample_bias){t, -1e30f};
        }
    }
    const struct engine_request r = {.tokens = tokens,
        .n_tokens = b->o.n_prompt,
        .n_max = n_new,
        .n_logprobs = -1,
        .sampling = {.temperature = 0, .top_p = 1, .repeat = 1, .seed = (uint64_t) i, .biases = ends, .n_biases = n_ends}};
    struct engine_ticket *t = NULL;
    return engine_submit(e, &r, &t, NULL, error) == ENGINE_OK ? t : NULL;
}

struct moment {
    double wall, cpu;
};

static struct moment moment_now(void) {
    return (struct moment){clock_s(CLOCK_MONOTONIC), clock_s(CLOCK_PROCESS_CPUTIME_ID)};
}

struct times {
    struct moment begin, first, end; // the start; every request has its first token; the last moment when all run
    int64_t n_steps;                 // tokens generated between `first` and `end`
};

static void best_keep(struct moment *best, double n, const struct moment *from, const struct moment *to) {
    const double wall = n / (to->wall - from->wall), cpu = n / (to->cpu - from->cpu);
    best->wall = wall > best->wall ? wall : best->wall;
    best->cpu = cpu > best->cpu ? cpu : best->cpu;
}

// The requests first ... first + n - 1, with answers of n_new tokens.
struct group {
    int first, n;
    int64_t n_new;
};

// False: a request failed.
static bool group_run(
    struct bench *b, struct engine *e, const struct group *g, uint64_t *hashes, struct times *out, struct model_error *error) {
    const int n = g->n;
    struct engine_ticket *tickets[MAX_B];
    struct engine_stats stats;
    int64_t n_at_first = 0;
    *out = (struct times){.begin = moment_now()};
    for (int i = 0; i < n; i++) {
        hashes[i] = 14695981039346656037u;
        tickets[i] = request_start(b, e, g->first + i, g->n_new, error);
        if (tickets[i] == NULL) {
            return false;
        }
    }
    int n_open = n, n_started = 0;
    bool has_started[MAX_B] = {false};
    while (n_open > 0) {
        bool has_waited = false; // for one request per round
        for (int i = 0; i < n; i++) {
            struct engine_piece piece;
            if (tickets[i] == NULL) {
                continue;
            }
            engine_read(tickets[i], has_waited ? 0 : 1000000, &piece);
            has_waited = true;
            hashes[i] = text_hash(hashes[i], piece.text, piece.n_text);
            if (piece.n_made > 0 && !has_started[i]) {
                has_started[i] = true;
                n_started++;
            }
            if (piece.end == ENGINE_ERROR) {
                return model_fail(error, "%s", piece.error);
            }
            if (piece.end != ENGINE_RUNNING) {
                n_open--;
                engine_release(tickets[i]);
                tickets[i] = NULL;
            }
        }
        engine_stats(e, &stats);
        if (n_started == n && out->first.wall == 0) {
            out->first = moment_now();
            n_at_first = stats.n_made_tokens;
        }
        if (n_open == n) {
            out->end = moment_now();
            out->n_steps = stats.n_made_tokens - n_at_first;
        }
    }
    return true;
}

// ---- latencies ----

struct times_list {
    double *items; // seconds
    size_t n, cap;
};

static bool times_add(struct times_list *l, double seconds) {
    if (!BERTH_GROW(&l->items, &l->cap, l->n + 1)) {
        return false;
    }
    l->items[l->n++] = seconds;
    return true;
}

static int times_compare(const void *a, const void *b) {
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

// Sorts the list. Returns milliseconds.
static double times_percentile(struct times_list *l, size_t percent) {
    if (l->n == 0) {
        return 0;
    }
    qsort(l->items, l->n, sizeof *l->items, times_compare);
    return 1000 * l->items[(l->n - 1) * percent / 100];
}

struct client {
    struct engine_ticket *ticket; // NULL: it has sent all its requests
    int n_sent;
    int64_t n_made; // tokens of the request so far
    double last;    // time of the request or of its last token
};

struct load {
    struct bench *b;
    struct engine *e;
    int n_open;
    struct times_list first, next;
    struct client clients[MAX_B];
};

// Prompts differ from those of all other requests.
static bool client_send(struct load *l, int i, struct model_error *error) {
    struct client *c = &l->clients[i];
    const int64_t half = l->b->o.n_new / 2;
    *c = (struct client){.n_sent = c->n_sent};
    if (c->n_sent == CLIENT_REQUESTS) {
        l->n_open--;
        return true;
    }
    c->last = clock_s(CLOCK_MONOTONIC);
    c->ticket = request_start(l->b, l->e, (3 + c->n_sent) * MAX_B + i, half + 1 + (c->n_sent * 7 + i * 5) % half, error);
    c->n_sent++;
    return c->ticket != NULL;
}

static bool client_read(struct load *l, int i, int64_t timeout_us, struct model_error *error) {
    struct client *c = &l->clients[i];
    struct engine_piece piece;
    engine_read(c->ticket, timeout_us, &piece);
    const double now = clock_s(CLOCK_MONOTONIC);
    if (piece.n_made > c->n_made) {
        if (!times_add(c->n_made == 0 ? &l->first : &l->next, (now - c->last) / (double) (piece.n_made - c->n_made))) {
            return model_fail(error, "out of memory for %zu times", l->next.n);
        }
        c->n_made = piece.n_made;
        c->last = now;
    }
    if (piece.end == ENGINE_RUNNING) {
        return true;
    }
    engine_release(c->ticket);
    return client_send(l, i, error);
}

static bool load_run(struct load *l, int n, struct model_error *error) {
    l->n_open = n;
    for (int i = 0; i < n; i++) {
        if (!client_send(l, i, error)) {
            return false;
        }
    }
    while (l->n_open > 0) {
        int64_t timeout_us = 1000000; // for one client per round
        for (int i = 0; i < n; i++) {
            if (l->clients[i].ticket == NULL) {
                continue;
            }
            if (!client_read(l, i, timeout_us, error)) {
                return false;
            }
            timeout_us = 0;
        }
    }
    return true;
}

// ---- a row ----

static bool case_run(struct bench *b, int n, struct model_error *error) {
    const int64_t n_ctx = (b->o.n_prompt + b->o.n_new + 63) / 64 * 64;
    const int64_t page = b->o.n_page > 0 ? b->o.n_page : n_ctx;
    const struct engine_params params = {.model = b->model,
        .devices = &b->devices,
        .vocab = b->vocab,
        .n_ctx = n_ctx,
        .n_pool = (n_ctx + page - 1) / page * page * n,
        .n_page = page,
        .n_batch = 512 + n,
        .n_running = n,
        .n_waiting = n,
        .is_deterministic = b->o.is_deterministic};
    struct times times;
    struct moment prompt = {0, 0}, steps = {0, 0};
    struct load load = {.b = b};
    uint64_t together[MAX_B], alone;
    int n_same = 0, n_compared = 0;
    for (int run = 0; run < b->o.n_runs; run++) {
        struct engine *e = engine_new(&params, error);
        const struct group warm = {.first = n, .n = n, .n_new = 2},
                           all = {.n = n, .n_new = b->o.n_new}; // warm: touches the memory
        if (e == NULL || !group_run(b, e, &warm, together, &times, error) || !group_run(b, e, &all, together, &times, error)) {
            return false;
        }
        best_keep(&prompt, (double) (b->o.n_prompt * n), &times.begin, &times.first);
        best_keep(&steps, (double) times.n_steps, &times.first, &times.end);
        if (run + 1 == b->o.n_runs) { // some of them alone
            const int step = n > 4 ? n / 4 : 1;
            for (int i = 0; i < n; i += step) {
                struct times t;
                const struct group one = {.first = i, .n = 1, .n_new = b->o.n_new};
                if (!group_run(b, e, &one, &alone, &t, error)) {
                    return false;
                }
                n_compared++;
                n_same += alone == together[i];
            }
        }
        load.e = e;
        if (!load_run(&load, n, error)) {
            return false;
        }
        engine_free(e);
    }
    printf("%5d %10.1f %10.1f %10.1f %10.1f %6d/%d %10.2f %10.2f %10.2f %10.2f\n", n, prompt.wall, steps.wall, prompt.cpu,
        steps.cpu, n_same, n_compared, times_percentile(&load.first, 50), times_percentile(&load.first, 99),
        times_percentile(&load.next, 50), times_percentile(&load.next, 99));
    berth_free(load.first.items);
    berth_free(load.next.items);
    fflush(stdout);
    return !b->o.is_deterministic || n_same == n_compared ||
           model_fail(error, "a text differs from the text of the request alone");
}

static bool list_parse(const char *text, struct options *o) {
    for (char *end; o->n_b < 16; text = end + 1) {
        o->b[o->n_b++] = (int) strtol(text, &end, 10);
        if (o->b[o->n_b - 1] < 1 || o->b[o->n_b - 1] > MAX_B || (*end != ',' && *end != '\0')) {
            return false;
        }
        if (*end == '\0') {
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv) {
    static struct bench b = {.o = {.n_prompt = 64, .n_new = 33, .n_page = 32, .n_threads = 1, .n_runs = 2}};
    struct model_error error = {""};
    for (int c; (c = getopt(argc, argv, "b:p:n:g:t:r:d")) != -1;) {
        switch (c) {
            case 'b':
                if (!list_parse(optarg, &b.o)) {
                    return fail("-b requires numbers from 1 to 256");
                }
                break;
            case 'p': b.o.n_prompt = strtol(optarg, NULL, 10); break;
            case 'n': b.o.n_new = strtol(optarg, NULL, 10); break;
            case 'g': b.o.n_page = strtol(optarg, NULL, 10); break;
            case 't': b.o.n_threads = (int) strtol(optarg, NULL, 10); break;
            case 'r': b.o.n_runs = (int) strtol(optarg, NULL, 10); break;
            case 'd': b.o.is_deterministic = true; break;
            default: return fail("usage: bench-serve [-b B,B,...] [-p PP] [-n TG] [-g PAGE] [-t THREADS] [-r RUNS] [-d] MODEL");
        }
    }
    if (b.o.n_b == 0) {
        list_parse("1,4,16", &b.o);
    }
    if (optind + 1 != argc || b.o.n_prompt < 1 || b.o.n_prompt > 65536 || b.o.n_new < 4 || b.o.n_runs < 1) {
        return fail("usage: bench-serve [-b B,B,...] [-p PP] [-n TG] [-g PAGE] [-t THREADS] [-r RUNS] [-d] MODEL");
    }
    b.model = model_open(argv[optind], &error);
    if (b.model == NULL || !model_devices_open(&b.devices, NULL, b.o.n_threads, &error) ||
        !model_place(b.model, &b.devices, false, NULL, NULL, &error) || (b.vocab = vocab_of_model(b.model, &error)) == NULL) {
        return fail(error.text);
    }
    printf("%5s %10s %10s %10s %10s %8s %10s %10s %10s %10s\n", "batch", "prompt", "steps", "cpu prompt", "cpu steps", "alone",
        "first p50", "first p99", "next p50", "next p99");
    for (int i = 0; i < b.o.n_b; i++) {
        if (!case_run(&b, b.o.b[i], &error)) {
            return fail(error.text);
        }
    }
    vocab_free(b.vocab);
    model_free(b.model);
    model_devices_close(&b.devices);
    return 0;
}
