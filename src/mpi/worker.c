// SPDX-License-Identifier: MIT
// worker.c: the buffers, graphs, groups and answers of a worker. worker_data.c transfers data.

#include "mpi/worker.h"

#include "base/min.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// The program identifies each buffer, graph and group by a number, which is an index in the table of buffers, graphs or groups. A
// number must be less than NUMBER_MAX. Without this limit, one message with a large number could allocate any amount of memory.
#define NUMBER_MAX ((uint32_t) 1 << 20)

static void worker_answer(struct mpi_worker *w, uint32_t ticket, uint64_t a, uint64_t b, const char *text) {
    const struct mpi_head head = {.kind = MPI_ANSWER, .id = ticket, .a = a, .b = b};
    // If the program is lost, sending fails. The failure is ignored, because the wait for the next command then ends the service.
    (void) !mpi_queue_send(w->queue, w->program_rank, &head, text, strlen(text));
}

// Makes the table long enough for `number`. New entries are zero.
static bool table_hold(struct mpi_worker *w, void **table, size_t *n, uint32_t number, size_t elem_size) {
    if (number >= NUMBER_MAX) {
        mpi_worker_fail(w, "number %u is too large; it must be less than %u", number, NUMBER_MAX);
        return false;
    }
    if (number < *n) {
        return true;
    }
    const size_t n_new = (size_t) number + number / 2 + 16;
    char *grown = shim_calloc(n_new, elem_size);
    if (grown == NULL) {
        mpi_worker_fail(w, "out of memory for a table of %zu entries", n_new);
        return false;
    }
    if (*n > 0) {
        memcpy(grown, *table, *n * elem_size);
    }
    shim_free(*table);
    *table = grown;
    *n = n_new;
    return true;
}

// ---- buffers (wire.h defines id, a, b and c of each command's head) ----

static void buffer_new(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    const uint32_t ticket = (uint32_t) h->c;
    char text[160] = "";
    if (h->a >= w->n_devices) {
        snprintf(text, sizeof text, "there is no device %llu", (unsigned long long) h->a);
    } else if (!table_hold(w, (void **) &w->buffers, &w->n_buffers, h->id, sizeof w->buffers[0]) ||
               w->buffers[h->id].buffer != NULL) {
        snprintf(text, sizeof text, "buffer number %u is in use or too large", h->id);
    } else if (h->b > w->devices[h->a].limit - w->devices[h->a].used) {
        snprintf(text, sizeof text, "%llu bytes exceed the %zu bytes left of the memory limit of %zu", (unsigned long long) h->b,
            w->devices[h->a].limit - w->devices[h->a].used, w->devices[h->a].limit);
    } else {
        ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(w->devices[h->a].dev);
        w->buffers[h->id] = (struct mpi_wire_buffer){ggml_backend_buft_alloc_buffer(buft, (size_t) h->b), (uint32_t) h->a};
        if (w->buffers[h->id].buffer == NULL) {
            snprintf(text, sizeof text, "the device cannot allocate %llu bytes", (unsigned long long) h->b);
        } else {
            w->devices[h->a].used += (size_t) h->b;
        }
    }
    worker_answer(w, ticket, text[0] == '\0', 0, text);
}

static void graphs_forget(struct mpi_worker *w) {
    for (size_t i = 0; i < w->n_graphs; i++) {
        ggml_free(w->graphs[i].ctx);
        w->graphs[i].ctx = NULL;
    }
}

// Also forgets all graphs, because some of them may refer to the buffer's memory.
static void buffer_free(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    if (h->id >= w->n_buffers || w->buffers[h->id].buffer == NULL) {
        mpi_worker_fail(w, "cannot free buffer %u: there is no such buffer", h->id);
        return;
    }
    struct mpi_wire_buffer *b = &w->buffers[h->id];
    graphs_forget(w);
    w->cache_miss.is_open = false;
    w->devices[b->device].used -= ggml_backend_buffer_get_size(b->buffer);
    ggml_backend_buffer_free(b->buffer);
    b->buffer = NULL;
}

// ---- graphs ----

