// SPDX-License-Identifier: MIT
// measure.c: measures the devices of all ranks: products by type, small ops, attention, memory, and messages. `together` is
// measured here only if sums.c cannot measure it.

#include "simulate/cluster.h"

#include "base/base.h"
#include "base/min.h"
#include "model/speed_test.h"

#include "ggml-backend-impl.h"

#include <string.h>
#include <unistd.h>

#define N_COLUMNS 2048 // columns of a matrix; a multiple of every type's block size
#define N_TOKENS 256   // number of tokens in a product with many tokens
// Bytes of one matrix. A product of this matrix with one token is so short that waiting threads do not go to sleep.
#define MATRIX_SIZE ((size_t) 1 << 20)
#define N_MATRICES 64               // timed matrices
#define N_SWEEP 960                 // largest number of untimed matrices in the sweep
#define N_SMALL 64                  // number of small ops in a chain
#define BIG_SIZE ((size_t) 8 << 20) // bytes of a long message
#define N_TRIES 200                 // number of short messages, of which the fastest counts
#define N_ROUNDS 8                  // repetitions of tests_seconds

struct measuring {
    const struct cluster_measure_params *params;
    struct cluster *c;
    ggml_backend_t *backends; // [c->n_devices]
    enum ggml_type type;      // type of the weights with which devices are measured at the same time
    uint64_t size;            // bytes of weights that one token reads; UINT64_MAX: unknown
    int round;
};

// ---- one device ----

// Creates n_matrices timed products of a matrix with n tokens; each product is a separately timed piece. The sweep is one untimed
// graph of n_sweep other products, which evicts the timed matrices from the processor caches.
static bool products_make(struct speed_test *test, enum ggml_type type, int n_matrices, int64_t n_rows, int64_t n, int n_sweep) {
    if (!speed_test_init(test, (size_t) (n_matrices + n_sweep))) {
        return false;
    }
    struct ggml_cgraph *sweep = n_sweep > 0 ? speed_test_sweep(test, (size_t) n_sweep) : NULL;
    struct ggml_tensor *token = n_sweep > 0 ? ggml_new_tensor_2d(test->ctx, GGML_TYPE_F32, N_COLUMNS, n) : NULL;
    for (int i = 0; i < n_sweep; i++) {
        struct ggml_tensor *a = ggml_new_tensor_2d(test->ctx, type, N_COLUMNS, n_rows);
        ggml_build_forward_expand(sweep, ggml_mul_mat(test->ctx, a, token));
    }
    for (int i = 0; i < n_matrices; i++) {
        struct ggml_tensor *a = ggml_new_tensor_2d(test->ctx, type, N_COLUMNS, n_rows);
        struct ggml_tensor *x = ggml_new_tensor_2d(test->ctx, GGML_TYPE_F32, N_COLUMNS, n);
        ggml_build_forward_expand(speed_test_piece(test, 1), ggml_mul_mat(test->ctx, a, x));
    }
    return true;
}

static int64_t rows_of(enum ggml_type type) {
    return (int64_t) (MATRIX_SIZE / ggml_row_size(type, N_COLUMNS));
}

// Returns the number of matrices in the sweep of device i. The sweep and the timed matrices together are at most as large as the
// weights. All devices of a host together use at most an eighth of the host's free memory.
static int n_sweep_of(const struct measuring *m, int i) {
    uint64_t n_same = 0;
    for (int k = 0; k < m->c->n_devices; k++) {
        n_same += m->c->devices[k].host == m->c->devices[i].host;
    }
    const uint64_t n = min_u64(m->c->devices[i].memory / 8 / n_same, m->size) / MATRIX_SIZE;
    return n <= N_MATRICES ? 0 : (int) min_u64(n - N_MATRICES, N_SWEEP);
}

