// SPDX-License-Identifier: MIT
// sums.c: measures sums over devices: the duration of one sum, and the speed of decode by tensors. In decode by tensors, each
// token has about fifty short steps, and each step ends with a sum. In every step all devices wait for the slowest one. So decode
// is slower than each device alone, for two reasons: other programs slow down a different device in each step, and devices of one
// host share the memory bandwidth.

#include "simulate/cluster.h"

#include "base/min.h"
#include "model/speed_test.h"

#include "ggml-backend-impl.h"

#include <math.h>

#define SUM_SIZE 8192                  // bytes of the summed vector, a typical size for one token
#define N_SUMS 64                      // number of sums that are timed together
#define N_TRIES 8                      // repetitions, of which the fastest counts
#define N_COLUMNS 2048                 // columns of a matrix; a multiple of every type's block size
#define MATRIX_SIZE ((size_t) 1 << 20) // bytes of one matrix
#define N_STEPS 48                     // steps per token
#define N_MATRICES 960                 // largest number of matrices per token and device
#define N_TOKENS 12                    // timed tokens; their mean counts, because shared machines rarely reach their best speed

// The devices that take part in a sum: the parts of a composite device.
struct adders {
    int n;
    int devices[GGML_BACKEND_META_MAX_DEVICES]; // indices in the cluster
    ggml_backend_t backends[GGML_BACKEND_META_MAX_DEVICES];
    bool is_own[GGML_BACKEND_META_MAX_DEVICES]; // backend i is the program's CPU
    struct ggml_context *ctx;
    struct ggml_tensor *shares[GGML_BACKEND_META_MAX_DEVICES];
    ggml_backend_buffer_t buffers[GGML_BACKEND_META_MAX_DEVICES];
    void *comm;
    void (*end)(void *comm);
    bool (*sum)(void *comm, struct ggml_tensor **shares);
    bool (*ask)(void *comm, struct ggml_tensor **shares);  // requests a sum; NULL: not supported
    bool (*join)(void *comm, struct ggml_tensor **shares); // completes a requested sum
};

static void adders_fini(struct adders *a) {
    if (a->comm != NULL) {
        a->end(a->comm);
    }
    for (int j = 0; j < a->n; j++) {
        ggml_backend_buffer_free(a->buffers[j]);
    }
    ggml_free(a->ctx);
}

static bool comm_open(struct adders *a) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(a->backends[a->n - 1]));
    void *(*init)(ggml_backend_t *, size_t);
    *(void **) &init = ggml_backend_reg_get_proc_address(reg, "ggml_backend_comm_init");
    *(void **) &a->end = ggml_backend_reg_get_proc_address(reg, "ggml_backend_comm_free");
    *(void **) &a->sum = ggml_backend_reg_get_proc_address(reg, "ggml_backend_comm_allreduce_tensor");
    *(void **) &a->ask = ggml_backend_reg_get_proc_address(reg, "berth_comm_sum_ask");
    *(void **) &a->join = ggml_backend_reg_get_proc_address(reg, "berth_comm_sum_join");
    a->comm = init != NULL && a->end != NULL && a->sum != NULL ? init(a->backends, (size_t) a->n) : NULL;
    return a->comm != NULL;
}

// False: too few or too many devices, or the registry has no sums for them.
static bool adders_init(struct adders *a, const struct cluster *c, ggml_backend_t *backends) {
    *a = (struct adders){.n = 0};
    const int n = cluster_parts(c, a->devices);
    if (n > GGML_BACKEND_META_MAX_DEVICES) {
        return false;
    }
    for (; a->n < n; a->n++) {
        a->is_own[a->n] = a->devices[a->n] == 0;
        a->backends[a->n] = backends[a->devices[a->n]];
    }
    const size_t size = GGML_BACKEND_META_MAX_DEVICES * ggml_tensor_overhead();
    a->ctx = a->n > 1 ? ggml_init((struct ggml_init_params){.mem_size = size, .no_alloc = true}) : NULL;
    if (a->ctx == NULL || !comm_open(a)) {
        return false;
    }
    for (int j = 0; j < a->n; j++) {
        a->shares[j] = ggml_new_tensor_1d(a->ctx, GGML_TYPE_F32, SUM_SIZE / sizeof(float));
        a->buffers[j] = ggml_backend_alloc_buffer(a->backends[j], SUM_SIZE);
        if (a->shares[j] == NULL || a->buffers[j] == NULL ||
            ggml_backend_tensor_alloc(a->buffers[j], a->shares[j], ggml_backend_buffer_get_base(a->buffers[j])) !=
                GGML_STATUS_SUCCESS) {
            return false;
        }
        a->shares[j]->flags |= GGML_TENSOR_FLAG_COMPUTE; // marks the tensor as a term of the sum
        ggml_backend_buffer_clear(a->buffers[j], 0);
    }
    return true;
}

