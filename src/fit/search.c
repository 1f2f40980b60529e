// SPDX-License-Identifier: MIT
// search.c: finds the best setting of a model within memory limits.
// If no compromise is allowed, bisection finds the largest context, then the largest batch.
// Otherwise the context is kept, and compromises are tried in this order until the setting fits: a smaller batch, recomputing,
// fewer bits in the cache, layers on the host. The first two slow down only prefill; the last costs the most speed. If all
// compromises together do not suffice, the context is reduced.

#include "fit/fit.h"

#include "base/min.h"

#include <inttypes.h>
#include <string.h>

#define BATCH 512             // default batch; larger batches are tried only after the largest context is found
#define BATCH_MIN 32          // smallest batch that is tried
#define RECOMPUTE_TRIES 8     // planning attempts per setting; each attempt lowers the limit by the bytes that are still missing
#define RECOMPUTE_US 20000000 // microseconds for all attempts together, except those of the final setting

struct search {
    const struct fit_question *q;
    struct workbench *m;
    struct fit_answer *a;
    struct model_error *error;
    bool may_recompute;
    bool is_last;  // the final setting, which is known to fit
    int64_t until; // end of the search for ops to recompute, ggml_time_us
};

bool fit_allow_parse(const char *text, unsigned *allow, struct model_error *error) {
    static const struct {
        const char *name;
        unsigned bit;
    } names[] = {{"cache-type", FIT_CACHE_TYPE}, {"batch", FIT_BATCH}, {"spill", FIT_SPILL}, {"recompute", FIT_RECOMPUTE}};
    if (*text == '\0') {
        return model_fail(error, "--allow is empty; use a list of cache-type, batch, spill, recompute");
    }
    while (*text != '\0') {
        const size_t n = strcspn(text, ",");
        unsigned bit = 0;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            if (strlen(names[i].name) == n && strncmp(names[i].name, text, n) == 0) {
                bit = names[i].bit;
            }
        }
        if (bit == 0) {
            return model_fail(error, "--allow: unknown value '%.*s'; use cache-type, batch, spill, recompute", (int) n, text);
        }
        *allow |= bit;
        text += n + (text[n] == ',');
    }
    return true;
}

// ---- one setting ----

static bool limits_set(struct model_devices *devices, const void *user) {
    const struct fit_question *q = user;
    for (size_t i = 0; i < q->limits.n; i++) {
        const int d = fit_limit_device(&q->limits.items[i], devices);
        if (d >= 0 && d + 1 < devices->n && !model_devices_set_limit(devices, d, q->limits.items[i].bytes)) {
            return false;
        }
    }
    return true;
}

// What stays on the host, in the order in which it leaves the GPUs: first the experts of all layers, then whole layers.
struct host_share {
    int64_t n_experts, n_layers; // of the first layers
};

static void options_set(const struct fit_question *q, struct model_options *o, struct host_share share) {
    o->n_host = share.n_layers;
    o->n_host_experts = max_i64(o->n_host_experts, share.n_experts);
    o->set_limits = (q->allow & FIT_SPILL) != 0 ? limits_set : NULL;
    o->set_limits_user = q;
}

static bool model_open_placed(
    const struct fit_question *q, struct workbench *m, struct host_share share, struct model_error *error) {
    struct model_options o = q->model;
    o.plan_only = true;
    options_set(q, &o, share);
    return workbench_open(m, &o, error);
}

bool fit_open(struct fit_question *q, struct workbench *m, struct model_error *error) {
    if (!model_open_placed(q, m, (struct host_share){0}, error)) {
        return false;
    }
    if (!fit_limits_resolve(&q->limits, &m->devices, error)) {
        workbench_close(m);
        return false;
    }
    return true;
}

static bool session_plan(struct search *s, const struct model_options *o) {
    session_free(s->m->session);
    s->m->session = NULL;
    return workbench_session_open(s->m, o, s->error);
}

static size_t compute_size(const struct workbench *m) {
    size_t bytes = 0;
    for (int d = 0; d < m->devices.n; d++) {
        bytes += m->session->memory[d].compute;
    }
    return bytes;
}

