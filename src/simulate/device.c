// SPDX-License-Identifier: MIT
// device.c: devices that exist on paper. Their buffers have addresses and no memory; what they are given to compute only
// takes time, by a clock that stands still otherwise. So a model can be placed, planned and run by the code that does it with
// real devices, and what comes out is how many bytes each would hold and how long a token would take.
//   Each device works off what it is given in order; the program goes on meanwhile, and waits where it would wait. Device 0 is
// the program's own CPU: it keeps the program waiting.

#include "simulate/cluster.h"

#include "ggml-backend-impl.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ADDRESS ((uintptr_t) 0x2000000000000000u) // never memory of the process
#define ADDRESS_STEP ((uintptr_t) 1 << 20)
#define MAX_ASKED 8     // sums that are asked for ahead: src/meta/run.c has fewer
#define SHORT_SUM 32768 // bytes: as src/mpi/sum.c has it

struct paper_device {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
    struct paper *paper;
    const struct cluster_device *is;
    ggml_backend_t cpu; // whose needs it has, NULL: unknown
    int i;
    uint64_t bytes;
    double busy;            // until then
    double owed[MAX_ASKED]; // seconds of work behind each sum that it was asked for and that is not done
    int n_asked;
};

struct paper {
    const struct cluster *cluster;
    struct paper_device *devices; // [cluster->n_devices]
    ggml_backend_dev_t real;      // this machine's CPU, which says what can be computed
    uintptr_t next_address;
    double now;
    bool is_together;
};

static struct paper_device *device_of(ggml_backend_dev_t dev) {
    return dev->context;
}

// ---- the clock ----

static double later(double a, double b) {
    return a > b ? a : b;
}

// Seconds for bytes from one device to another.
static double message(const struct paper_device *a, const struct paper_device *b, double size) {
    const struct cluster_link link = cluster_link_of(a->paper->cluster, a->i, b->i);
    return a == b ? 0 : link.latency + size / link.bandwidth;
}

static double from_program(const struct paper_device *d, double size) {
    return message(&d->paper->devices[0], d, size);
}

// Device 0 is where the program is.
static void is_busy_until(struct paper_device *d, double until) {
    d->busy = later(d->busy, until);
    if (d->i == 0) {
        d->paper->now = d->busy = later(d->paper->now, d->busy);
    }
}

static void give(struct paper_device *d, size_t size) {
    is_busy_until(d, d->paper->now + from_program(d, (double) size));
}

static void ask(struct paper_device *d, size_t size) {
    struct paper *p = d->paper;
    p->now = later(p->now + from_program(d, 0), d->busy) + from_program(d, (double) size);
}

static double graph_seconds(const struct paper_device *d, const struct ggml_cgraph *graph) {
    double seconds = 0;
    for (int i = 0; i < ggml_graph_n_nodes((struct ggml_cgraph *) (uintptr_t) graph); i++) {
        seconds += cluster_op_seconds(d->is, ggml_graph_node((struct ggml_cgraph *) (uintptr_t) graph, i));
    }
    const double together = d->paper->is_together ? d->paper->cluster->hosts[d->is->host].together : 1;
    return d->is->start + seconds / together;
}

// ---- buffers ----

struct paper_buffer {
    struct paper_device *dev;
    void *base;
    uint64_t counted; // bytes
};

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct paper_buffer *b = buffer->context;
    b->dev->bytes -= b->counted;
    free(b);
}

static void *buffer_base(ggml_backend_buffer_t buffer) {
    return ((struct paper_buffer *) buffer->context)->base;
}

static struct paper_device *device_of_buffer(ggml_backend_buffer_t buffer) {
    return ((struct paper_buffer *) buffer->context)->dev;
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset, size_t size) {
    (void) t;
    (void) value;
    (void) offset;
    (void) size;
    give(device_of_buffer(buffer), 0);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset, size_t size) {
    (void) t;
    (void) data;
    (void) offset;
    give(device_of_buffer(buffer), size);
}

// Where the program's own memory is on paper too, nothing is written.
static void zero(void *data, size_t size) {
    if ((uintptr_t) data < FIRST_ADDRESS) {
        memset(data, 0, size);
    }
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset, size_t size) {
    (void) t;
    (void) offset;
    zero(data, size);
    ask(device_of_buffer(buffer), size);
}