static void adders_synchronize(const struct adders *a) {
    for (int j = 0; j < a->n; j++) {
        ggml_backend_synchronize(a->backends[j]);
    }
}

static double seconds_since(int64_t start) {
    return (double) (ggml_time_us() - start) / 1e6;
}

// Returns the seconds of the fastest sum in a sequence of sums; 0: a sum failed.
static double sum_seconds(struct adders *a) {
    double best = INFINITY;
    for (int k = 0; k < N_TRIES; k++) {
        const int64_t start = ggml_time_us();
        for (int i = 0; i < N_SUMS; i++) {
            if (!a->sum(a->comm, a->shares)) {
                return 0;
            }
        }
        adders_synchronize(a);
        best = min_f64(seconds_since(start) / N_SUMS, best);
    }
    return best;
}

// ---- decode by tensors ----

struct decode_test {
    struct adders *a;
    struct speed_test tests[GGML_BACKEND_META_MAX_DEVICES];
    ggml_backend_buffer_t weights[GGML_BACKEND_META_MAX_DEVICES];
    int n_steps;
};

// Creates a device's share of the matrices of a token. False: out of memory or unsupported.
static bool steps_make(struct decode_test *r, int j, enum ggml_type type, int n_each) {
    const int64_t n_rows = (int64_t) (MATRIX_SIZE / ggml_row_size(type, N_COLUMNS));
    struct speed_test *test = &r->tests[j];
    if (!speed_test_init(test, (size_t) (r->n_steps * n_each))) {
        return false;
    }
    struct ggml_tensor *x = ggml_new_tensor_1d(test->ctx, GGML_TYPE_F32, N_COLUMNS);
    for (int s = 0; s < r->n_steps; s++) {
        struct ggml_cgraph *graph = speed_test_piece(test, (size_t) n_each);
        for (int i = 0; i < n_each; i++) {
            struct ggml_tensor *matrix = ggml_new_tensor_2d(test->ctx, type, N_COLUMNS, n_rows);
            ggml_build_forward_expand(graph, ggml_mul_mat(test->ctx, matrix, x));
        }
    }
    r->weights[j] = ggml_backend_supports_op(r->a->backends[j], ggml_graph_node(test->pieces[0], 0))
                        ? ggml_backend_alloc_ctx_tensors(test->ctx, r->a->backends[j])
                        : NULL;
    ggml_backend_buffer_clear(r->weights[j], 0); // accepts NULL
    return r->weights[j] != NULL;
}

// Computes step s on the program's CPU (is_own), or on all other devices.
static bool step_compute(struct decode_test *r, int s, bool is_own) {
    bool ok = true;
    for (int j = 0; j < r->a->n; j++) { // continues after a failure, because the devices wait for each other
        if (r->a->is_own[j] == is_own &&
            ggml_backend_graph_compute_async(r->a->backends[j], r->tests[j].pieces[s]) != GGML_STATUS_SUCCESS) {
            ok = false;
        }
    }
    return ok;
}

static bool step_send(struct decode_test *r, int s) {
    return step_compute(r, s, false) && r->a->ask(r->a->comm, r->a->shares);
}

