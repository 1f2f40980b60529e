// SPDX-License-Identifier: MIT
// measure.c: what the devices of this process and of the ranks beside it do: products by type, small ops, attention,
// memory; messages between them; and how much slower those of one host are together than alone, where cluster_sums.c cannot say.

#include "simulate/cluster.h"

#include "model/speed_test.h"

#include "ggml-backend-impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_COLUMNS 2048                 // of matrices; whole blocks of every type
#define N_TOKENS 256                   // of a prompt
#define MATRIX_SIZE ((size_t) 1 << 20) // bytes of a matrix that a token is multiplied with: who waits for it does not sleep yet
#define N_MATRICES 64                  // that are timed
#define N_SWEEP 960                    // others at most, between which they leave the caches
#define N_SMALL 64
#define BIG_SIZE ((size_t) 8 << 20) // bytes of a long message
#define N_TRIES 200
#define N_ROUNDS 8

struct measuring {
    struct cluster *c;
    ggml_backend_t *backends; // [c->n_devices]
    const bool *wants;
    enum ggml_type most; // the type that tells how devices do together
    uint64_t size;       // of the weights
    int round;
};

// ---- one device ----

static double chain_seconds(ggml_backend_t backend, int n, int64_t width) {
    struct speed_test test;
    if (!speed_test_init(&test, N_SMALL)) {
        return 0;
    }
    struct ggml_tensor *a = ggml_new_tensor_1d(test.ctx, GGML_TYPE_F32, width), *x = a;
    for (int i = 0; i < n; i++) {
        x = i % 2 == 0 ? ggml_add(test.ctx, x, a) : ggml_rms_norm(test.ctx, x, 1e-5f);
    }
    ggml_build_forward_expand(speed_test_piece(&test, N_SMALL), x);
    const double seconds = speed_test_run(&test, backend, 0);
    ggml_free(test.ctx);
    return seconds;
}

// Products of matrices of a type with n tokens, a piece each, and of n_sweep more between.
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

// As many matrices besides as make up the weights, within an eighth of what is free: of its host's, which they share.
static int n_sweep_of(const struct measuring *m, int i) {
    uint64_t n_same = 0;
    for (int k = 0; k < m->c->n_devices; k++) {
        n_same += m->c->devices[k].host == m->c->devices[i].host;
    }
    const uint64_t share = m->c->devices[i].memory / 8 / n_same, room = share < m->size ? share : m->size;
    const uint64_t n = room / MATRIX_SIZE;
    return n <= N_MATRICES ? 0 : n - N_MATRICES < N_SWEEP ? (int) (n - N_MATRICES) : N_SWEEP;
}

// As a token does: all weights in one graph, so that a device that is far is asked once.
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

// Attention of n tokens to 1024 positions, four queries for each key: bytes and operations a second.
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

static void device_measure(struct measuring *m, int i) {
    struct cluster_device *d = &m->c->devices[i];
    ggml_backend_t backend = m->backends[i];
    const double tiny = chain_seconds(backend, 1, 64), chain = chain_seconds(backend, N_SMALL, N_COLUMNS);
    double unused;
    d->op = (chain - tiny) / (N_SMALL - 1);
    d->op = d->op > 0 ? d->op : 0;
    d->start = tiny;
    d->bandwidth = memory_speed(backend, tiny);
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (m->wants[t]) {
            cli_progress("measuring", (uint64_t) ((m->round * m->c->n_devices + i) * GGML_TYPE_COUNT + t),
                (uint64_t) (CLUSTER_ROUNDS * m->c->n_devices * GGML_TYPE_COUNT), "%s: %s", d->name,
                ggml_type_name((enum ggml_type) t));
            d->read[t] = read_speed(m, i, (enum ggml_type) t, tiny);
            d->product[t] = product_speed(backend, (enum ggml_type) t, tiny);
        }
    }
    d->flops = product_speed(backend, GGML_TYPE_F32, tiny);
    attention_speed(backend, 1, tiny, &d->attend_read, &unused);
    attention_speed(backend, 64, tiny, &unused, &d->attend);
}

// ---- messages ----

struct letter {
    struct ggml_context *ctx;
    struct ggml_tensor *small, *big;
    ggml_backend_buffer_t buffer;
};

static bool letter_init(struct letter *l, ggml_backend_t backend) {
    *l = (struct letter){.ctx = ggml_init((struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true})};
    if (l->ctx == NULL) {
        return false;
    }
    l->small = ggml_new_tensor_1d(l->ctx, GGML_TYPE_F32, 16);
    l->big = ggml_new_tensor_1d(l->ctx, GGML_TYPE_F32, (int64_t) (BIG_SIZE / sizeof(float)));
    l->buffer = ggml_backend_alloc_ctx_tensors(l->ctx, backend);
    ggml_backend_buffer_clear(l->buffer, 0); // NULL is taken
    return l->buffer != NULL;
}

static void letter_fini(struct letter *l) {
    ggml_backend_buffer_free(l->buffer);
    ggml_free(l->ctx);
}

