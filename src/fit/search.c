// SPDX-License-Identifier: MIT
// search.c: the best setting of a model within limits. Every question is answered by planning the graphs as a session would;
// nothing is loaded here.
//   Without leave to give anything up: the largest context, found by halving between one that fits and one that does not,
// then the largest batch likewise.
//   With it, a context that is wanted is kept, and the least is given up that makes it fit: first tokens of a batch, which cost
// speed with prompts alone, as does what runs again, the next; then bits of the cache, then layers that leave the GPUs, which
// costs the most. If all of it does not suffice, the largest context with all of it given up.

#include "fit/search.h"

#include <inttypes.h>
#include <string.h>

#define BATCH 512         // a context is worth more than a batch beyond this
#define BATCH_LEAST 32    // ... and less is worth little
#define AGAIN_TRIES 8     // for a limit on graphs: what is missing shrinks from one to the next
#define AGAIN_US 20000000 // for all of them together, but for those of the answer

struct search {
    const struct fit_question *q;
    struct workbench *m;
    struct fit_answer *a;
    bool may_again; // ops may run again
    bool is_last;   // it fitted before: this is the answer
    int64_t until;  // when to look no longer for what may run again
};

// ---- options ----

int fit_allow_parse(const char *command, const char *text, unsigned *allow) {
    static const struct {
        const char *name;
        unsigned bit;
    } names[] = {{"cache-type", FIT_CACHE_TYPE}, {"batch", FIT_BATCH}, {"spill", FIT_SPILL}, {"recompute", FIT_RECOMPUTE}};
    if (*text == '\0') {
        return cli_usage(command, "--allow '' names none of cache-type, batch, spill, recompute");
    }
    while (*text != '\0') {
        const size_t n = strcspn(text, ",");
        unsigned bit = 0;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            bit = strlen(names[i].name) == n && strncmp(names[i].name, text, n) == 0 ? names[i].bit : bit;
        }
        if (bit == 0) {
            return cli_usage(command, "--allow '%.*s' is none of cache-type, batch, spill, recompute", (int) n, text);
        }
        *allow |= bit;
        text += n + (text[n] == ',');
    }
    return CLI_OK;
}

// ---- asking ----

// A GPU takes no more layers than its limit has room for.
static bool rooms_set(struct model_devices *devices, const void *user) {
    const struct fit_question *q = user;
    for (size_t i = 0; i < q->limits.n; i++) {
        const int d = fit_limit_device(&q->limits.items[i], devices);
        if (d >= 0 && d + 1 < devices->n && !model_devices_set_room(devices, d, q->limits.items[i].bytes)) {
            return false;
        }
    }
    return true;
}

static void options_set(const struct fit_question *q, struct model_options *o, int64_t n_host) {
    o->n_host = n_host;
    o->rooms = (q->allow & FIT_SPILL) != 0 ? rooms_set : NULL;
    o->rooms_user = q;
}

static int open_with(const struct fit_question *q, struct workbench *m, int64_t n_host) {
    struct model_options o = q->model;
    o.plan_only = true;
    options_set(q, &o, n_host);
    return cli_model_open(m, &o);
}

int fit_open(struct fit_question *q, struct workbench *m) {
    int code = open_with(q, m, 0);
    if (code == CLI_OK) {
        code = fit_limits_resolve(&q->limits, m);
        if (code != CLI_OK) {
            workbench_close(m);
        }
    }
    return code;
}

static int session_plan(struct search *s, const struct model_options *o) {
    session_free(s->m->session);
    s->m->session = NULL;
    return cli_model_session(s->m, o);
}

static size_t compute_of(const struct workbench *m) {
    size_t bytes = 0;
    for (int d = 0; d < m->devices.n; d++) {
        bytes += m->session->memory[d].compute;
    }
    return bytes;
}

