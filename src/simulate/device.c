// SPDX-License-Identifier: MIT
// device.c: simulated devices. Their buffers have addresses but no memory. Computing a graph only advances a clock. A model is
// placed, planned and run on simulated devices by the same code as on real devices. Each device runs its commands in order. The
// program waits only where it would wait for a real device. Device 0 is the CPU of the program, so the program waits for every
// computation of device 0.

#include "simulate/cluster.h"

#include "base/min.h"

#include "ggml-backend-impl.h"

#include <string.h>

#define FIRST_ADDRESS ((uintptr_t) 0x2000000000000000u) // never an address of the process
#define ADDRESS_STEP ((uintptr_t) 1 << 20)
#define N_REQUESTED_MAX 8 // largest number of incomplete sums; src/meta/run.c requests fewer
#define SHORT_SUM 32768   // bytes; src/mpi/sum.c divides longer vectors into parts

struct sim_device {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
    struct simulation *sim;
    const struct cluster_device *spec;
    ggml_backend_t cpu;             // real CPU, for the size of work memory; NULL: 0
    int i;                          // index of the device in the cluster
    uint64_t bytes;                 // bytes of its buffers
    double busy;                    // time at which all its work is finished, except work in `queued`
    double queued[N_REQUESTED_MAX]; // [n_requested] seconds of the work that was sent after each requested sum
    int n_requested;
};

struct simulation {
    const struct cluster *cluster;
    struct sim_device *devices; // [cluster->n_devices]
    ggml_backend_dev_t real;    // CPU of this machine; simulated devices support the same ops
    uintptr_t next_address;
    double now; // clock of the program, in seconds
    bool is_together;
};

static struct sim_device *device_of(ggml_backend_dev_t dev) {
    return dev->context;
}

// ---- duration of an op (docs/user/scale.md): its cost (berth_op_cost) divided by the device's speeds ----

static double speed_or(double special, double usual) {
    return special > 0 ? special : usual;
}

static double op_seconds(const struct cluster_device *d, const struct ggml_tensor *t) {
    const struct berth_op_cost c = berth_op_cost(t);
    const double bytes = c.read_size + c.written_size;
    if (bytes <= 0) {
        return 0; // a view
    }
    if (t->op == GGML_OP_MUL_MAT || t->op == GGML_OP_MUL_MAT_ID) {
        const enum ggml_type type = t->src[0]->type;
        return max_f64(bytes / speed_or(d->read[type], d->bandwidth), c.flops / speed_or(d->product[type], d->flops));
    }
    if (t->op == GGML_OP_FLASH_ATTN_EXT) {
        return d->op + max_f64(bytes / speed_or(d->attend_read, d->bandwidth), c.flops / speed_or(d->attend, d->flops));
    }
    return d->op + bytes / d->bandwidth;
}

// ---- the clock ----

static double link_seconds(const struct sim_device *a, const struct sim_device *b, double size) {
    const struct cluster_link link = cluster_link_of(a->sim->cluster, a->i, b->i);
    return a == b ? 0 : link.latency + size / link.bandwidth;
}

static double program_seconds(const struct sim_device *d, double size) {
    return link_seconds(&d->sim->devices[0], d, size);
}

// The device is busy until `until`. Device 0 runs the program, so its clock and the clock of the program advance together.
static void device_set_busy(struct sim_device *d, double until) {
    d->busy = max_f64(d->busy, until);
    if (d->i == 0) {
        d->sim->now = d->busy = max_f64(d->sim->now, d->busy);
    }
}

static void device_send(struct sim_device *d, size_t size) {
    device_set_busy(d, d->sim->now + program_seconds(d, (double) size));
}

static void device_fetch(struct sim_device *d, size_t size) {
    struct simulation *sim = d->sim;
    sim->now = max_f64(sim->now + program_seconds(d, 0), d->busy) + program_seconds(d, (double) size);
}

static double graph_seconds(const struct sim_device *d, const struct ggml_cgraph *graph) {
    double seconds = 0;
    for (int i = 0; i < ggml_graph_n_nodes((struct ggml_cgraph *) (uintptr_t) graph); i++) {
        seconds += op_seconds(d->spec, ggml_graph_node((struct ggml_cgraph *) (uintptr_t) graph, i));
    }
    const double together = d->sim->is_together ? d->sim->cluster->hosts[d->spec->host].together : 1;
    return d->spec->start + seconds / together;
}