static void graph_new(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    char why[160];
    if (h->a >= w->n_devices || !table_hold(w, (void **) &w->graphs, &w->n_graphs, h->id, sizeof w->graphs[0])) {
        mpi_worker_fail(w, "cannot create graph %u for device %llu: there is no such device, or the number is too large", h->id,
            (unsigned long long) h->a);
        return;
    }
    struct mpi_worker_graph *g = &w->graphs[h->id];
    ggml_free(g->ctx);
    *g = (struct mpi_worker_graph){.device = (uint32_t) h->a};
    const struct mpi_wire_memory memory = {w->buffers, w->n_buffers, g->device};
    g->ctx = mpi_wire_read(body, size, &memory, &g->graph, why, sizeof why);
    for (int i = 0; g->ctx != NULL && i < ggml_graph_n_nodes(g->graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(g->graph, i);
        if (!ggml_backend_dev_supports_op(w->devices[h->a].dev, node)) {
            snprintf(why, sizeof why, "the device does not support node %d (%s)", i, ggml_op_name(node->op));
            ggml_free(g->ctx);
            g->ctx = NULL;
        }
    }
    if (g->ctx == NULL) {
        mpi_worker_fail(w, "graph %u: %s", h->id, why);
    }
}

static void graph_free(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    if (h->id < w->n_graphs) {
        ggml_free(w->graphs[h->id].ctx);
        w->graphs[h->id].ctx = NULL;
    }
}

static void graph_run(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    if (h->id >= w->n_graphs || w->graphs[h->id].ctx == NULL) {
        mpi_worker_fail(w, "there is no graph %u", h->id);
        return;
    }
    const struct mpi_worker_graph *g = &w->graphs[h->id];
    const enum ggml_status status = ggml_backend_graph_compute(w->devices[g->device].backend, g->graph);
    if (status != GGML_STATUS_SUCCESS) {
        mpi_worker_fail(w, "computing failed: %s", ggml_status_to_string(status));
    }
}

// ---- answers ----

static void worker_sync(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    worker_answer(w, h->id, w->failure[0] != '\0', 0, w->failure);
    w->failure[0] = '\0';
}

// Answers whether the device supports an op: the last tensor in the message.
static void worker_ask(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    char why[160];
    struct ggml_cgraph *graph;
    struct ggml_context *ctx = h->a < w->n_devices ? mpi_wire_read(body, size, NULL, &graph, why, sizeof why) : NULL;
    const struct ggml_tensor *t = NULL;
    for (struct ggml_tensor *i = ctx != NULL ? ggml_get_first_tensor(ctx) : NULL; i != NULL; i = ggml_get_next_tensor(ctx, i)) {
        t = i;
    }
    if (t == NULL) {
        worker_answer(w, h->id, 0, 0, "");
    } else {
        ggml_backend_dev_t dev = w->devices[h->a].dev;
        worker_answer(w, h->id, ggml_backend_dev_supports_op(dev, t),
            ggml_backend_buft_get_alloc_size(ggml_backend_dev_buffer_type(dev), t), "");
    }
    ggml_free(ctx);
}

static void ask_memory(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    size_t n_free = 0, n_total = 0;
    (void) body;
    (void) size;
    if (h->a < w->n_devices) {
        const struct mpi_worker_device *d = &w->devices[h->a];
        ggml_backend_dev_memory(d->dev, &n_free, &n_total);
        n_total = min_size(n_total, d->limit);
        n_free = min_size(n_free, d->limit - d->used);
    }
    worker_answer(w, h->id, n_free, n_total, "");
}

// ---- groups ----

static void group_free(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    if (h->id < w->n_groups) {
        shim_free(w->groups[h->id].ranks);
        w->groups[h->id] = (struct mpi_group){0};
    }
}

static void group_new(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    const size_t n = size / sizeof(uint32_t);
    if (n < 1 || n * sizeof(uint32_t) != size || n > (size_t) w->queue->transport.size ||
        !table_hold(w, (void **) &w->groups, &w->n_groups, h->id, sizeof w->groups[0])) {
        mpi_worker_fail(w, "cannot create group %u from %zu bytes", h->id, size);
        return;
    }
    group_free(w, h, NULL, 0);
    struct mpi_group g = {
        .queue = w->queue, .number = (uint32_t) h->a, .n = (int) n, .me = -1, .ranks = shim_malloc(n * sizeof g.ranks[0])};
    bool ok = g.ranks != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        uint32_t rank;
        memcpy(&rank, (const char *) body + i * sizeof rank, sizeof rank);
        ok = rank < (uint32_t) w->queue->transport.size;
        g.ranks[i] = (int) rank;
        if (g.ranks[i] == w->queue->transport.rank) {
            g.me = (int) i;
        }
    }
    if (!ok || g.me < 0) {
        mpi_worker_fail(w, "group %u of %zu ranks is invalid or does not contain this rank", h->id, n);
        shim_free(g.ranks);
        return;
    }
    w->groups[h->id] = g;
}