// Measures bytes of weights per second in products with one token. All products are one graph, so that a remote device gets only
// one request.
static double read_speed(const struct measuring *m, int i, enum ggml_type type, double start) {
    const int n = N_MATRICES + n_sweep_of(m, i);
    struct speed_test test;
    if (!speed_test_init(&test, (size_t) n)) {
        return 0;
    }
    struct ggml_cgraph *graph = speed_test_piece(&test, (size_t) n);
    struct ggml_tensor *token = ggml_new_tensor_1d(test.ctx, GGML_TYPE_F32, N_COLUMNS);
    for (int k = 0; k < n; k++) {
        struct ggml_tensor *matrix = ggml_new_tensor_2d(test.ctx, type, N_COLUMNS, rows_of(type));
        ggml_build_forward_expand(graph, ggml_mul_mat(test.ctx, matrix, token));
    }
    const double seconds = speed_test_mean(&test, m->backends[i], start);
    ggml_free(test.ctx);
    return seconds > 0 ? (double) n * (double) rows_of(type) * (double) ggml_row_size(type, N_COLUMNS) / seconds : 0;
}

static double product_speed(ggml_backend_t backend, enum ggml_type type, double start) {
    const int64_t n_rows = 1024;
    struct speed_test test;
    if (!products_make(&test, type, 1, n_rows, N_TOKENS, 0)) {
        return 0;
    }
    const double seconds = speed_test_mean(&test, backend, start);
    ggml_free(test.ctx);
    return seconds > 0 ? 2.0 * N_COLUMNS * (double) n_rows * N_TOKENS / seconds : 0;
}

static double memory_speed(ggml_backend_t backend, double start) {
    const int64_t n = (int64_t) 4 << 20;
    struct speed_test test;
    if (!speed_test_init(&test, 1)) {
        return 0;
    }
    struct ggml_tensor *a = ggml_new_tensor_1d(test.ctx, GGML_TYPE_F32, n), *b = ggml_new_tensor_1d(test.ctx, GGML_TYPE_F32, n);
    ggml_build_forward_expand(speed_test_piece(&test, 1), ggml_add(test.ctx, a, b));
    const double seconds = speed_test_mean(&test, backend, start);
    ggml_free(test.ctx);
    return seconds > 0 ? 3.0 * (double) n * sizeof(float) / seconds : 0;
}

// Measures attention of n tokens to 1024 positions with four queries per key: bytes and operations per second.
static void attention_speed(ggml_backend_t backend, int64_t n, double start, double *bytes, double *operations) {
    const int64_t head = 128, n_kv = 1024, n_head = 32, n_head_kv = 8;
    struct speed_test test;
    *bytes = *operations = 0;
    if (!speed_test_init(&test, 2)) {
        return;
    }
    struct ggml_tensor *q = ggml_new_tensor_3d(test.ctx, GGML_TYPE_F32, head, n, n_head);
    struct ggml_tensor *k = ggml_new_tensor_3d(test.ctx, GGML_TYPE_F16, head, n_kv, n_head_kv);
    struct ggml_tensor *v = ggml_new_tensor_3d(test.ctx, GGML_TYPE_F16, head, n_kv, n_head_kv);
    struct ggml_tensor *mask = ggml_new_tensor_2d(test.ctx, GGML_TYPE_F16, n_kv, n);
    ggml_build_forward_expand(speed_test_piece(&test, 2), ggml_flash_attn_ext(test.ctx, q, k, v, mask, 0.1f, 0, 0));
    const double seconds = speed_test_run(&test, backend, start);
    ggml_free(test.ctx);
    if (seconds > 0) {
        *bytes = 2.0 * (double) (head * n_kv * n_head_kv) * sizeof(ggml_fp16_t) / seconds;
        *operations = 4.0 * (double) (head * n_kv * n_head * n) / seconds;
    }
}