// ---- buffers ----

struct sim_buffer {
    struct sim_device *dev;
    void *base;
    uint64_t counted; // bytes
};

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct sim_buffer *b = buffer->context;
    b->dev->bytes -= b->counted;
    berth_free(b);
}

static void *buffer_base(ggml_backend_buffer_t buffer) {
    return ((struct sim_buffer *) buffer->context)->base;
}

static struct sim_device *device_of_buffer(ggml_backend_buffer_t buffer) {
    return ((struct sim_buffer *) buffer->context)->dev;
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset, size_t size) {
    (void) t;
    (void) value;
    (void) offset;
    (void) size;
    device_send(device_of_buffer(buffer), 0);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset, size_t size) {
    (void) t;
    (void) data;
    (void) offset;
    device_send(device_of_buffer(buffer), size);
}

// `data` may be an address of simulated device 0, which must not be written.
static void host_zero(void *data, size_t size) {
    if ((uintptr_t) data < FIRST_ADDRESS) {
        memset(data, 0, size);
    }
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset, size_t size) {
    (void) t;
    (void) offset;
    host_zero(data, size);
    device_fetch(device_of_buffer(buffer), size);
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
        host_zero((char *) data + i * to_step, size);
    }
    device_fetch(device_of_buffer(buffer), size * n);
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst);

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    (void) value;
    device_send(device_of_buffer(buffer), 0);
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

// Returns the device of the tensor's memory; NULL: the tensor is not on a simulated device.
static struct sim_device *tensor_device(const struct ggml_tensor *t) {
    ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    return buffer != NULL && buffer->iface.free_buffer == buffer_free ? device_of_buffer(buffer) : NULL;
}

static bool tensor_copy(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    struct sim_device *a = tensor_device(src), *b = tensor_device(dst);
    if (a == NULL || b == NULL) {
        return false;
    }
    const double asked = a->sim->now + program_seconds(a, 0);
    device_set_busy(b, max_f64(a->busy, asked) + link_seconds(a, b, (double) ggml_nbytes(src)));
    return true;
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) buffer;
    return tensor_copy(src, dst);
}

static ggml_backend_buffer_t buffer_new(struct sim_device *d, void *base, size_t size, uint64_t counted) {
    struct sim_buffer *b = berth_malloc(sizeof *b);
    if (b == NULL) {
        return NULL;
    }
    *b = (struct sim_buffer){.dev = d, .base = base, .counted = counted};
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(&d->buft, buffer_iface, b, size);
    if (buffer == NULL) {
        berth_free(b);
        return NULL;
    }
    d->bytes += counted;
    return buffer;
}

static const char *buft_name(ggml_backend_buffer_type_t buft) {
    return device_of(buft->device)->spec->name;
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct sim_device *d = device_of(buft->device);
    void *base = (void *) d->sim->next_address;
    d->sim->next_address += (size / ADDRESS_STEP + 2) * ADDRESS_STEP;
    return buffer_new(d, base, size, size);
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    return (size_t) device_of(buft->device)->spec->alignment;
}

// Device 0 is the program's CPU, so its buffers are host memory.
static bool buft_is_host(ggml_backend_buffer_type_t buft) {
    return device_of(buft->device)->i == 0;
}

// ---- the backend ----

static const char *backend_name(ggml_backend_t backend) {
    return device_of(backend->device)->spec->name;
}

static void backend_free(ggml_backend_t backend) {
    berth_free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct sim_device *d = device_of(backend->device);
    const double begin = max_f64(d->busy, d->sim->now + program_seconds(d, 0));
    if (d->n_requested > 0) {
        d->queued[d->n_requested - 1] += graph_seconds(d, graph);
    } else {
        device_set_busy(d, begin + graph_seconds(d, graph));
    }
    return GGML_STATUS_SUCCESS;
}

static void backend_synchronize(ggml_backend_t backend) {
    struct sim_device *d = device_of(backend->device);
    if (d->busy + program_seconds(d, 0) > d->sim->now && d->i != 0) {
        d->sim->now = d->busy + program_seconds(d, 0);
    }
}