static void buffer_set_2d(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset, size_t size,
    size_t n, size_t to_step, size_t from_step) {
    (void) to_step;
    (void) from_step;
    buffer_set(buffer, t, data, offset, size * n);
}

static void buffer_get_2d(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset, size_t size,
    size_t n, size_t from_step, size_t to_step) {
    (void) t;
    (void) offset;
    (void) from_step;
    for (size_t i = 0; i < n; i++) {
        zero((char *) data + i * to_step, size);
    }
    ask(device_of_buffer(buffer), size * n);
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst);

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    (void) value;
    give(device_of_buffer(buffer), 0);
}

static const struct ggml_backend_buffer_i buffer_iface = {
    .free_buffer = buffer_free,
    .get_base = buffer_base,
    .memset_tensor = buffer_memset,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .set_tensor_2d = buffer_set_2d,
    .get_tensor_2d = buffer_get_2d,
    .cpy_tensor = buffer_copy,
    .clear = buffer_clear,
};

// The paper device that a tensor lies on; NULL: another's.
static struct paper_device *place_of(const struct ggml_tensor *t) {
    ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    return buffer != NULL && buffer->iface.free_buffer == buffer_free ? device_of_buffer(buffer) : NULL;
}

static bool copy(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    struct paper_device *a = place_of(src), *b = place_of(dst);
    if (a == NULL || b == NULL) {
        return false;
    }
    const double asked = a->paper->now + from_program(a, 0);
    is_busy_until(b, later(a->busy, asked) + message(a, b, (double) ggml_nbytes(src)));
    return true;
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) buffer;
    return copy(src, dst);
}

static ggml_backend_buffer_t buffer_new(struct paper_device *d, void *base, size_t size, uint64_t counted) {
    struct paper_buffer *b = malloc(sizeof *b);
    if (b == NULL) {
        return NULL;
    }
    *b = (struct paper_buffer){.dev = d, .base = base, .counted = counted};
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(&d->buft, buffer_iface, b, size);
    if (buffer == NULL) {
        free(b);
        return NULL;
    }
    d->bytes += counted;
    return buffer;
}

static const char *buft_name(ggml_backend_buffer_type_t buft) {
    return device_of(buft->device)->is->name;
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct paper_device *d = device_of(buft->device);
    void *base = (void *) d->paper->next_address;
    d->paper->next_address += (size / ADDRESS_STEP + 2) * ADDRESS_STEP;
    return buffer_new(d, base, size, size);
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    return (size_t) device_of(buft->device)->is->alignment;
}

// As a real one's: what the program's CPU computes with need not be copied.
static bool buft_is_host(ggml_backend_buffer_type_t buft) {
    return device_of(buft->device)->i == 0;
}

// ---- the backend ----

static const char *backend_name(ggml_backend_t backend) {
    return device_of(backend->device)->is->name;
}

static void backend_free(ggml_backend_t backend) {
    free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct paper_device *d = device_of(backend->device);
    const double begin = later(d->busy, d->paper->now + from_program(d, 0));
    if (d->n_asked > 0) {
        d->owed[d->n_asked - 1] += graph_seconds(d, graph);
    } else {
        is_busy_until(d, begin + graph_seconds(d, graph));
    }
    return GGML_STATUS_SUCCESS;
}

static void backend_synchronize(ggml_backend_t backend) {
    struct paper_device *d = device_of(backend->device);
    if (d->busy + from_program(d, 0) > d->paper->now && d->i != 0) {
        d->paper->now = d->busy + from_program(d, 0);
    }
}

static bool backend_copy(ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) from;
    (void) to;
    return copy(src, dst);
}

static const struct ggml_backend_i backend_iface = {
    .get_name = backend_name,
    .free = backend_free,
    .cpy_tensor_async = backend_copy,
    .synchronize = backend_synchronize,
    .graph_compute = backend_compute,
};

// ---- sums over devices, as src/mpi/sum.c does them ----

struct paper_comm {
    int n;
    struct paper_device *devices[];
};

