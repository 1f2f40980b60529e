// SPDX-License-Identifier: MIT
// stream_graph.c: decides whether the weights of a graph are streamed, and runs the passes.
//
// Programs map a model file and give the memory to a buffer (ggml_backend_cpu_buffer_from_ptr). If the file is larger than the
// memory, each graph reads all of it in the same order, and the system has always dropped what comes next. So Berth keeps some
// weights in memory, reads the others ahead, and drops them after use. The program's tensors and addresses do not change.
//
// If the weights fit, a graph costs a read of the clock, and the memory is read once per second. Without mapped buffers of at least
// RANGE_MIN bytes, a graph costs one comparison.

#include "backend/stream.h"

#include "base/lock.h"
#include "base/mapping.h"
#include "base/memory_left.h"
#include "base/min.h"
#include "base/size.h"
#include "core/graph.h"
#include "core/optable.h"

#include <pthread.h>
#include <stdlib.h>

#define MIB ((uint64_t) 1 << 20)
#define RANGE_MIN (16 * MIB)   // smaller buffers are not worth a look
#define CHECK_US 1000000       // between two looks at the memory while weights are not streamed
#define CHANGE_PARTS 16        // the places are chosen again if this part of the weights' bytes could become resident
#define MARGIN_PARTS 32        // part of the limit for memory that the program takes during a pass
#define MARGIN_MIN (4 * MIB)   // in bytes
#define MARGIN_MAX (128 * MIB) // in bytes

// Memory that was given to a buffer.
struct range {
    uintptr_t begin, end;
    struct berth_mapping mapping;
    enum { RANGE_NEW, RANGE_FILE, RANGE_OTHER } kind; // NEW: not looked at yet. OTHER: not a shared mapping of a file
    struct range *next;
};

// A use whose weight has no place yet.
struct raw_use {
    int i_node;
    size_t i_weight;
    const struct range *range;
};

struct berth_weights {
    struct stream stream;
    bool has_stream;

    struct stream_weight *weights; // of all graphs since the buffers changed
    size_t n_weights, weights_cap;
    bool has_new;  // buffers were added since the last pass
    bool is_stale; // the buffers or the weights changed after `plan` was made
    struct stream_plan plan;
    struct berth_memory_left memory;
    uint64_t reported; // bytes of streamed weights in the last log line

    // of the running pass
    struct raw_use *raw;
    size_t n_raw, raw_cap;
    struct stream_use *uses;
    size_t n_uses, uses_cap;
    size_t *first_use; // [n_nodes + 1] the uses of node i are first_use[i] to first_use[i + 1] - 1
    size_t first_use_cap;
    size_t n_done; // uses that the graph has finished
};

static struct berth_lock lock = BERTH_LOCK_INIT; // guards all of the following
BERTH_LOCK_ACROSS_FORK(lock, 102)
static struct range *ranges;
static struct berth_weights state;
static atomic_bool has_ranges;            // fast answer for graphs without mapped weights
static atomic_bool is_running, is_active; // running: between begin and end; active: weights were streamed in the last pass
static _Atomic int64_t next_check_us;

// ---- ranges ----

// BERTH_STREAM: 0, or the bytes of memory for mapped weights. Returns UINT64_MAX if it is not set or not a size.
static uint64_t env_limit(void) {
    const char *text = getenv("BERTH_STREAM");
    uint64_t size;
    return text != NULL && berth_parse_size(text, &size) ? size : UINT64_MAX;
}

void berth_weights_add(const void *at, size_t size) {
    if (size < RANGE_MIN || env_limit() == 0) {
        return;
    }
    struct range *r = berth_calloc(1, sizeof *r);
    if (r == NULL) {
        return; // the system reads the weights
    }
    *r = (struct range){.begin = (uintptr_t) at, .end = (uintptr_t) at + size, .mapping = {.fd = -1}};
    berth_lock_take(&lock);
    r->next = ranges;
    ranges = r;
    state.is_stale = state.has_new = true;
    atomic_store(&has_ranges, true);
    atomic_store(&next_check_us, 0);
    berth_lock_drop(&lock);
}