// Reports progress before a type is measured. False: the caller stops the measurement.
static bool type_begin(const struct measuring *m, int i, int type) {
    const int n = m->c->n_devices;
    work_progress(&m->params->watch, "measuring", (uint64_t) ((m->round * n + i) * GGML_TYPE_COUNT + type),
        (uint64_t) (CLUSTER_ROUNDS * n * GGML_TYPE_COUNT), "%s: %s", m->c->devices[i].name,
        ggml_type_name((enum ggml_type) type));
    return !work_is_stopped(&m->params->watch);
}

static bool device_measure(struct measuring *m, int i) {
    struct cluster_device *d = &m->c->devices[i];
    ggml_backend_t backend = m->backends[i];
    const double tiny = speed_test_chain(backend, 1, 64), chain = speed_test_chain(backend, N_SMALL, N_COLUMNS);
    double unused;
    d->op = max_f64((chain - tiny) / (N_SMALL - 1), 0);
    d->start = tiny;
    d->bandwidth = memory_speed(backend, tiny);
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (!m->params->measures_type[t]) {
            continue;
        }
        if (!type_begin(m, i, t)) {
            berth_set_error("stopped");
            return false;
        }
        d->read[t] = read_speed(m, i, (enum ggml_type) t, tiny);
        d->product[t] = product_speed(backend, (enum ggml_type) t, tiny);
    }
    d->flops = product_speed(backend, GGML_TYPE_F32, tiny);
    attention_speed(backend, 1, tiny, &d->attend_read, &unused);
    attention_speed(backend, 64, tiny, &unused, &d->attend);
    return d->bandwidth > 0 && d->flops > 0;
}

// ---- messages ----

struct message {
    struct ggml_context *ctx;
    struct ggml_tensor *small, *big;
    ggml_backend_buffer_t buffer;
};

static bool message_init(struct message *l, ggml_backend_t backend) {
    *l = (struct message){.ctx = ggml_init((struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true})};
    if (l->ctx == NULL) {
        return false;
    }
    l->small = ggml_new_tensor_1d(l->ctx, GGML_TYPE_F32, 16);
    l->big = ggml_new_tensor_1d(l->ctx, GGML_TYPE_F32, (int64_t) (BIG_SIZE / sizeof(float)));
    l->buffer = ggml_backend_alloc_ctx_tensors(l->ctx, backend);
    ggml_backend_buffer_clear(l->buffer, 0); // accepts NULL
    return l->buffer != NULL;
}

static void message_fini(struct message *l) {
    ggml_backend_buffer_free(l->buffer);
    ggml_free(l->ctx);
}

// Returns the seconds of the fastest message from device i to device k; if k is 0, to the program. The time ends when the program
// knows that the message has arrived.
static double message_seconds(
    struct measuring *m, int i, int k, struct ggml_tensor *src, struct ggml_tensor *dst, void *host_bytes) {
    double best = 0;
    for (int n = 0; n < (ggml_nbytes(src) < BIG_SIZE ? N_TRIES : 8); n++) {
        const int64_t start = ggml_time_us();
        if (k == 0) {
            ggml_backend_tensor_get(src, host_bytes, 0, ggml_nbytes(src));
        } else {
            ggml_backend_tensor_copy_async(m->backends[i], m->backends[k], src, dst);
            ggml_backend_synchronize(m->backends[k]);
        }
        const double seconds = (double) (ggml_time_us() - start) / 1e6;
        if (best == 0 || seconds < best) {
            best = seconds;
        }
    }
    return best;
}