// From device i to k, or to the program, at its best: seconds until it is there and the program knows.
static double trip(struct measuring *m, int i, int k, struct ggml_tensor *src, struct ggml_tensor *dst, void *here) {
    double best = 0;
    for (int n = 0; n < (ggml_nbytes(src) < BIG_SIZE ? N_TRIES : 8); n++) {
        const int64_t start = ggml_time_us();
        if (k == 0) {
            ggml_backend_tensor_get(src, here, 0, ggml_nbytes(src));
        } else {
            ggml_backend_tensor_copy_async(m->backends[i], m->backends[k], src, dst);
            ggml_backend_synchronize(m->backends[k]);
        }
        const double seconds = (double) (ggml_time_us() - start) / 1e6;
        best = best == 0 || seconds < best ? seconds : best;
    }
    return best;
}

// The link between the hosts of two devices. The program asks and is answered; between others a copy's two ends do the same.
static bool link_measure(struct measuring *m, int i, int k) {
    struct letter from, to = {0};
    void *here = malloc(BIG_SIZE);
    bool ok = letter_init(&from, m->backends[i]) && (k == 0 || letter_init(&to, m->backends[k])) && here != NULL;
    struct cluster_link *l = ok ? cluster_link_add(m->c) : NULL;
    if (l != NULL) {
        const double small = trip(m, i, k, from.small, to.small, here), big = trip(m, i, k, from.big, to.big, here);
        const double known = k == 0 ? 0 : 2 * cluster_link_of(m->c, 0, k).latency;
        l->a = m->c->devices[i].host;
        l->b = m->c->devices[k].host;
        l->latency = k == 0 ? small / 2 : small - known > 1e-6 ? small - known : known / 2;
        l->bandwidth = (double) BIG_SIZE / (big > small ? big - small : 1e-6);
    }
    letter_fini(&from);
    letter_fini(&to);
    free(here);
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
    bool ok = true;
    for (int k = 0; k < m->c->n_devices; k++) { // those of the program first
        for (int i = k + 1; ok && i < m->c->n_devices; i++) {
            ok = has_link(m->c, m->c->devices[i].host, m->c->devices[k].host) || link_measure(m, i, k);
        }
    }
    return ok;
}

// ---- together ----