static void state_free(void) {
    if (state.has_stream) {
        stream_fini(&state.stream);
    }
    berth_free(state.weights);
    berth_free(state.raw);
    berth_free(state.uses);
    berth_free(state.first_use);
    state = (struct berth_weights){0};
    atomic_store(&is_active, false);
}

void berth_weights_remove(const void *at, size_t size) {
    if (size < RANGE_MIN) {
        return;
    }
    berth_lock_take(&lock);
    struct range **link = &ranges;
    while (*link != NULL && ((*link)->begin != (uintptr_t) at || (*link)->end != (uintptr_t) at + size)) {
        link = &(*link)->next;
    }
    struct range *r = *link;
    if (r != NULL) {
        *link = r->next;
        if (state.has_stream) {
            stream_forget(&state.stream); // after this, the reader does not use the range
        }
        state.n_weights = 0;
        state.is_stale = true;
        if (ranges == NULL && !atomic_load(&is_running)) {
            state_free();
        }
        atomic_store(&has_ranges, ranges != NULL);
        berth_mapping_close(&r->mapping);
        berth_free(r);
    }
    berth_lock_drop(&lock);
}

// Returns the bytes of ranges whose pages can be dropped.
static uint64_t ranges_size(void) {
    uint64_t size = 0;
    for (const struct range *r = ranges; r != NULL; r = r->next) {
        if (r->kind != RANGE_OTHER) {
            size += r->end - r->begin;
        }
    }
    return size;
}

// While weights are streamed, the system must not read pages around an accessed one: it would read dropped weights again.
// Pages that were read before take memory that the plan gives to others.
static void ranges_set_random(bool is_random) {
    for (const struct range *r = ranges; r != NULL; r = r->next) {
        if (r->kind == RANGE_FILE) {
            berth_mapping_set_random(&r->mapping, is_random);
        }
        if (r->kind == RANGE_FILE && is_random) {
            berth_mapping_drop(&r->mapping, r->begin, r->end - r->begin);
        }
    }
}

static void ranges_open(void) {
    for (struct range *r = ranges; r != NULL; r = r->next) {
        if (r->kind == RANGE_NEW) {
            r->kind = berth_mapping_open(&r->mapping, (const void *) r->begin, r->end - r->begin) ? RANGE_FILE : RANGE_OTHER;
        }
    }
}

static const struct range *range_of(uintptr_t at, size_t size) {
    const struct range *r = ranges;
    while (r != NULL && (at < r->begin || at >= r->end || size > r->end - at)) {
        r = r->next;
    }
    return r != NULL && r->kind == RANGE_FILE ? r : NULL;
}

// ---- memory ----

// Reads how much memory the weights may take. Returns false if nothing limits it.
static bool memory_read(void) {
    const uint64_t limit = env_limit();
    struct berth_memory_left *m = &state.memory;
    if (berth_memory_left_read("", m)) {
        const uint64_t margin = min_u64(max_u64(m->limit / MARGIN_PARTS, MARGIN_MIN), MARGIN_MAX);
        m->left -= min_u64(m->left, margin);
    } else {
        *m = (struct berth_memory_left){.limit = UINT64_MAX, .left = UINT64_MAX};
    }
    if (limit < m->left) {
        *m = (struct berth_memory_left){.limit = limit, .left = limit, .source = "BERTH_STREAM"};
    }
    return m->left != UINT64_MAX;
}

// Returns whether the memory is too small for all mapped weights.
static bool is_memory_short(void) {
    if (!memory_read() || ranges_size() <= state.memory.left) {
        return false;
    }
    ranges_open();
    return ranges_size() > state.memory.left;
}

// ---- the weights of a graph ----

// Returns the number of the weight, or SIZE_MAX if out of memory.
static size_t weight_find(uintptr_t at, size_t size, size_t hint) {
    if (hint < state.n_weights && state.weights[hint].at == at && state.weights[hint].size == size) {
        return hint; // graphs use their weights in the same order
    }
    for (size_t i = 0; i < state.n_weights; i++) {
        if (state.weights[i].at == at && state.weights[i].size == size) {
            return i;
        }
    }
    if (!BERTH_GROW(&state.weights, &state.weights_cap, state.n_weights + 1)) {
        return SIZE_MAX;
    }
    state.weights[state.n_weights] = (struct stream_weight){.at = at, .size = size};
    state.is_stale = true;
    return state.n_weights++;
}