// Measures the link between the hosts of devices i and k. If k is 0, the measured time contains a request and its answer, so the
// latency is half of the time. Otherwise the time contains the requests of the program, the copy, and the answer; the two
// latencies between the program and device k are then subtracted.
static bool link_measure(struct measuring *m, int i, int k) {
    const double program_latency = cluster_link_of(m->c, 0, k).latency; // read before the link between i and k exists
    struct message from, to = {0};
    void *host_bytes = berth_malloc(BIG_SIZE);
    const bool ok = message_init(&from, m->backends[i]) && (k == 0 || message_init(&to, m->backends[k])) && host_bytes != NULL;
    struct cluster_link *l = ok ? cluster_link_add(m->c) : NULL;
    if (l != NULL) {
        const double small = message_seconds(m, i, k, from.small, to.small, host_bytes);
        const double big = message_seconds(m, i, k, from.big, to.big, host_bytes);
        l->a = m->c->devices[i].host;
        l->b = m->c->devices[k].host;
        l->latency = small / 2;
        l->bandwidth = (double) BIG_SIZE / (big > small ? big - small : 1e-6);
        if (k != 0) {
            const double known = 2 * program_latency;
            l->latency = small - known > 1e-6 ? small - known : known / 2;
        }
    }
    message_fini(&from);
    message_fini(&to);
    berth_free(host_bytes);
    return l != NULL;
}

static bool has_link(const struct cluster *c, int a, int b) {
    for (int l = 0; l < c->n_links; l++) {
        if ((c->links[l].a == a && c->links[l].b == b) || (c->links[l].a == b && c->links[l].b == a)) {
            return true;
        }
    }
    return false;
}

static bool links_measure(struct measuring *m) {
    for (int k = 0; k < m->c->n_devices; k++) { // k = 0 first: link_measure needs the latency of the program's links
        for (int i = k + 1; i < m->c->n_devices; i++) {
            if (!has_link(m->c, m->c->devices[i].host, m->c->devices[k].host) && !link_measure(m, i, k)) {
                return false;
            }
        }
    }
    return true;
}

// ---- together ----

// Runs one piece (the sweep if piece < 0) at the same time on all devices i with is_in[i]. Returns seconds; negative: failed.
static double all_run(struct measuring *m, const struct speed_test *tests, const bool *is_in, int piece) {
    const int64_t start = ggml_time_us();
    for (int i = m->c->n_devices - 1; i >= 0; i--) { // the program's own device last, because the program waits for it
        struct ggml_cgraph *graph = piece < 0 ? tests[i].sweep : tests[i].pieces[piece];
        if (is_in[i] && graph != NULL && ggml_backend_graph_compute_async(m->backends[i], graph) != GGML_STATUS_SUCCESS) {
            return -1;
        }
    }
    for (int i = 0; i < m->c->n_devices; i++) {
        if (is_in[i]) {
            ggml_backend_synchronize(m->backends[i]);
        }
    }
    return (double) (ggml_time_us() - start) / 1e6;
}

// Returns the sum over the pieces of the fastest time of each piece, when all devices i with is_in[i] compute. 0: failed.
static double tests_seconds(struct measuring *m, const struct speed_test *tests, const bool *is_in) {
    double best[N_MATRICES] = {0}, sum = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int piece = 0; piece < N_MATRICES; piece++) {
            const double seconds = all_run(m, tests, is_in, piece);
            if (seconds < 0) {
                return 0;
            }
            best[piece] = round == 0 ? seconds : min_f64(seconds, best[piece]);
        }
        if (all_run(m, tests, is_in, -1) < 0) {
            return 0;
        }
    }
    for (int piece = 0; piece < N_MATRICES; piece++) {
        sum += best[piece];
    }
    return sum;
}