// The same with less for graphs, by what is missing. Not kept, or as many tries in vain: the session is planned without.
static int again_try(struct search *s, struct model_options *o, int *full) {
    size_t limit = s->a->compute_once;
    int code = CLI_OK;
    for (int i = 0; code == CLI_OK && i < AGAIN_TRIES && *full != FIT_NONE; i++) {
        if (!s->is_last && ggml_time_us() > s->until) {
            s->a->is_cut = true;
            break;
        }
        const uint64_t missing = fit_bytes(s->m, *full) - fit_limits_get(&s->q->limits, *full)->bytes;
        const size_t taken = compute_of(s->m) < limit ? compute_of(s->m) : limit;
        if (missing >= taken) {
            break;
        }
        o->compute = limit = taken - (size_t) missing;
        code = session_plan(s, o);
        if (code == CLI_OK) {
            s->a->compute_least = s->m->session->again.least;
        }
        if (code != CLI_OK || !s->m->session->again.is_kept) {
            break;
        }
        *full = fit_limits_passed(&s->q->limits, s->m);
    }
    s->a->compute = *full == FIT_NONE ? limit : 0;
    o->compute = 0;
    return code == CLI_OK && *full != FIT_NONE ? session_plan(s, o) : code;
}

// Plans one shape; *fits is the answer.
static int ask(struct search *s, int64_t n_ctx, int64_t n_batch, bool *fits) {
    *fits = false;
    if (cli_is_interrupted(NULL)) {
        return cli_fail(CLI_FAILURE, "stopped while looking for what fits");
    }
    struct model_options o = s->q->model;
    o.plan_only = true;
    o.n_ctx = n_ctx;
    o.n_batch = n_batch;
    if (s->a->cache != GGML_TYPE_COUNT) {
        o.cache_k = o.cache_v = s->a->cache;
        o.has_cache_type = true;
    }
    int code = session_plan(s, &o);
    s->a->n_ctx = n_ctx;
    s->a->n_batch = n_batch;
    s->a->compute = s->a->compute_least = 0;
    s->a->n_plans++;
    int full = code == CLI_OK ? fit_limits_passed(&s->q->limits, s->m) : FIT_NONE;
    s->a->full = full != FIT_NONE ? full : s->a->full;
    if (code == CLI_OK) {
        s->a->compute_once = compute_of(s->m);
        code = full != FIT_NONE && s->may_again ? again_try(s, &o, &full) : code;
    }
    *fits = code == CLI_OK && full == FIT_NONE;
    return code;
}

// What fitted before, once more, so that the session is planned for it.
static int ask_last(struct search *s, int64_t n_ctx, int64_t n_batch) {
    s->is_last = true;
    const int code = ask(s, n_ctx, n_batch, &s->a->fits);
    s->is_last = false;
    return code;
}

static int64_t batch_in(const struct search *s, int64_t n_ctx) {
    const int64_t batch = s->q->model.n_batch > 0 ? s->q->model.n_batch : BATCH;
    return batch < n_ctx ? batch : n_ctx;
}

// ---- the largest ----

// The largest n in [low, high] that fits, where low does: of the context, or of the batch in a given context.
static int largest(struct search *s, int64_t low, int64_t high, int64_t n_ctx, int64_t *out) {
    int code = CLI_OK;
    bool fits = false;
    *out = low;
    for (int64_t n = high, n_asked = 0; code == CLI_OK && low < high; n = low + (high - low + 1) / 2, n_asked++) {
        uint64_t n_left = 0; // each answer halves what is open
        for (int64_t open = high - low; open > 0; open /= 2) {
            n_left++;
        }
        cli_progress(n_ctx > 0 ? "batch" : "context", (uint64_t) n_asked, (uint64_t) n_asked + n_left,
            "between %" PRId64 " and %" PRId64, low, high);
        code = n_ctx > 0 ? ask(s, n_ctx, n, &fits) : ask(s, n, batch_in(s, n), &fits);
        if (fits) {
            low = n;
        } else {
            high = n - 1;
        }
        *out = low;
    }
    return code;
}