static bool backend_copy(ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) from;
    (void) to;
    return tensor_copy(src, dst);
}

static const struct ggml_backend_i backend_iface = {
    .get_name = backend_name,
    .free = backend_free,
    .cpy_tensor_async = backend_copy,
    .synchronize = backend_synchronize,
    .graph_compute = backend_compute,
};

// ---- sums over devices, as in src/mpi/sum.c ----

struct sim_comm {
    int n;
    struct sim_device *devices[];
};

static void *comm_init(ggml_backend_t *backends, size_t n) {
    struct sim_comm *c = berth_malloc(sizeof *c + n * sizeof c->devices[0]);
    if (c == NULL) {
        return NULL;
    }
    c->n = (int) n;
    for (size_t i = 0; i < n; i++) {
        c->devices[i] = device_of(backends[i]->device);
    }
    return c;
}

static void comm_free(void *comm) {
    berth_free(comm);
}

static double sum_seconds(const struct sim_comm *c, double size) {
    double most = 0;
    for (int i = 0; i < c->n; i++) {
        double sent = 0, latency = 0;
        for (int k = 0; k < c->n; k++) {
            const double alone = link_seconds(c->devices[i], c->devices[k], 0);
            const double part = size <= SHORT_SUM ? size : 2 * size / c->n;
            latency = max_f64(latency, size <= SHORT_SUM ? alone : 2 * alone);
            sent += link_seconds(c->devices[i], c->devices[k], part) - alone;
        }
        most = max_f64(most, latency + sent);
    }
    return most;
}

// Requests a sum. The devices of other processes start the sum when the request arrives.
static bool comm_request(void *comm, struct ggml_tensor **tensors) {
    const struct sim_comm *c = comm;
    (void) tensors;
    for (int i = 0; i < c->n; i++) {
        struct sim_device *d = c->devices[i];
        if (d->i == 0) { // the program's CPU starts the sum itself, in comm_join
            continue;
        }
        if (d->n_requested == N_REQUESTED_MAX) {
            return false;
        }
        device_set_busy(d, d->n_requested == 0 ? d->sim->now + program_seconds(d, 0) : 0);
        d->queued[d->n_requested++] = 0;
    }
    return true;
}

// Completes the oldest requested sum when all devices have finished the work before it. The devices then continue with the work
// queued after the sum.
static bool comm_join(void *comm, struct ggml_tensor **tensors) {
    const struct sim_comm *c = comm;
    double begin = 0;
    for (int i = 0; i < c->n; i++) {
        begin = max_f64(begin, c->devices[i]->i == 0 ? c->devices[i]->sim->now : c->devices[i]->busy);
    }
    const double end = begin + sum_seconds(c, (double) ggml_nbytes(tensors[0]));
    for (int i = 0; i < c->n; i++) {
        struct sim_device *d = c->devices[i];
        device_set_busy(d, end + d->queued[0]);
        if (d->i == 0) {
            continue;
        }
        memmove(d->queued, d->queued + 1, (N_REQUESTED_MAX - 1) * sizeof d->queued[0]);
        d->n_requested--;
    }
    return true;
}

static bool comm_allreduce(void *comm, struct ggml_tensor **tensors) {
    return comm_request(comm, tensors) && comm_join(comm, tensors);
}

// ---- the device ----

static const char *dev_name(ggml_backend_dev_t dev) {
    return device_of(dev)->spec->name;
}

static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *n_total) {
    *n_free = *n_total = (size_t) device_of(dev)->spec->memory;
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    return device_of(dev)->i == 0 ? GGML_BACKEND_DEVICE_TYPE_CPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    const bool is_program_cpu = device_of(dev)->i == 0;
    *props = (struct ggml_backend_dev_props){.name = dev_name(dev),
        .description = dev_name(dev),
        .type = dev_type(dev),
        .caps = {.async = !is_program_cpu, .buffer_from_host_ptr = is_program_cpu}};
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params) {
    static ggml_guid guid = {'s', 'i', 'm'};
    ggml_backend_t backend = berth_malloc(sizeof *backend);
    (void) params;
    if (backend != NULL) {
        *backend = (struct ggml_backend){.guid = &guid, .iface = backend_iface, .device = dev};
    }
    return backend;
}