// Plans with a limit for the compute buffer: the size of the last plan minus the missing bytes. If no schedule stays within this
// limit, plans without a limit. *full: on entry the device of the exceeded limit; on return FIT_NONE if the setting fits.
static bool recompute_try(struct search *s, struct model_options *o, int *full) {
    size_t limit = s->a->compute_once;
    for (int i = 0; i < RECOMPUTE_TRIES && *full != FIT_NONE; i++) {
        if (!s->is_last && ggml_time_us() > s->until) {
            s->a->is_cut = true;
            break;
        }
        const uint64_t missing = fit_bytes(s->m, *full) - fit_limits_get(&s->q->limits, *full)->bytes;
        const size_t taken = min_size(compute_size(s->m), limit);
        if (missing >= taken) {
            break;
        }
        o->compute_limit = limit = taken - (size_t) missing;
        if (!session_plan(s, o)) {
            return false;
        }
        s->a->compute_least = s->m->session->recompute_plan.min_size;
        if (!s->m->session->recompute_plan.fits) {
            break;
        }
        *full = fit_limits_exceeded(&s->q->limits, s->m);
    }
    s->a->compute = *full == FIT_NONE ? limit : 0;
    o->compute_limit = 0;
    return *full == FIT_NONE || session_plan(s, o);
}

// Plans the session for a setting. *fits becomes true if the setting stays within all limits.
static bool setting_try(struct search *s, int64_t n_ctx, int64_t n_batch, bool *fits) {
    struct fit_answer *a = s->a;
    *fits = false;
    if (work_is_stopped(&s->q->watch)) {
        return model_fail(s->error, "interrupted while searching for a setting that fits");
    }
    struct model_options o = s->q->model;
    o.plan_only = true;
    o.n_ctx = n_ctx;
    o.n_batch = n_batch;
    if (a->cache != GGML_TYPE_COUNT) {
        o.cache_k = o.cache_v = a->cache;
        o.has_cache_type = true;
    }
    a->n_ctx = n_ctx;
    a->n_batch = n_batch;
    a->compute = a->compute_least = 0;
    a->n_plans++;
    if (!session_plan(s, &o)) {
        return false;
    }
    a->compute_once = compute_size(s->m);
    int full = fit_limits_exceeded(&s->q->limits, s->m);
    if (full != FIT_NONE) {
        a->full = full;
        if (s->may_recompute && !recompute_try(s, &o, &full)) {
            return false;
        }
    }
    *fits = full == FIT_NONE;
    return true;
}

// Plans the session again for a setting that is known to fit.
static bool setting_accept(struct search *s, int64_t n_ctx, int64_t n_batch) {
    s->is_last = true;
    const bool ok = setting_try(s, n_ctx, n_batch, &s->a->fits);
    s->is_last = false;
    return ok;
}

static int64_t batch_default(const struct search *s, int64_t n_ctx) {
    return min_i64(s->q->model.n_batch > 0 ? s->q->model.n_batch : BATCH, n_ctx);
}

// ---- the largest setting ----

static void progress_report(const struct search *s, const char *what, uint64_t n_tried, int64_t low, int64_t high) {
    uint64_t n_left = 0; // each attempt halves the interval
    for (int64_t open = high - low; open > 0; open /= 2) {
        n_left++;
    }
    work_progress(&s->q->watch, what, n_tried, n_tried + n_left, "between %" PRId64 " and %" PRId64, low, high);
}

// Finds the largest n in [low, high] that fits. low must fit. n is the context if n_ctx is 0, otherwise the batch for n_ctx.
static bool largest_find(struct search *s, int64_t low, int64_t high, int64_t n_ctx, int64_t *out) {
    int64_t n = high;
    for (uint64_t n_tried = 0; low < high; n_tried++) {
        bool fits;
        progress_report(s, n_ctx > 0 ? "batch" : "context", n_tried, low, high);
        if (!(n_ctx > 0 ? setting_try(s, n_ctx, n, &fits) : setting_try(s, n, batch_default(s, n), &fits))) {
            return false;
        }
        if (fits) {
            low = n;
        } else {
            high = n - 1;
        }
        n = low + (high - low + 1) / 2;
    }
    *out = low;
    return true;
}

// Returns the largest context that may be tried. Learned position embeddings limit the context.
static int64_t ctx_largest(const struct search *s) {
    const int64_t most = s->q->max_ctx > 0 ? s->q->max_ctx : s->m->model->params.n_ctx_train;
    const struct ggml_tensor *learned = s->m->model->position_embd;
    return learned != NULL ? min_i64(learned->ne[1], most) : most;
}

// Returns why the context n_ctx is not larger, if memory is not the reason.
static enum fit_limit_kind ctx_reason(const struct search *s, int64_t n_ctx) {
    const struct ggml_tensor *learned = s->m->model->position_embd;
    if (n_ctx == s->q->max_ctx) {
        return FIT_MAX_CTX;
    }
    return learned != NULL && n_ctx == learned->ne[1] ? FIT_POSITIONS : FIT_MODEL;
}