// A context that is looked for ends where the model's own positions do, if it learned these.
static int64_t ctx_most(const struct search *s) {
    const int64_t most = s->q->max_ctx > 0 ? s->q->max_ctx : s->m->model->params.n_ctx_train;
    const struct ggml_tensor *learned = s->m->model->position_embd;
    return learned != NULL && learned->ne[1] < most ? learned->ne[1] : most;
}

// What ends a context that the memory does not.
static enum fit_limit_kind ctx_end(const struct search *s, int64_t n_ctx) {
    const struct ggml_tensor *learned = s->m->model->position_embd;
    return n_ctx == s->q->max_ctx ? FIT_MAX_CTX : learned != NULL && n_ctx == learned->ne[1] ? FIT_LEARNED : FIT_MODEL;
}

// a->fits says whether anything does; the rest of the answer is then of that, and the session is planned for it.
static int solve_largest(struct search *s) {
    const struct fit_question *q = s->q;
    struct fit_answer *a = s->a;
    int64_t n_ctx = q->model.n_ctx, n_batch;
    const int64_t max = ctx_most(s);
    int code = n_ctx > 0 ? ask(s, n_ctx, q->model.n_batch > 0 ? batch_in(s, n_ctx) : 1, &a->fits) : ask(s, 1, 1, &a->fits);
    if (code != CLI_OK || !a->fits) {
        a->ctx_limit = a->batch_limit = FIT_MEMORY;
        a->ctx_full = a->batch_full = a->full;
        return code;
    }
    if (n_ctx == 0) {
        code = largest(s, 1, max, 0, &n_ctx);
        a->ctx_limit = n_ctx < max ? FIT_MEMORY : ctx_end(s, max);
        a->ctx_full = a->full;
    }
    n_batch = q->model.n_ctx > 0 && q->model.n_batch == 0 ? 1 : batch_in(s, n_ctx);
    if (code == CLI_OK && q->model.n_batch == 0) {
        code = largest(s, n_batch, n_ctx, n_ctx, &n_batch);
        a->batch_limit = n_batch < n_ctx ? FIT_MEMORY : FIT_CONTEXT;
        a->batch_full = a->full;
    }
    return code == CLI_OK ? ask_last(s, n_ctx, n_batch) : code;
}

// ---- the least that is given up ----

static int64_t batch_least(const struct search *s, int64_t n_ctx) {
    const int64_t most = batch_in(s, n_ctx);
    return (s->q->allow & FIT_BATCH) == 0 || s->q->model.n_batch > 0 || most < BATCH_LEAST ? most : BATCH_LEAST;
}

// The largest batch of a context that fits, with the types and places at hand: as wanted, or less.
static int sizes_try(struct search *s, int64_t n_ctx) {
    const int64_t most = batch_in(s, n_ctx), least = batch_least(s, n_ctx);
    int64_t n = most;
    int code = ask(s, n_ctx, most, &s->a->fits);
    if (code != CLI_OK || s->a->fits || least == most) {
        return code;
    }
    code = ask(s, n_ctx, least, &s->a->fits);
    if (code == CLI_OK && s->a->fits) {
        code = largest(s, least, most - 1, n_ctx, &n);
        code = code == CLI_OK ? ask_last(s, n_ctx, n) : code;
    }
    return code;
}

// Every op once, else some again.
static int batches_try(struct search *s, int64_t n_ctx) {
    s->may_again = false;
    int code = sizes_try(s, n_ctx);
    if (code == CLI_OK && !s->a->fits && (s->q->allow & FIT_RECOMPUTE) != 0 && s->m->model->llama == NULL &&
        s->m->devices.n == 1) {
        s->may_again = true;
        code = sizes_try(s, n_ctx);
    }
    return code;
}