// Runs one token as src/meta/run.c does: other devices get the next step before the current step ends. Every requested sum is
// completed, even after a failure.
static bool token_run(struct decode_test *r) {
    const bool can_request = r->a->ask != NULL && r->a->join != NULL;
    bool ok = !can_request || step_send(r, 0);
    bool is_requested = ok;
    for (int s = 0; s < r->n_steps && is_requested; s++) {
        const bool is_next_requested = can_request && ok && s + 1 < r->n_steps && step_send(r, s + 1);
        ok = (can_request || step_compute(r, s, false)) && step_compute(r, s, true) && ok;
        ok = (can_request ? r->a->join : r->a->sum)(r->a->comm, r->a->shares) && ok;
        is_requested = can_request ? is_next_requested : ok;
        if (!is_requested && s + 1 < r->n_steps) {
            ok = false;
        }
    }
    adders_synchronize(r->a);
    return ok;
}

// Returns the average seconds per token; 0: a token failed.
static double token_seconds(struct decode_test *r) {
    bool ok = token_run(r); // the first token is not timed, because it prepares the graphs
    const int64_t start = ggml_time_us();
    for (int k = 0; ok && k < N_TOKENS; k++) {
        ok = token_run(r);
    }
    return ok ? seconds_since(start) / N_TOKENS : 0;
}

// Returns the number of matrices per token and device. All devices of a host together use at most an eighth of its free memory.
static int matrices_of(const struct cluster *c, const struct adders *a, uint64_t size) {
    uint64_t n = size / MATRIX_SIZE / (uint64_t) a->n;
    n = min_u64(n, N_MATRICES);
    for (int j = 0; j < a->n; j++) {
        uint64_t n_same = 0;
        for (int k = 0; k < a->n; k++) {
            n_same += c->devices[a->devices[k]].host == c->devices[a->devices[j]].host;
        }
        n = min_u64(n, c->devices[a->devices[j]].memory / 8 / n_same / MATRIX_SIZE);
    }
    return (int) n;
}

// Returns the speed in decode by tensors, without the time of the sums, divided by the slowest device's speed alone. 0: unknown.
static double decode_factor(const struct cluster *c, struct adders *a, enum ggml_type type, uint64_t size, double sum) {
    struct decode_test r = {.a = a};
    const int n_matrices = matrices_of(c, a, size), n_each = max_int(n_matrices / N_STEPS, 1);
    double slowest = INFINITY;
    r.n_steps = min_int(n_matrices, N_STEPS);
    bool ok = n_matrices > 0;
    for (int j = 0; ok && j < a->n; j++) {
        const struct cluster_device *d = &c->devices[a->devices[j]];
        slowest = min_f64(d->read[type] > 0 ? d->read[type] : d->bandwidth, slowest);
        ok = steps_make(&r, j, type, n_each);
    }
    const double all = ok ? token_seconds(&r) - r.n_steps * sum : 0;
    const double n = (double) (r.n_steps * n_each) * (double) (MATRIX_SIZE / ggml_row_size(type, N_COLUMNS));
    for (int j = 0; j < a->n; j++) {
        ggml_backend_buffer_free(r.weights[j]);
        ggml_free(r.tests[j].ctx);
    }
    return all > 0 ? n * (double) ggml_row_size(type, N_COLUMNS) / slowest / all : 0;
}

bool cluster_sums_measure(struct cluster *c, ggml_backend_t *backends, enum ggml_type type, uint64_t size) {
    struct adders a;
    double factor = 0;
    if (adders_init(&a, c, backends)) {
        const double seconds = sum_seconds(&a);
        // In decode by tensors, most messages belong to sums, so the latency of a link is at least the latency of a sum.
        for (int l = 0; l < c->n_links; l++) {
            struct cluster_link *link = &c->links[l];
            link->latency = max_f64(seconds - (a.n - 1) * SUM_SIZE / link->bandwidth, link->latency);
        }
        factor = seconds > 0 ? decode_factor(c, &a, type, size, seconds) : 0;
        for (int j = 0; factor > 0 && j < a.n; j++) {
            c->hosts[c->devices[a.devices[j]].host].together = factor;
        }
    }
    adders_fini(&a);
    return factor > 0;
}
