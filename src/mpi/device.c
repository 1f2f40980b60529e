// SPDX-License-Identifier: MIT
// device.c: presents a device of another rank as a ggml device. Its type is GPU even if the actual device is a CPU, for two
// reasons: its memory can be accessed only by copies, and programs place layers on GPUs. The description names the actual device.

#include "mpi/remote.h"

#include "base/siphash.h"

static struct mpi_device *device_of(ggml_backend_dev_t dev) {
    return dev->context;
}

static const char *dev_name(ggml_backend_dev_t dev) {
    return device_of(dev)->name;
}

static const char *dev_description(ggml_backend_dev_t dev) {
    return device_of(dev)->description;
}

static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *n_total) {
    struct mpi_device *d = device_of(dev);
    struct mpi_remote *r = d->remote;
    const uint32_t ticket = mpi_remote_ticket(r);
    struct mpi_queue_item *item =
        !mpi_queue_is_lost(r->queue, r->rank)
            ? mpi_remote_ask(r, ticket, &(struct mpi_head){MPI_ASK_MEMORY, ticket, d->index, 0, 0}, NULL, 0)
            : NULL;
    *n_free = item != NULL ? (size_t) mpi_head_of(item)->a : 0;
    *n_total = item != NULL ? (size_t) mpi_head_of(item)->b : 0;
    mpi_item_free(item);
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    return device_of(dev)->info.type == GGML_BACKEND_DEVICE_TYPE_IGPU ? GGML_BACKEND_DEVICE_TYPE_IGPU
                                                                      : GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    *props = (struct ggml_backend_dev_props){
        .name = dev_name(dev),
        .description = dev_description(dev),
        .type = dev_type(dev),
        .caps = {.async = true, .events = true, .mmap_support = true},
    };
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params) {
    (void) params;
    return mpi_backend_new(device_of(dev));
}

static ggml_backend_buffer_type_t dev_buft(ggml_backend_dev_t dev) {
    return &device_of(dev)->buft;
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    return buft == &device_of(dev)->buft;
}

// ---- cache of supports_op answers ----

// The answer of a worker to MPI_ASK: whether the device supports an op, and how many bytes the result takes there.
struct mpi_op_answer {
    uint64_t key[2]; // hash of the op and its sources without addresses; both 0: the entry is free
    uint64_t size;   // bytes that the device allocates for the result of the op
    bool is_supported;
};

static struct mpi_op_answer *answer_slot(struct mpi_op_answer *table, size_t n_cap, const uint64_t key[2]) {
    size_t at = key[0] & (n_cap - 1);
    while ((table[at].key[0] != 0 || table[at].key[1] != 0) && (table[at].key[0] != key[0] || table[at].key[1] != key[1])) {
        at = (at + 1) & (n_cap - 1);
    }
    return &table[at];
}

// Largest number of entries in the table. A long-running program may query ever new shapes, so a table of this size is cleared
// when it is half full.
#define N_ANSWERS_CAP_MAX ((size_t) 1 << 17)

// Makes room for one more answer. Returns false if out of memory; the answer is then not cached.
static bool answers_grow(struct mpi_device *d) {
    if (2 * (d->n_answers + 1) <= d->n_answers_cap) {
        return true;
    }
    if (d->n_answers_cap >= N_ANSWERS_CAP_MAX) {
        memset(d->answers, 0, d->n_answers_cap * sizeof d->answers[0]);
        d->n_answers = 0;
        return true;
    }
    const size_t n_cap = d->n_answers_cap > 0 ? 2 * d->n_answers_cap : 256;
    struct mpi_op_answer *table = shim_calloc(n_cap, sizeof *table);
    if (table == NULL) {
        return false;
    }
    for (size_t i = 0; i < d->n_answers_cap; i++) {
        if (d->answers[i].key[0] != 0 || d->answers[i].key[1] != 0) {
            *answer_slot(table, n_cap, d->answers[i].key) = d->answers[i];
        }
    }
    shim_free(d->answers);
    d->answers = table;
    d->n_answers_cap = n_cap;
    return true;
}

static bool device_ask(struct mpi_device *d, struct mpi_op_answer *answer) {
    struct mpi_remote *r = d->remote;
    const uint32_t ticket = mpi_remote_ticket(r);
    struct mpi_queue_item *item = mpi_remote_ask(r, ticket, &(struct mpi_head){MPI_ASK, ticket, d->index, 0, 0}, d->query.tensors,
        d->query.n * sizeof d->query.tensors[0]);
    if (item != NULL) {
        answer->is_supported = mpi_head_of(item)->a != 0;
        answer->size = mpi_head_of(item)->b;
    }
    mpi_item_free(item);
    return item != NULL;
}

bool mpi_device_ask(struct mpi_device *d, const struct ggml_tensor *op, size_t *size) {
    struct mpi_op_answer answer = {0};
    struct ggml_tensor *node[] = {(struct ggml_tensor *) (uintptr_t) op}; // only read
    pthread_mutex_lock(&d->ask_lock);
    if (mpi_wire_write(&d->query, node, 1, NULL, NULL) == GGML_STATUS_SUCCESS) {
        uint8_t hash[16];
        mpi_hash(d->query.tensors, d->query.n * sizeof d->query.tensors[0], hash);
        memcpy(answer.key, hash, sizeof hash);
        const bool has_table = answers_grow(d);
        struct mpi_op_answer *slot = has_table ? answer_slot(d->answers, d->n_answers_cap, answer.key) : &answer;
        if (has_table && (slot->key[0] != 0 || slot->key[1] != 0)) {
            answer = *slot;
        } else if (!mpi_queue_is_lost(d->remote->queue, d->remote->rank) && device_ask(d, &answer) && has_table) {
            *slot = answer;
            d->n_answers++;
        }
    }
    pthread_mutex_unlock(&d->ask_lock);
    *size = (size_t) answer.size;
    return answer.is_supported;
}

static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    size_t size;
    // With ggml's own base library, berth_op_shape_holds is NULL. Then only the worker checks the shapes.
    if (op == NULL || (berth_op_shape_holds != NULL && !berth_op_shape_holds(op))) {
        return false;
    }
    return mpi_op_is_empty(op->op) || mpi_device_ask(device_of(dev), op, &size);
}

// ---- function table ----

static const struct ggml_backend_device_i device_iface = {
    .get_name = dev_name,
    .get_description = dev_description,
    .get_memory = dev_memory,
    .get_type = dev_type,
    .get_props = dev_props,
    .init_backend = dev_init,
    .get_buffer_type = dev_buft,
    .supports_op = dev_supports_op,
    .supports_buft = dev_supports_buft,
    .event_new = mpi_event_new,
    .event_free = mpi_event_free,
    .event_synchronize = mpi_event_wait_host,
};

void mpi_device_init(
    struct mpi_device *d, struct mpi_remote *r, const struct mpi_device_info *info, uint32_t index, const char *host) {
    *d = (struct mpi_device){.remote = r, .index = index, .info = *info};
    d->ggml = (struct ggml_backend_device){.iface = device_iface, .context = d};
    snprintf(d->name, sizeof d->name, "MPI%d:%s", r->rank, info->name);
    snprintf(d->description, sizeof d->description, "%s of %s", info->description, host);
    pthread_mutex_init(&d->ask_lock, NULL);
    mpi_buft_init(d);
}

void mpi_device_fini(struct mpi_device *d) {
    shim_free(d->answers);
    mpi_wire_fini(&d->query);
    pthread_mutex_destroy(&d->ask_lock);
}