static void host_together_measure(struct measuring *m, int h) {
    const int n = m->c->n_devices;
    struct speed_test *tests = berth_calloc((size_t) n, sizeof *tests);
    ggml_backend_buffer_t *buffers = berth_calloc((size_t) n, sizeof(ggml_backend_buffer_t));
    bool *is_in = berth_calloc((size_t) n, sizeof *is_in);
    bool ok = tests != NULL && buffers != NULL && is_in != NULL;
    double alone = 0;
    int n_in = 0;
    for (int i = 0; ok && i < n; i++) {
        if (m->c->devices[i].host == h) {
            ok = products_make(&tests[i], m->type, N_MATRICES, rows_of(m->type), 1, n_sweep_of(m, i));
            buffers[i] = ok ? ggml_backend_alloc_ctx_tensors(tests[i].ctx, m->backends[i]) : NULL;
            ok = buffers[i] != NULL;
            ggml_backend_buffer_clear(buffers[i], 0);
            n_in++;
        }
    }
    for (int i = 0; ok && n_in > 1 && i < n; i++) {
        if (m->c->devices[i].host == h) {
            is_in[i] = true;
            alone = max_f64(tests_seconds(m, tests, is_in), alone);
            is_in[i] = false;
        }
    }
    for (int i = 0; ok && i < n; i++) {
        is_in[i] = m->c->devices[i].host == h;
    }
    const double together = ok && n_in > 1 ? tests_seconds(m, tests, is_in) : 0;
    if (together > alone && alone > 0) {
        m->c->hosts[h].together = alone / together;
    }
    for (int i = 0; i < n && tests != NULL && buffers != NULL; i++) {
        ggml_backend_buffer_free(buffers[i]);
        ggml_free(tests[i].ctx);
    }
    berth_free(tests);
    berth_free(buffers);
    berth_free(is_in);
}

// ---- the measurement ----

void cluster_measure_params_set_model(struct cluster_measure_params *params, const struct model *model) {
    for (size_t i = 0; i < model->n_weights; i++) {
        const struct ggml_tensor *t = model->weights[i].file;
        if (!model->weights[i].is_vector) {
            params->measures_type[t->type] |= t->ne[1] > 1;
            params->size += ggml_nbytes(t);
        }
    }
}

// Sets the host of a device. The description of another rank's device ends with " of HOST". All other devices are on this host.
// False: out of memory.
static bool host_find(struct cluster *c, ggml_backend_dev_t dev, struct cluster_device *d) {
    char own_name[64] = "here";
    gethostname(own_name, sizeof own_name - 1);
    const char *name = own_name;
    for (const char *p = ggml_backend_dev_description(dev); strncmp(d->name, "MPI", 3) == 0 && (p = strstr(p, " of ")) != NULL;) {
        name = p += 4;
    }
    for (int h = 0; h < c->n_hosts; h++) {
        if (strncmp(c->hosts[h].name, name, 40) == 0) {
            d->host = h;
            return true;
        }
    }
    struct cluster_host *host = cluster_host_add(c);
    d->host = c->n_hosts - 1;
    if (host != NULL) {
        snprintf(host->name, sizeof host->name, "%.40s", name);
    }
    return host != NULL;
}

static bool device_add(struct measuring *m, ggml_backend_dev_t dev) {
    struct cluster_device *d = cluster_device_add(m->c);
    ggml_backend_t *more = d != NULL ? berth_realloc(m->backends, (size_t) m->c->n_devices * sizeof(ggml_backend_t)) : NULL;
    size_t n_free = 0, n_total = 0;
    if (more == NULL) {
        m->c->n_devices -= d != NULL;
        return false;
    }
    m->backends = more;
    snprintf(d->name, sizeof d->name, "%s", ggml_backend_dev_name(dev));
    ggml_backend_dev_memory(dev, &n_free, &n_total);
    d->memory = n_free;
    d->alignment = ggml_backend_buft_get_alignment(ggml_backend_dev_buffer_type(dev));
    d->threads = m->params->n_threads > 0 ? m->params->n_threads : model_n_cores();
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    m->backends[m->c->n_devices - 1] = backend;
    if (backend == NULL) {
        return false;
    }
    model_device_set_threads(backend, (int) d->threads);
    return host_find(m->c, dev, d);
}

static bool devices_find(struct measuring *m) {
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (cpu == NULL || !device_add(m, cpu)) {
        return false;
    }
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU && !device_add(m, dev)) {
            return false;
        }
    }
    return true;
}