static void *comm_init(ggml_backend_t *backends, size_t n) {
    struct paper_comm *c = malloc(sizeof *c + n * sizeof c->devices[0]);
    for (size_t i = 0; c != NULL && i < n; i++) {
        c->n = (int) n;
        c->devices[i] = device_of(backends[i]->device);
    }
    return c;
}

static void comm_free(void *comm) {
    free(comm);
}

static double sum_seconds(const struct paper_comm *c, double size) {
    double most = 0;
    for (int i = 0; i < c->n; i++) {
        double sent = 0, latency = 0;
        for (int k = 0; k < c->n; k++) {
            const double alone = message(c->devices[i], c->devices[k], 0);
            const double part = size <= SHORT_SUM ? size : 2 * size / c->n;
            latency = later(latency, size <= SHORT_SUM ? alone : 2 * alone);
            sent += message(c->devices[i], c->devices[k], part) - alone;
        }
        most = later(most, latency + sent);
    }
    return most;
}

// Others do not begin before they are asked.
static bool comm_ask(void *comm, struct ggml_tensor **tensors) {
    const struct paper_comm *c = comm;
    (void) tensors;
    for (int i = 0; i < c->n; i++) {
        struct paper_device *d = c->devices[i];
        if (d->i == 0) { // the program itself
            continue;
        }
        if (d->n_asked == MAX_ASKED) {
            return false;
        }
        is_busy_until(d, d->n_asked == 0 ? d->paper->now + from_program(d, 0) : 0);
        d->owed[d->n_asked++] = 0;
    }
    return true;
}

// All have come, and go on with what they were given behind it.
static bool comm_join(void *comm, struct ggml_tensor **tensors) {
    const struct paper_comm *c = comm;
    double begin = 0;
    for (int i = 0; i < c->n; i++) {
        begin = later(begin, c->devices[i]->i == 0 ? c->devices[i]->paper->now : c->devices[i]->busy);
    }
    const double end = begin + sum_seconds(c, (double) ggml_nbytes(tensors[0]));
    for (int i = 0; i < c->n; i++) {
        struct paper_device *d = c->devices[i];
        is_busy_until(d, end + d->owed[0]);
        if (d->i == 0) {
            continue;
        }
        memmove(d->owed, d->owed + 1, (MAX_ASKED - 1) * sizeof d->owed[0]);
        d->n_asked--;
    }
    return true;
}

static bool comm_allreduce(void *comm, struct ggml_tensor **tensors) {
    return comm_ask(comm, tensors) && comm_join(comm, tensors);
}

// ---- the device ----

static const char *dev_name(ggml_backend_dev_t dev) {
    return device_of(dev)->is->name;
}

static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *n_total) {
    *n_free = *n_total = (size_t) device_of(dev)->is->memory;
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    return device_of(dev)->i == 0 ? GGML_BACKEND_DEVICE_TYPE_CPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    const bool is_here = device_of(dev)->i == 0;
    *props = (struct ggml_backend_dev_props){.name = dev_name(dev),
        .description = dev_name(dev),
        .type = dev_type(dev),
        .caps = {.async = !is_here, .buffer_from_host_ptr = is_here}};
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params) {
    static ggml_guid guid = {'p', 'a', 'p', 'e', 'r'};
    ggml_backend_t backend = malloc(sizeof *backend);
    (void) params;
    if (backend != NULL) {
        *backend = (struct ggml_backend){.guid = &guid, .iface = backend_iface, .device = dev};
    }
    return backend;
}

static ggml_backend_buffer_type_t dev_buft(ggml_backend_dev_t dev) {
    return &device_of(dev)->buft;
}

// The file's own pages: they are counted with the model's weights.
static ggml_backend_buffer_t dev_from_host(ggml_backend_dev_t dev, void *base, size_t size, size_t max) {
    (void) max;
    return buffer_new(device_of(dev), base, size, 0);
}

// As this machine's CPU does, which is not asked about memory that is not its own.
static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    struct ggml_tensor node = *op, srcs[GGML_MAX_SRC];
    node.buffer = NULL;
    for (int i = 0; i < GGML_MAX_SRC && op->src[i] != NULL; i++) {
        srcs[i] = *op->src[i];
        srcs[i].buffer = NULL;
        node.src[i] = &srcs[i];
    }
    return ggml_backend_dev_supports_op(device_of(dev)->paper->real, &node);
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    return buft == &device_of(dev)->buft;
}