// Sets a->fits. If a setting fits, the session is planned for the largest one.
static bool largest_solve(struct search *s) {
    const struct model_options *given = &s->q->model;
    struct fit_answer *a = s->a;
    int64_t n_ctx = given->n_ctx, n_batch = 1;
    if (n_ctx > 0 && given->n_batch > 0) {
        n_batch = batch_default(s, n_ctx);
    }
    if (!setting_try(s, max_i64(n_ctx, 1), n_batch, &a->fits)) {
        return false;
    }
    if (!a->fits) {
        a->ctx_limit = a->batch_limit = FIT_MEMORY;
        a->ctx_full = a->batch_full = a->full;
        return true;
    }
    if (n_ctx == 0) {
        const int64_t max = ctx_largest(s);
        if (!largest_find(s, 1, max, 0, &n_ctx)) {
            return false;
        }
        a->ctx_limit = n_ctx < max ? FIT_MEMORY : ctx_reason(s, max);
        a->ctx_full = a->full;
        n_batch = batch_default(s, n_ctx);
    }
    if (given->n_batch == 0) {
        if (!largest_find(s, n_batch, n_ctx, n_ctx, &n_batch)) {
            return false;
        }
        a->batch_limit = n_batch < n_ctx ? FIT_MEMORY : FIT_CONTEXT;
        a->batch_full = a->full;
    }
    return setting_accept(s, n_ctx, n_batch);
}

// ---- the smallest compromise. Each function returns false on failure, and sets a->fits to whether the setting found fits ----

static int64_t batch_smallest(const struct search *s, int64_t n_ctx) {
    const int64_t most = batch_default(s, n_ctx);
    const bool is_allowed = (s->q->allow & FIT_BATCH) != 0 && s->q->model.n_batch == 0;
    return is_allowed ? min_i64(most, BATCH_MIN) : most;
}

// Tries the default batch, then the largest smaller batch that fits. Keeps the cache type and the placement.
static bool batch_sizes_try(struct search *s, int64_t n_ctx) {
    const int64_t most = batch_default(s, n_ctx), least = batch_smallest(s, n_ctx);
    int64_t n = most;
    if (!setting_try(s, n_ctx, most, &s->a->fits)) {
        return false;
    }
    if (s->a->fits || least == most) {
        return true;
    }
    if (!setting_try(s, n_ctx, least, &s->a->fits)) {
        return false;
    }
    return !s->a->fits || (largest_find(s, least, most - 1, n_ctx, &n) && setting_accept(s, n_ctx, n));
}

static bool recomputes_try(struct search *s, int64_t n_ctx) {
    s->may_recompute = false;
    if (!batch_sizes_try(s, n_ctx)) {
        return false;
    }
    if (s->a->fits || (s->q->allow & FIT_RECOMPUTE) == 0 || !s->m->model->engine->can_limit || s->m->devices.n != 1) {
        return true;
    }
    s->may_recompute = true;
    return batch_sizes_try(s, n_ctx);
}

static bool caches_try(struct search *s, int64_t n_ctx) {
    static const enum ggml_type types[] = {GGML_TYPE_COUNT, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}; // COUNT: the given type, or f16
    const bool is_allowed = (s->q->allow & FIT_CACHE_TYPE) != 0 && !s->q->model.has_cache_type;
    s->a->fits = false;
    for (size_t i = 0; !s->a->fits && i < (is_allowed ? sizeof types / sizeof types[0] : 1); i++) {
        s->a->cache = types[i];
        if (!recomputes_try(s, n_ctx)) {
            return false;
        }
    }
    return true;
}

static bool has_gpu_layer(const struct workbench *m) {
    for (int64_t i = 0; i <= m->model->params.n_layer; i++) {
        if (m->model->layer_device[i] != m->devices.n - 1) {
            return true;
        }
    }
    return false;
}

static bool place_try(struct search *s, struct host_share share, int64_t n_ctx) {
    workbench_close(s->m);
    s->a->n_host = share.n_layers;
    s->a->n_host_experts = share.n_experts;
    return model_open_placed(s->q, s->m, share, s->error) && caches_try(s, n_ctx);
}

static struct host_share share_of(int64_t n, int64_t n_with_experts) {
    return (struct host_share){.n_experts = min_i64(n, n_with_experts), .n_layers = max_i64(n - n_with_experts, 0)};
}