// Adds the weights that the node reads completely. Of a table or of experts, a node may read a small part; these are left to the
// system.
static bool node_add(const struct ggml_tensor *node, int i_node, size_t *hint) {
    double read_size = -1;
    for (int s = 0; s < GGML_MAX_SRC; s++) {
        const struct ggml_tensor *src = node->src[s];
        const struct range *r = src != NULL && src->data != NULL ? range_of((uintptr_t) src->data, 1) : NULL;
        if (r == NULL) {
            continue;
        }
        const size_t size = ggml_nbytes(src);
        if (read_size < 0) {
            read_size = berth_op_cost(node).read_size;
        }
        if (size == 0 || read_size < berth_elements_size(src) || range_of((uintptr_t) src->data, size) != r) {
            continue;
        }
        const size_t i_weight = weight_find((uintptr_t) src->data, size, *hint);
        if (i_weight == SIZE_MAX || !BERTH_GROW(&state.raw, &state.raw_cap, state.n_raw + 1)) {
            return false;
        }
        state.raw[state.n_raw++] = (struct raw_use){.i_node = i_node, .i_weight = i_weight, .range = r};
        *hint = i_weight + 1;
    }
    return true;
}

static bool graph_weights_find(const struct ggml_cgraph *graph) {
    size_t hint = 0;
    state.n_raw = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        const struct berth_op_info *info = berth_op_info(node->op);
        if (info == NULL || info->is_empty || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) {
            continue;
        }
        if (!node_add(node, i, &hint)) {
            return false;
        }
    }
    return state.n_raw > 0;
}

// ---- the plan ----

static bool is_plan_outdated(void) {
    const struct stream_plan *p = &state.plan;
    const uint64_t taken = p->resident + p->window, all = p->resident + p->streamed;
    return state.is_stale || taken > state.memory.left || (p->streamed > 0 && state.memory.left - taken > all / CHANGE_PARTS);
}

static double size_in_mib(uint64_t size) {
    return (double) size / (double) MIB;
}

static void plan_report(void) {
    const struct stream_plan *p = &state.plan;
    const struct berth_memory_left *m = &state.memory;
    const uint64_t all = p->resident + p->streamed + p->paged;
    const uint64_t change = max_u64(p->streamed, state.reported) - min_u64(p->streamed, state.reported);
    if (p->streamed == 0 || (state.reported > 0 && change < all / CHANGE_PARTS)) {
        return;
    }
    state.reported = p->streamed;
    berth_log(GGML_LOG_LEVEL_INFO,
        "streaming weights: of %.1f MiB of mapped weights, %.1f MiB stay in memory, and %.1f MiB are read from the file for each "
        "graph, through a window of %.1f MiB\n",
        size_in_mib(all), size_in_mib(p->resident), size_in_mib(p->streamed), size_in_mib(p->window));
    berth_log(GGML_LOG_LEVEL_INFO,
        "streaming weights: %s limits the memory to %.1f MiB, of which weights can take %.1f MiB; BERTH_STREAM=0 disables "
        "streaming\n",
        m->source, size_in_mib(m->limit), size_in_mib(m->left));
    if (p->paged > 0) {
        berth_log(GGML_LOG_LEVEL_WARN,
            "streaming weights: %.1f MiB are in weights larger than half of this memory; the system reads their pages when an op "
            "accesses them\n",
            size_in_mib(p->paged));
    }
}

static void plan_update(void) {
    if (!is_plan_outdated()) {
        return;
    }
    for (size_t i = 0; i < state.n_weights; i++) {
        state.weights[i].was_resident = state.weights[i].place == STREAM_RESIDENT;
    }
    stream_plan_make(state.weights, state.n_weights, state.memory.left, &state.plan);
    state.is_stale = false;
    plan_report();
}