// ---- table of commands ----

static void (*const commands[])(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) = {
    [MPI_BUFFER_NEW - MPI_COMMAND] = buffer_new,
    [MPI_BUFFER_FREE - MPI_COMMAND] = buffer_free,
    [MPI_SET - MPI_COMMAND] = mpi_worker_set,
    [MPI_SET_CACHED - MPI_COMMAND] = mpi_worker_set_cached,
    [MPI_MEMSET - MPI_COMMAND] = mpi_worker_memset,
    [MPI_GET - MPI_COMMAND] = mpi_worker_get,
    [MPI_COPY - MPI_COMMAND] = mpi_worker_copy,
    [MPI_COPY_OUT - MPI_COMMAND] = mpi_worker_copy_out,
    [MPI_COPY_IN - MPI_COMMAND] = mpi_worker_copy_in,
    [MPI_GRAPH - MPI_COMMAND] = graph_new,
    [MPI_GRAPH_FREE - MPI_COMMAND] = graph_free,
    [MPI_RUN - MPI_COMMAND] = graph_run,
    [MPI_SIGNAL - MPI_COMMAND] = mpi_worker_signal,
    [MPI_AWAIT - MPI_COMMAND] = mpi_worker_await,
    [MPI_SYNC - MPI_COMMAND] = worker_sync,
    [MPI_ASK - MPI_COMMAND] = worker_ask,
    [MPI_ASK_MEMORY - MPI_COMMAND] = ask_memory,
    [MPI_GROUP_NEW - MPI_COMMAND] = group_new,
    [MPI_GROUP_FREE - MPI_COMMAND] = group_free,
    [MPI_GROUP_SUM - MPI_COMMAND] = mpi_worker_sum,
};
_Static_assert(sizeof commands / sizeof commands[0] == MPI_COMMAND_END - MPI_COMMAND, "each command has its function");

void mpi_worker_do(struct mpi_worker *w, const struct mpi_queue_item *item) {
    struct mpi_head head;
    size_t size;
    const void *body = mpi_body_of(item, &size);
    memcpy(&head, item->message.bytes, sizeof head);
    if (head.kind < MPI_COMMAND || head.kind >= MPI_COMMAND_END) {
        mpi_worker_fail(w, "unknown command %u", head.kind);
        return;
    }
    commands[head.kind - MPI_COMMAND](w, &head, body, size);
}

// Abort callback, called between two ops: each call counts one op as a step. It never aborts.
static bool op_count(void *queue) {
    atomic_fetch_add_explicit(&((struct mpi_queue *) queue)->n_steps, 1, memory_order_relaxed);
    return false;
}

static void proc_find(ggml_backend_dev_t dev, const char *name, void *out) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(dev);
    void *p = reg != NULL && reg->iface.get_proc_address != NULL ? reg->iface.get_proc_address(reg, name) : NULL;
    memcpy(out, &p, sizeof p);
}

static bool device_open(struct mpi_worker *w, size_t i, const struct berth_mpi_serve_params *params) {
    struct mpi_worker_device *d = &w->devices[i];
    d->dev = params->devices[i];
    d->limit = params->memory_limit > 0 ? params->memory_limit : SIZE_MAX;
    d->backend = ggml_backend_dev_init(d->dev, NULL);
    if (d->backend == NULL) {
        shim_error(GGML_STATUS_FAILED, "MPI: cannot open device '%s'", ggml_backend_dev_name(d->dev));
        return false;
    }
    ggml_backend_set_n_threads_t set_n_threads;
    ggml_backend_set_abort_callback_t set_abort;
    proc_find(d->dev, "ggml_backend_set_n_threads", &set_n_threads);
    proc_find(d->dev, "ggml_backend_set_abort_callback", &set_abort);
    if (set_abort != NULL) {
        set_abort(d->backend, op_count, w->queue);
    }
    if (set_n_threads != NULL && params->n_threads > 0) {
        set_n_threads(d->backend, params->n_threads);
    }
    return true;
}