// Copies hosts and devices, but not links, so c must not be measured yet. False: out of memory.
static bool cluster_copy(struct cluster *out, const struct cluster *c) {
    *out = (struct cluster){.n_hosts = c->n_hosts, .n_devices = c->n_devices};

    out->hosts = berth_malloc((size_t) c->n_hosts * sizeof c->hosts[0]);
    out->devices = berth_malloc((size_t) c->n_devices * sizeof c->devices[0]);
    if (out->hosts == NULL || out->devices == NULL) {
        cluster_fini(out);
        return false;
    }
    memcpy(out->hosts, c->hosts, (size_t) c->n_hosts * sizeof c->hosts[0]);
    memcpy(out->devices, c->devices, (size_t) c->n_devices * sizeof c->devices[0]);
    return true;
}

static bool round_measure(struct measuring *m) {
    struct cluster *c = m->c;
    for (int i = 0; i < c->n_devices; i++) {
        if (!device_measure(m, i)) {
            return false;
        }
    }
    if (!links_measure(m)) {
        return false;
    }
    for (int i = 1; i < c->n_devices;
         i++) { // subtracts the round trip to the device, because the latency of the link is counted separately
        c->devices[i].start = max_f64(c->devices[i].start - 2 * cluster_link_of(c, 0, i).latency, 0);
    }
    if (!cluster_sums_measure(c, m->backends, m->type, m->size)) {
        for (int h = 0; h < c->n_hosts; h++) {
            host_together_measure(m, h);
        }
    }
    return true;
}

// Combines n rounds into m->c. All rounds have the same links.
static bool rounds_choose(struct measuring *m, const struct cluster *rounds, int n) {
    struct cluster *c = m->c;
    const size_t size = (size_t) rounds[0].n_links * sizeof c->links[0];
    c->links = berth_malloc(size + 1);
    if (c->links == NULL) {
        return false;
    }
    c->n_links = rounds[0].n_links;
    if (size > 0) {
        memcpy(c->links, rounds[0].links, size);
    }
    cluster_choose_rounds(c, rounds, n, m->type);
    return true;
}

static bool rounds_measure(struct measuring *m) {
    struct cluster *c = m->c;
    struct cluster rounds[CLUSTER_ROUNDS] = {{0}};
    const int64_t start = ggml_time_us();
    double longest = 0, taken = 0;
    int n = 0;
    bool ok = true;
    for (; ok && n < CLUSTER_ROUNDS && (n == 0 || taken + longest < m->params->seconds); n++) {
        m->c = &rounds[n];
        m->round = n;
        ok = cluster_copy(&rounds[n], c) && round_measure(m);
        const double now = (double) (ggml_time_us() - start) / 1e6;
        longest = max_f64(now - taken, longest);
        taken = now;
    }
    m->c = c;
    if (ok) {
        ok = rounds_choose(m, rounds, n);
    }
    for (int r = 0; r < n; r++) {
        cluster_fini(&rounds[r]);
    }
    return ok;
}

bool cluster_measure(struct cluster *c, const struct cluster_measure_params *params, struct model_error *error) {
    struct measuring m = {.params = params, .c = c, .type = GGML_TYPE_F16, .size = params->size > 0 ? params->size : UINT64_MAX};
    *c = (struct cluster){0};
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (params->measures_type[t] && ggml_is_quantized((enum ggml_type) t)) {
            m.type = (enum ggml_type) t;
        }
    }
    berth_clear_error();
    const bool ok = devices_find(&m) && rounds_measure(&m);
    for (int i = 0; i < c->n_devices; i++) {
        ggml_backend_free(m.backends[i]);
    }
    berth_free(m.backends);
    if (!ok) {
        cluster_fini(c);
        const char *why = berth_last_error();
        return model_fail(error, "the devices could not be measured: %s", *why != '\0' ? why : "out of memory");
    }
    return true;
}