// Finds the smallest share of the host with which the setting fits, by bisection. The more is on the host, the less memory the GPUs
// need.
static bool places_try(struct search *s, int64_t n_ctx) {
    if (!caches_try(s, n_ctx)) {
        return false;
    }
    if (s->a->fits || (s->q->allow & FIT_SPILL) == 0 || !has_gpu_layer(s->m)) {
        return true;
    }
    const int64_t n_layer = s->m->model->params.n_layer, n_with_experts = s->m->model->params.n_expert > 0 ? n_layer : 0;
    int64_t low = 0, high = n_with_experts + n_layer + 1; // low does not fit; high: all layers on the host
    while (low + 1 < high) {
        const int64_t n = low + (high - low) / 2;
        if (!place_try(s, share_of(n, n_with_experts), n_ctx)) {
            return false;
        }
        *(s->a->fits ? &high : &low) = n;
    }
    return place_try(s, share_of(high, n_with_experts), n_ctx);
}

static bool allowed_solve(struct search *s) {
    const struct fit_question *q = s->q;
    struct fit_answer *a = s->a;
    const int64_t most = min_i64(ctx_largest(s), s->m->model->params.n_ctx_train);
    const int64_t wanted = q->model.n_ctx > 0 ? q->model.n_ctx : most;
    a->ctx_wanted = wanted;
    a->batch_wanted = batch_default(s, wanted);
    if (!places_try(s, wanted)) {
        return false;
    }
    a->ctx_limit = q->model.n_ctx > 0 ? FIT_GIVEN : ctx_reason(s, most);
    a->batch_limit = q->model.n_batch > 0 ? FIT_GIVEN : FIT_DEFAULT;
    if (a->n_batch < batch_default(s, wanted)) {
        a->batch_limit = FIT_MEMORY;
    }
    a->ctx_full = a->batch_full = a->full;
    if (a->fits || q->model.n_ctx > 0) {
        return true;
    }
    struct fit_question small = *q; // all compromises are made; now the context is reduced, too
    small.model.n_batch = batch_smallest(s, wanted);
    small.max_ctx = wanted;
    s->q = &small;
    const bool ok = largest_solve(s);
    s->q = q;
    return ok;
}

bool fit_solve(const struct fit_question *q, struct workbench *m, struct fit_answer *a, struct model_error *error) {
    struct search s = {.q = q, .m = m, .a = a, .error = error, .until = ggml_time_us() + RECOMPUTE_US};
    *a = (struct fit_answer){.cache = GGML_TYPE_COUNT, .full = FIT_NONE, .ctx_full = FIT_NONE, .batch_full = FIT_NONE};
    const bool ok = q->allow != 0 ? allowed_solve(&s) : largest_solve(&s);
    if (a->cache == GGML_TYPE_COUNT) {
        a->cache = q->model.has_cache_type ? q->model.cache_k : GGML_TYPE_F16;
    }
    return ok;
}

bool fit_answer_describe(const struct fit_question *q, const struct fit_answer *a, char text[256]) {
    const enum ggml_type cache = q->model.has_cache_type ? q->model.cache_k : GGML_TYPE_F16;
    char parts[6][96] = {""};
    size_t n = 0;
    if (a->n_ctx < a->ctx_wanted) {
        snprintf(parts[0], sizeof parts[0], ", a context of %" PRId64 " positions instead of %" PRId64, a->n_ctx, a->ctx_wanted);
    }
    if (a->n_batch < a->batch_wanted) {
        snprintf(parts[1], sizeof parts[1], ", a batch of %" PRId64 " tokens instead of %" PRId64, a->n_batch, a->batch_wanted);
    }
    if (a->cache != cache) {
        snprintf(parts[2], sizeof parts[2], ", a cache of %s instead of %s", ggml_type_name(a->cache), ggml_type_name(cache));
    }
    if (a->n_host > 0) {
        snprintf(parts[3], sizeof parts[3], ", %" PRId64 " layers on the host", a->n_host);
    }
    if (a->n_host == 0 && a->n_host_experts > 0) {
        snprintf(parts[4], sizeof parts[4], ", the experts of %" PRId64 " layers on the host", a->n_host_experts);
    }
    if (a->compute > 0) {
        snprintf(parts[5], sizeof parts[5], ", some ops of each batch recomputed");
    }
    text[0] = '\0';
    for (int i = 0; i < 6; i++) {
        if (parts[i][0] != '\0') {
            n = min_size(n + (size_t) snprintf(text + n, 256 - n, "%s", parts[i] + (n == 0 ? 2 : 0)), 255);
        }
    }
    return n > 0;
}

void fit_apply(const struct fit_question *q, const struct fit_answer *a, struct model_options *o) {
    o->n_ctx = a->n_ctx;
    o->n_batch = a->n_batch;
    o->compute_limit = a->compute;
    o->no_resident = true; // resident copies would exceed the limit
    if (!o->has_cache_type) {
        o->cache_k = o->cache_v = a->cache;
        o->has_cache_type = true;
    }
    options_set(q, o, (struct host_share){.n_experts = a->n_host_experts, .n_layers = a->n_host});
}