bool mpi_worker_init(
    struct mpi_worker *w, struct mpi_queue *queue, int program_rank, const struct berth_mpi_serve_params *params) {
    *w = (struct mpi_worker){.queue = queue, .program_rank = program_rank, .cache = params->cache};
    w->devices = shim_calloc((size_t) params->n_devices, sizeof w->devices[0]);
    w->piece = shim_malloc(MPI_PIECE);
    bool ok = (w->devices != NULL || params->n_devices == 0) && w->piece != NULL;
    if (!ok) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for %" PRId64 " devices", params->n_devices);
    }
    for (; ok && w->n_devices < (size_t) params->n_devices; w->n_devices += ok) {
        ok = device_open(w, w->n_devices, params);
    }
    if (!ok) {
        mpi_worker_fini(w);
    }
    return ok;
}

void mpi_worker_fini(struct mpi_worker *w) {
    graphs_forget(w);
    for (size_t i = 0; i < w->n_buffers; i++) {
        ggml_backend_buffer_free(w->buffers[i].buffer);
    }
    for (size_t i = 0; i < w->n_groups; i++) {
        shim_free(w->groups[i].ranks);
    }
    for (size_t i = 0; i < w->n_devices; i++) {
        ggml_backend_free(w->devices[i].backend);
    }
    shim_free(w->groups);
    shim_free(w->graphs);
    shim_free(w->buffers);
    shim_free(w->devices);
    shim_free(w->piece);
    *w = (struct mpi_worker){0};
}

// ---- service loop ----

static void info_fill(struct mpi_device_info *info, ggml_backend_dev_t dev, const struct berth_mpi_serve_params *params) {
    struct ggml_backend_dev_props props;
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    const size_t limit = params->memory_limit > 0 ? params->memory_limit : SIZE_MAX;
    ggml_backend_dev_get_props(dev, &props);
    *info = (struct mpi_device_info){.type = (uint32_t) props.type,
        .has_plain_sizes = ggml_backend_buft_is_host(buft), // host memory: each tensor requires ggml_nbytes() bytes
        .has_cache = params->cache != NULL,
        .memory_free = min_size(props.memory_free, limit),
        .memory_total = min_size(props.memory_total, limit),
        .alignment = ggml_backend_buft_get_alignment(buft),
        .max_size = ggml_backend_buft_get_max_size(buft)};
    snprintf(info->name, sizeof info->name, "%s", props.name);
    snprintf(info->description, sizeof info->description, "%s", props.description);
}

struct mpi_device_info *mpi_serve_infos(const struct berth_mpi_serve_params *params) {
    struct mpi_device_info *infos = shim_calloc((size_t) params->n_devices + 1, sizeof *infos);
    for (int64_t i = 0; infos != NULL && i < params->n_devices; i++) {
        info_fill(&infos[i], params->devices[i], params);
    }
    if (infos == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a list of %" PRId64 " devices", params->n_devices);
    }
    return infos;
}

bool mpi_serve_world(struct mpi_world *world, const struct berth_mpi_serve_params *params) {
    struct mpi_worker worker;
    if (world->program_rank < 0) {
        int n_lost = 0;
        for (int i = 0; i < world->queue.transport.size; i++) {
            n_lost += mpi_queue_is_lost(&world->queue, i);
        }
        shim_error(GGML_STATUS_FAILED, "MPI: there is no program to serve: %d ranks, of which %d are workers and %d are lost",
            world->queue.transport.size, world->queue.transport.size - n_lost, n_lost);
        return false;
    }
    if (!mpi_worker_init(&worker, &world->queue, world->program_rank, params)) {
        return false;
    }
    for (struct mpi_queue_item *item; (item = mpi_queue_command(&world->queue, world->program_rank)) != NULL;) {
        mpi_worker_do(&worker, item);
        mpi_item_free(item);
    }
    mpi_worker_fini(&worker);
    if (!mpi_queue_has_left(&world->queue, world->program_rank)) {
        mpi_queue_report_lost(&world->queue, world->program_rank, "its commands");
        return false;
    }
    return true;
}

bool mpi_serve(const struct berth_mpi_serve_params *params) {
    if (!mpi_process_has_mpirun()) {
        shim_error(GGML_STATUS_FAILED, "MPI: start a worker with mpirun, together with a program");
        return false;
    }
    struct mpi_device_info *infos = mpi_serve_infos(params);
    struct mpi_world *world = infos != NULL ? mpi_process_world(infos, params->n_devices) : NULL;
    shim_free(infos);
    mpi_process_report();
    if (world == NULL) {
        return false;
    }
    world->exit_when_alone = true;
    return mpi_serve_world(world, params);
}