static ggml_backend_buffer_type_t dev_buft(ggml_backend_dev_t dev) {
    return &device_of(dev)->buft;
}

// Makes a buffer for host memory, such as a mapped file. It counts 0 bytes, because predict.c adds the pages of the mapped file.
static ggml_backend_buffer_t dev_from_host(ggml_backend_dev_t dev, void *base, size_t size, size_t max) {
    (void) max;
    return buffer_new(device_of(dev), base, size, 0);
}

// Asks the real CPU with copies of the tensors, because the CPU refuses buffers of other devices.
static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    struct ggml_tensor node = *op, srcs[GGML_MAX_SRC];
    node.buffer = NULL;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (op->src[i] != NULL) {
            srcs[i] = *op->src[i];
            srcs[i].buffer = NULL;
            node.src[i] = &srcs[i];
        }
    }
    return ggml_backend_dev_supports_op(device_of(dev)->sim->real, &node);
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

// ---- functions of the registry ----

// Returns the size of the work memory: the size that this machine's CPU requires with the same number of threads.
static size_t reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    const struct sim_device *d = device_of(backend->device);
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
        {"berth_comm_sum_ask", (void (*)(void)) comm_request},
        {"berth_comm_sum_join", (void (*)(void)) comm_join},
        {"berth_backend_reserve_size", (void (*)(void)) reserve_size},
    };
    void *found = NULL;
    (void) reg;
    for (size_t i = 0; i < sizeof procs / sizeof procs[0]; i++) {
        if (strcmp(procs[i].name, name) == 0) {
            memcpy(&found, &procs[i].proc, sizeof found); // POSIX guarantees that the bytes are the same
        }
    }
    return found;
}

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Simulated";
}

static size_t reg_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 0;
}

static struct ggml_backend_reg reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = {.get_name = reg_name, .get_device_count = reg_count, .get_proc_address = reg_proc},
};

// ---- the simulation ----

static void device_init(struct simulation *sim, int i) {
    struct sim_device *d = &sim->devices[i];
    *d = (struct sim_device){.dev = {.iface = dev_iface, .reg = &reg, .context = d}, .sim = sim, .i = i};
    d->spec = &sim->cluster->devices[i];
    d->buft = (struct ggml_backend_buffer_type){
        .iface = {.get_name = buft_name, .alloc_buffer = buft_alloc, .get_alignment = buft_alignment, .is_host = buft_is_host},
        .device = &d->dev,
    };
    d->cpu = cluster_is_cpu(d->spec) ? ggml_backend_dev_init(sim->real, NULL) : NULL;
    if (d->cpu != NULL) {
        model_device_set_threads(d->cpu, (int) d->spec->threads);
    }
}

struct simulation *simulation_new(const struct cluster *c) {
    struct simulation *sim = berth_calloc(1, sizeof *sim);
    if (sim == NULL) {
        return NULL;
    }
    sim->cluster = c;
    sim->next_address = FIRST_ADDRESS;
    sim->real = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    sim->devices = berth_calloc((size_t) c->n_devices, sizeof *sim->devices);
    if (sim->devices == NULL || sim->real == NULL) {
        simulation_free(sim);
        return NULL;
    }
    for (int i = 0; i < c->n_devices; i++) {
        device_init(sim, i);
    }
    return sim;
}

void simulation_free(struct simulation *sim) {
    if (sim == NULL) {
        return;
    }
    for (int i = 0; sim->devices != NULL && i < sim->cluster->n_devices; i++) {
        ggml_backend_free(sim->devices[i].cpu);
    }
    berth_free(sim->devices);
    berth_free(sim);
}

ggml_backend_dev_t simulation_device(struct simulation *sim, int i) {
    return &sim->devices[i].dev;
}

uint64_t simulation_bytes(const struct simulation *sim, int i) {
    return sim->devices[i].bytes;
}

void simulation_set_together(struct simulation *sim, bool is_together) {
    sim->is_together = is_together;
}

void simulation_clock_start(struct simulation *sim) {
    sim->now = 0;
    for (int i = 0; i < sim->cluster->n_devices; i++) {
        sim->devices[i].busy = 0;
        sim->devices[i].n_requested = 0;
    }
}

double simulation_clock_now(const struct simulation *sim) {
    return sim->now;
}