static int caches_try(struct search *s, int64_t n_ctx) {
    static const enum ggml_type types[] = {GGML_TYPE_COUNT, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}; // the first: as given, or f16
    const bool may = (s->q->allow & FIT_CACHE_TYPE) != 0 && !s->q->model.has_cache_type;
    int code = CLI_OK;
    s->a->fits = false;
    for (size_t i = 0; code == CLI_OK && !s->a->fits && i < (may ? sizeof types / sizeof types[0] : 1); i++) {
        s->a->cache = types[i];
        code = batches_try(s, n_ctx);
    }
    return code;
}

static int64_t gpu_layers(const struct workbench *m) {
    int64_t n = 0;
    for (int64_t i = 0; i <= m->model->params.n_layer; i++) {
        n += m->model->layer_device[i] != m->devices.n - 1;
    }
    return n;
}

static int place_again(struct search *s, int64_t n_host) {
    workbench_close(s->m);
    s->a->n_host = n_host;
    return open_with(s->q, s->m, n_host);
}

// As many layers on GPUs as can be: by halving, since fewer there only leave more room there.
static int places_try(struct search *s, int64_t n_ctx) {
    int code = caches_try(s, n_ctx);
    if (code != CLI_OK || s->a->fits || (s->q->allow & FIT_SPILL) == 0 || gpu_layers(s->m) == 0) {
        return code;
    }
    int64_t low = 0, high = s->m->model->params.n_layer + 1; // low does not fit; all on the host may
    while (code == CLI_OK && low + 1 < high) {
        const int64_t n = low + (high - low) / 2;
        code = place_again(s, n);
        code = code == CLI_OK ? caches_try(s, n_ctx) : code;
        *(s->a->fits ? &high : &low) = n;
    }
    code = code == CLI_OK ? place_again(s, high) : code;
    return code == CLI_OK ? caches_try(s, n_ctx) : code;
}

static int solve_allowed(struct search *s) {
    const struct fit_question *q = s->q;
    struct fit_answer *a = s->a;
    const int64_t train = s->m->model->params.n_ctx_train, most = ctx_most(s) < train ? ctx_most(s) : train;
    const int64_t wanted = q->model.n_ctx > 0 ? q->model.n_ctx : most;
    a->ctx_wanted = wanted;
    a->batch_wanted = batch_in(s, wanted);
    int code = places_try(s, wanted);
    a->ctx_limit = q->model.n_ctx > 0 ? FIT_GIVEN : ctx_end(s, most);
    a->batch_limit = a->n_batch < batch_in(s, wanted) ? FIT_MEMORY : q->model.n_batch > 0 ? FIT_GIVEN : FIT_WANTED;
    a->ctx_full = a->batch_full = a->full;
    if (code != CLI_OK || a->fits || q->model.n_ctx > 0) {
        return code;
    }
    struct fit_question small = *q; // all is given up by now, and the context too
    small.model.n_batch = batch_least(s, wanted);
    small.max_ctx = wanted;
    s->q = &small;
    code = solve_largest(s);
    s->q = q;
    return code;
}

int fit_solve(const struct fit_question *q, struct workbench *m, struct fit_answer *a) {
    struct search s = {.q = q, .m = m, .a = a, .until = ggml_time_us() + AGAIN_US};
    const int n_was = a->n_plans;
    *a = (struct fit_answer){
        .cache = GGML_TYPE_COUNT, .full = FIT_NONE, .ctx_full = FIT_NONE, .batch_full = FIT_NONE, .n_plans = n_was};
    const int code = q->allow != 0 ? solve_allowed(&s) : solve_largest(&s);
    cli_progress_end();
    if (a->cache == GGML_TYPE_COUNT) {
        a->cache = q->model.has_cache_type ? q->model.cache_k : GGML_TYPE_F16;
    }
    return code;
}

void fit_apply(const struct fit_question *q, const struct fit_answer *a, struct model_options *o) {
    o->n_ctx = a->n_ctx;
    o->n_batch = a->n_batch;
    o->compute = a->compute;
    if (!o->has_cache_type) {
        o->cache_k = o->cache_v = a->cache;
        o->has_cache_type = true;
    }
    options_set(q, o, a->n_host);
}