// Makes the list of uses, without weights that are left to the system.
static bool uses_make(int n_nodes) {
    if (!BERTH_GROW(&state.uses, &state.uses_cap, state.n_raw) ||
        !BERTH_GROW(&state.first_use, &state.first_use_cap, (size_t) n_nodes + 1)) {
        return false;
    }
    size_t i_raw = 0;
    state.n_uses = state.n_done = 0;
    for (int i = 0; i <= n_nodes; i++) {
        state.first_use[i] = state.n_uses;
        for (; i_raw < state.n_raw && state.raw[i_raw].i_node == i; i_raw++) {
            struct stream_weight *w = &state.weights[state.raw[i_raw].i_weight];
            const struct stream_use use = {.at = w->at,
                .size = w->size,
                .source = &state.raw[i_raw].range->mapping,
                .is_streamed = w->place == STREAM_STREAMED};
            if (w->place == STREAM_PAGED) {
                continue;
            }
            if (w->was_resident && use.is_streamed) { // its pages would stay in addition to the window
                berth_mapping_drop(use.source, use.at, use.size);
                w->was_resident = false;
            }
            state.uses[state.n_uses++] = use;
        }
    }
    return true;
}

static void use_request(const struct stream_use *use) {
    berth_mapping_request(use->source, use->at, use->size);
}

static int use_load(const struct stream_use *use) {
    return berth_mapping_load(use->source, use->at, use->size);
}

static void use_drop(const struct stream_use *use) {
    berth_mapping_drop(use->source, use->at, use->size);
}

static bool stream_make(void) {
    static const struct stream_io io = {use_request, use_load, use_drop};
    state.has_stream = state.has_stream || stream_init(&state.stream, &io);
    return state.has_stream;
}

// ---- passes ----

static bool pass_start(const struct ggml_cgraph *graph) {
    if (!is_memory_short() || !graph_weights_find(graph)) {
        return false;
    }
    // The first pass writes the compute buffers. Thread stacks are allocated too, but never written completely.
    if (!atomic_load(&is_active)) {
        state.memory.left -= min_u64(state.memory.left / 4, state.memory.unused);
    }
    plan_update();
    if (state.plan.streamed == 0 || !uses_make(graph->n_nodes) || !stream_make()) {
        return false;
    }
    if (state.has_new || !atomic_load(&is_active)) {
        ranges_set_random(true);
        state.has_new = false;
    }
    return stream_begin(&state.stream, state.uses, state.n_uses, state.plan.window);
}

struct berth_weights *berth_weights_begin(const struct ggml_cgraph *graph) {
    if (!atomic_load_explicit(&has_ranges, memory_order_relaxed)) {
        return NULL;
    }
    const int64_t now = ggml_time_us();
    if (!atomic_load_explicit(&is_active, memory_order_relaxed) &&
        now < atomic_load_explicit(&next_check_us, memory_order_relaxed)) {
        return NULL;
    }
    if (atomic_exchange(&is_running, true)) {
        return NULL;
    }
    berth_log_hold(); // the program's log callback may use buffers
    berth_lock_take(&lock);
    const bool has_started = pass_start(graph);
    if (!has_started && atomic_load(&is_active)) {
        ranges_set_random(false);
    }
    berth_lock_drop(&lock);
    berth_log_let_go();
    atomic_store(&is_active, has_started);
    atomic_store(&next_check_us, now + CHECK_US);
    if (!has_started) {
        atomic_store(&is_running, false);
    }
    return has_started ? &state : NULL;
}

int berth_weights_wait(struct berth_weights *s, int i) {
    const size_t n = s->first_use[i + 1];
    return n > s->first_use[i] ? stream_wait(&s->stream, n) : 0;
}

void berth_weights_done(struct berth_weights *s, int i) {
    if (s->first_use[i] > s->n_done) {
        s->n_done = s->first_use[i];
        stream_done(&s->stream, s->n_done);
    }
}

void berth_weights_end(struct berth_weights *s) {
    stream_end(&s->stream);
    atomic_store(&is_running, false);
}

// The child process has only the thread that forked.
static void stream_after_fork(void) {
    if (state.has_stream) {
        stream_restart_after_fork(&state.stream);
    }
    atomic_store(&is_running, false);
}

__attribute__((constructor)) static void stream_watch_forks(void) {
    pthread_atfork(NULL, NULL, stream_after_fork);
}

// Ends the reader before the library is unloaded, because it runs code of the library.
__attribute__((destructor)) static void stream_unload(void) {
    berth_lock_take(&lock);
    if (!atomic_load(&is_running)) {
        state_free();
    }
    berth_lock_drop(&lock);
}