static const struct ggml_backend_device_i dev_iface = {
    .get_name = dev_name,
    .get_description = dev_name,
    .get_memory = dev_memory,
    .get_type = dev_type,
    .get_props = dev_props,
    .init_backend = dev_init,
    .get_buffer_type = dev_buft,
    .buffer_from_host_ptr = dev_from_host,
    .supports_op = dev_supports_op,
    .supports_buft = dev_supports_buft,
};

// ---- what its registry offers ----

// A CPU's needs are those of this machine's with as many threads.
static size_t reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    const struct paper_device *d = device_of(backend->device);
    return d->cpu != NULL ? berth_backend_reserve_size(d->cpu, graph) : 0;
}

static void *reg_proc(ggml_backend_reg_t reg, const char *name) {
    static const struct {
        const char *name;
        void (*proc)(void);
    } procs[] = {
        {"ggml_backend_comm_init", (void (*)(void)) comm_init},
        {"ggml_backend_comm_free", (void (*)(void)) comm_free},
        {"ggml_backend_comm_allreduce_tensor", (void (*)(void)) comm_allreduce},
        {"berth_comm_sum_ask", (void (*)(void)) comm_ask},
        {"berth_comm_sum_join", (void (*)(void)) comm_join},
        {"berth_backend_reserve_size", (void (*)(void)) reserve_size},
    };
    void *found = NULL;
    (void) reg;
    for (size_t i = 0; i < sizeof procs / sizeof procs[0]; i++) {
        if (strcmp(procs[i].name, name) == 0) {
            memcpy(&found, &procs[i].proc, sizeof found); // POSIX promises the bytes are the same
        }
    }
    return found;
}

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Paper";
}

static size_t reg_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 0;
}

static struct ggml_backend_reg reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = {.get_name = reg_name, .get_device_count = reg_count, .get_proc_address = reg_proc},
};

// ---- all of them ----

static void device_make(struct paper *p, int i) {
    struct paper_device *d = &p->devices[i];
    *d = (struct paper_device){.dev = {.iface = dev_iface, .reg = &reg, .context = d}, .paper = p, .i = i};
    d->is = &p->cluster->devices[i];
    d->buft = (struct ggml_backend_buffer_type){
        .iface = {.get_name = buft_name, .alloc_buffer = buft_alloc, .get_alignment = buft_alignment, .is_host = buft_is_host},
        .device = &d->dev,
    };
    d->cpu = cluster_is_cpu(d->is) ? ggml_backend_dev_init(p->real, NULL) : NULL;
    ggml_backend_set_n_threads_t set;
    void *proc = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(p->real), "ggml_backend_set_n_threads");
    memcpy(&set, &proc, sizeof set);
    if (d->cpu != NULL && set != NULL) {
        set(d->cpu, (int) d->is->threads);
    }
}

struct paper *paper_new(const struct cluster *c) {
    struct paper *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->cluster = c;
    p->next_address = FIRST_ADDRESS;
    p->real = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    p->devices = calloc((size_t) c->n_devices, sizeof *p->devices);
    if (p->devices == NULL || p->real == NULL) {
        paper_free(p);
        return NULL;
    }
    for (int i = 0; i < c->n_devices; i++) {
        device_make(p, i);
    }
    return p;
}

void paper_free(struct paper *p) {
    for (int i = 0; p != NULL && p->devices != NULL && i < p->cluster->n_devices; i++) {
        ggml_backend_free(p->devices[i].cpu);
    }
    if (p != NULL) {
        free(p->devices);
    }
    free(p);
}

ggml_backend_dev_t paper_device(struct paper *p, int i) {
    return &p->devices[i].dev;
}

uint64_t paper_bytes(const struct paper *p, int i) {
    return p->devices[i].bytes;
}

void paper_set_together(struct paper *p, bool is_together) {
    p->is_together = is_together;
}

void paper_clock_start(struct paper *p) {
    p->now = 0;
    for (int i = 0; i < p->cluster->n_devices; i++) {
        p->devices[i].busy = 0;
        p->devices[i].n_asked = 0;
    }
}

double paper_clock_now(const struct paper *p) {
    return p->now;
}