// A piece by all devices that are in, or their sweeps: seconds, negative if it fails.
static double all_run(struct measuring *m, const struct speed_test *tests, const bool *is_in, int piece) {
    const int64_t start = ggml_time_us();
    for (int i = m->c->n_devices - 1; i >= 0; i--) { // the program's own keeps it waiting: last
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

// Seconds of all pieces, each at its best, by all devices that are in.
static double tests_seconds(struct measuring *m, const struct speed_test *tests, const bool *is_in) {
    double best[N_MATRICES] = {0}, sum = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int piece = 0; piece < N_MATRICES; piece++) {
            const double seconds = all_run(m, tests, is_in, piece);
            if (seconds < 0) {
                return 0;
            }
            best[piece] = best[piece] == 0 || seconds < best[piece] ? seconds : best[piece];
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

static void host_measure(struct measuring *m, int h) {
    const int n = m->c->n_devices;
    struct speed_test *tests = calloc((size_t) n, sizeof *tests);
    ggml_backend_buffer_t *buffers = calloc((size_t) n, sizeof(ggml_backend_buffer_t));
    bool *is_in = calloc((size_t) n, sizeof *is_in);
    bool ok = tests != NULL && buffers != NULL && is_in != NULL;
    double alone = 0;
    int n_in = 0;
    for (int i = 0; ok && i < n; i++) {
        if (m->c->devices[i].host == h) {
            ok = products_make(&tests[i], m->most, N_MATRICES, rows_of(m->most), 1, n_sweep_of(m, i));
            buffers[i] = ok ? ggml_backend_alloc_ctx_tensors(tests[i].ctx, m->backends[i]) : NULL;
            ok = buffers[i] != NULL;
            ggml_backend_buffer_clear(buffers[i], 0);
            n_in++;
        }
    }
    for (int i = 0; ok && n_in > 1 && i < n; i++) {
        if (m->c->devices[i].host == h) {
            is_in[i] = true;
            const double seconds = tests_seconds(m, tests, is_in);
            is_in[i] = false;
            alone = seconds > alone ? seconds : alone;
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
    free(tests);
    free(buffers);
    free(is_in);
}

// ---- all of it ----

void cluster_types(const struct model *model, bool wants[GGML_TYPE_COUNT]) {
    for (size_t i = 0; i < model->n_weights; i++) {
        wants[model->weights[i].file->type] |= !model->weights[i].is_vector && model->weights[i].file->ne[1] > 1;
    }
}

uint64_t cluster_size(const struct model *model) {
    uint64_t size = 0;
    for (size_t i = 0; i < model->n_weights; i++) {
        size += model->weights[i].is_vector ? 0 : ggml_nbytes(model->weights[i].file);
    }
    return size;
}

// Its host: the one that ranks' devices name, or this one. False: out of memory.
static bool host_find(struct cluster *c, ggml_backend_dev_t dev, struct cluster_device *d) {
    char here[64] = "here";
    gethostname(here, sizeof here - 1);
    const char *name = here;
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

static bool device_add(struct measuring *m, ggml_backend_dev_t dev, int64_t n_threads) {
    struct cluster_device *d = cluster_device_add(m->c);
    ggml_backend_t *more = d != NULL ? realloc(m->backends, (size_t) m->c->n_devices * sizeof(ggml_backend_t)) : NULL;
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
    d->threads = n_threads > 0 ? n_threads : model_n_cores();
    m->backends[m->c->n_devices - 1] = ggml_backend_dev_init(dev, NULL);
    ggml_backend_set_n_threads_t set;
    void *proc = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_backend_set_n_threads");
    memcpy(&set, &proc, sizeof set);
    if (set != NULL && m->backends[m->c->n_devices - 1] != NULL) {
        set(m->backends[m->c->n_devices - 1], (int) d->threads);
    }
    return m->backends[m->c->n_devices - 1] != NULL && host_find(m->c, dev, d);
}

static bool devices_find(struct measuring *m, int64_t n_threads) {
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    bool ok = cpu != NULL && device_add(m, cpu, n_threads);
    for (size_t i = 0; ok && i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        ok = ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_GPU || device_add(m, dev, n_threads);
    }
    return ok;
}

// The devices and hosts of c, before anything is measured of them. False: out of memory.
static bool cluster_copy(struct cluster *out, const struct cluster *c) {
    *out = (struct cluster){.n_hosts = c->n_hosts, .n_devices = c->n_devices};

    out->hosts = malloc((size_t) c->n_hosts * sizeof c->hosts[0]);
    out->devices = malloc((size_t) c->n_devices * sizeof c->devices[0]);
    if (out->hosts == NULL || out->devices == NULL) {
        cluster_fini(out);
        return false;
    }
    memcpy(out->hosts, c->hosts, (size_t) c->n_hosts * sizeof c->hosts[0]);
    memcpy(out->devices, c->devices, (size_t) c->n_devices * sizeof c->devices[0]);
    return true;
}

// All of m->c once.
static bool round_measure(struct measuring *m) {
    struct cluster *c = m->c;
    bool ok = true;
    for (int i = 0; ok && i < c->n_devices; i++) {
        device_measure(m, i);
        ok = c->devices[i].bandwidth > 0 && c->devices[i].flops > 0;
    }
    ok = ok && links_measure(m);
    for (int i = 1; ok && i < c->n_devices; i++) { // its round trip is the link's
        const double trip_s = 2 * cluster_link_of(c, 0, i).latency;
        c->devices[i].start = c->devices[i].start > trip_s ? c->devices[i].start - trip_s : 0;
    }
    const bool is_known = ok && cluster_sums_measure(c, m->backends, m->most, m->size);
    for (int h = 0; ok && !is_known && h < c->n_hosts; h++) {
        host_measure(m, h);
    }
    return ok;
}

// Rounds while there is time, and the middle of them into c, which has the devices.
static bool rounds_measure(struct measuring *m, double seconds) {
    struct cluster *c = m->c;
    struct cluster rounds[CLUSTER_ROUNDS] = {{0}};
    const int64_t start = ggml_time_us();
    double longest = 0, taken = 0;
    int n = 0;
    bool ok = true;
    for (; ok && n < CLUSTER_ROUNDS && (n == 0 || taken + longest < seconds); n++) {
        ok = cluster_copy(&rounds[n], c);
        m->c = &rounds[n];
        m->round = n;
        ok = ok && round_measure(m);

        const double now = (double) (ggml_time_us() - start) / 1e6;
        longest = now - taken > longest ? now - taken : longest;
        taken = now;
    }
    m->c = c;
    if (ok) {
        c->links = malloc((size_t) rounds[0].n_links * sizeof c->links[0] + 1);
        ok = c->links != NULL;
    }
    if (ok) {
        c->n_links = rounds[0].n_links; // between the same
        if (c->n_links > 0) {
            memcpy(c->links, rounds[0].links, (size_t) c->n_links * sizeof c->links[0]);
        }
        cluster_choose_rounds(c, rounds, n, m->most);
    }
    for (int r = 0; r < n; r++) {
        cluster_fini(&rounds[r]);
    }
    return ok;
}

int cluster_measure(struct cluster *c, const bool wants[GGML_TYPE_COUNT], int64_t n_threads, uint64_t size, double seconds) {
    struct measuring m = {.c = c, .wants = wants, .most = GGML_TYPE_F16, .size = size > 0 ? size : (uint64_t) -1};
    *c = (struct cluster){0};
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        m.most = wants[t] && ggml_is_quantized((enum ggml_type) t) ? (enum ggml_type) t : m.most;
    }
    const bool ok = devices_find(&m, n_threads) && rounds_measure(&m, seconds);
    cli_progress_end();
    for (int i = 0; i < c->n_devices; i++) {
        ggml_backend_free(m.backends[i]);
    }
    free(m.backends);
    if (!ok) {
        cluster_fini(c);
        return cli_fail(CLI_FAILURE, "the devices could not be measured: %s", berth_last_error());
    }
    return CLI_OK;
}
