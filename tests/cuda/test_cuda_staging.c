// SPDX-License-Identifier: MIT
// test_cuda_staging.c: tests copies from pageable host memory on the simulated driver (standin.h), which does all copies as late as
// the real driver may. So a slot that is filled again too early gives wrong bytes.

#include "standin_load.h"

#include "backend/backend.h"
#include "berth-sched.h"
#include "berth.h"
#include "cuda/backend.h"
#include "ggml-cpu.h"
#include "ggml-cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { CHUNK = 512 << 10, PIECE = 4 << 20, RING = 8 * PIECE, GUARD = 64 };

static struct standin *st; // state of the simulated driver
static void (*reset)(void), (*drop)(void);
static int n_warnings;

static void log_count(enum ggml_log_level level, const char *text, void *user_data) {
    (void) user_data;
    n_warnings += level == GGML_LOG_LEVEL_WARN && strstr(text, "cannot pin") != NULL;
}

static int set_up(void **unused) {
    (void) unused;
    reset();
    st->is_late = true;
    n_warnings = 0;
    setenv("BERTH_CUDA_STAGING_THREADS", "3", 1);
    return 0;
}

static void check_nothing_left(void) {
    cuda_devices_reset();
    assert_int_equal(st->n_contexts, 0);
    assert_int_equal(st->n_streams, 0);
    assert_int_equal(st->n_events, 0);
    assert_int_equal(st->n_buffers, 0);
    assert_int_equal(st->n_pinned, 0);
    assert_int_equal(st->n_registered, 0);
}

static int tear_down(void **unused) {
    (void) unused;
    check_nothing_left();
    return 0;
}

// ---- a backend with tensors of bytes ----

enum { N_TENSORS = 3 };

struct rig {
    ggml_backend_t backend;
    struct ggml_context *ctx;
    struct ggml_tensor *t[N_TENSORS];
    ggml_backend_buffer_t buffer;
};

static bool rig_init(struct rig *r, size_t size) {
    memset(r, 0, sizeof *r);
    r->backend = ggml_backend_cuda_init(0);
    r->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    if (r->backend == NULL || r->ctx == NULL) {
        return false;
    }
    for (int i = 0; i < N_TENSORS; i++) {
        r->t[i] = ggml_new_tensor_1d(r->ctx, GGML_TYPE_I8, (int64_t) size);
    }
    r->buffer = ggml_backend_alloc_ctx_tensors(r->ctx, r->backend);
    return r->buffer != NULL;
}

static void rig_fini(struct rig *r) {
    ggml_backend_buffer_free(r->buffer);
    ggml_free(r->ctx);
    ggml_backend_free(r->backend);
}

// Bytes that differ between pieces, chunks and seeds.
static void bytes_make(unsigned char *p, size_t size, unsigned seed) {
    uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i + 8 <= size; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(p + i, &x, 8);
    }
    memset(p + size / 8 * 8, (int) seed, size % 8);
}

// Copies `size` bytes from odd addresses to odd offsets, twice without a wait, and overwrites the sources before the wait.
static void check_size(struct rig *r, unsigned char *from, unsigned char *want, size_t size) {
    const size_t off = GUARD + 1 + size % 7;
    for (unsigned i = 0; i < 2; i++) {
        ggml_backend_tensor_memset(r->t[i], 0xA5, 0, ggml_nbytes(r->t[i]));
    }
    for (unsigned i = 0; i < 2; i++) {
        bytes_make(want + i * size, size, (unsigned) size + i);
        memcpy(from + i, want + i * size, size);
        ggml_backend_tensor_set_async(r->backend, r->t[i], from + i, off, size);
        memset(from + i, 0, size);
    }
    ggml_backend_synchronize(r->backend);
    for (unsigned i = 0; i < 2; i++) {
        const unsigned char *got = r->t[i]->data;
        if (memcmp(got + off, want + i * size, size) != 0) {
            fail_msg("copy %u of %zu bytes gave other bytes", i, size);
        }
        for (size_t k = 0; k < GUARD; k++) {
            assert_int_equal(got[off - 1 - k], 0xA5);
            assert_int_equal(got[off + size + k], 0xA5);
        }
    }
}

static void bytes_arrive(void **unused) {
    (void) unused;
    static const char *const n_threads[] = {"0", "1", "16"};
    static const size_t sizes[] = {1, CUDA_STAGING_MIN - 1, CUDA_STAGING_MIN, CUDA_STAGING_MIN + 1, 3 * CHUNK - 1, 3 * CHUNK,
        3 * CHUNK + 1, PIECE - 1, PIECE, PIECE + 1, 4 * PIECE + 1, RING - 1, RING, RING + PIECE + CHUNK + 3};
    enum { N_SIZES = sizeof sizes / sizeof sizes[0] };
    const size_t max = sizes[N_SIZES - 1];
    unsigned char *from = malloc(max + 2), *want = malloc(2 * max);
    for (int i = 0; i < 3; i++) {
        struct rig r;
        setenv("BERTH_CUDA_STAGING_THREADS", n_threads[i], 1);
        assert_true(rig_init(&r, max + 3 * GUARD));
        for (int k = 0; k < N_SIZES; k++) {
            check_size(&r, from, want, sizes[k]);
            // Until a copy is large enough for staging, no host memory is pinned. The memory is pinned once.
            assert_int_equal(st->n_pinned, i > 0 && k >= 2);
        }
        rig_fini(&r);
    }
    assert_int_equal(st->n_pins, 2);
    free(from), free(want);
}

static bool holds(const struct ggml_tensor *t, const unsigned char *want) {
    return memcmp(t->data, want, ggml_nbytes(t)) == 0;
}

// Work that is queued after a copy follows it, also on another backend after an event.
static void order_is_kept(void **unused) {
    (void) unused;
    enum { SIZE = RING + PIECE / 2 };
    struct rig r;
    assert_true(rig_init(&r, SIZE));
    ggml_backend_t other = ggml_backend_cuda_init(0);
    ggml_backend_event_t event = ggml_backend_event_new(ggml_backend_get_device(other));
    unsigned char *first = malloc(SIZE), *second = malloc(SIZE);
    bytes_make(first, SIZE, 1), bytes_make(second, SIZE, 2);
    ggml_backend_tensor_set_async(r.backend, r.t[0], first, 0, SIZE);
    ggml_backend_tensor_copy_async(r.backend, r.backend, r.t[0], r.t[1]);
    ggml_backend_tensor_set_async(r.backend, r.t[0], second, 0, SIZE);
    assert_false(holds(r.t[0], second)); // the simulated driver is late
    ggml_backend_event_record(event, r.backend);
    ggml_backend_event_wait(other, event);
    ggml_backend_tensor_copy_async(other, other, r.t[0], r.t[2]);
    assert_false(holds(r.t[2], second));
    ggml_backend_synchronize(other);
    assert_true(holds(r.t[2], second));
    assert_true(holds(r.t[1], first));
    ggml_backend_tensor_set_async(r.backend, r.t[2], first, 0, SIZE);
    ggml_backend_event_record(event, r.backend);
    ggml_backend_event_synchronize(event);
    assert_true(holds(r.t[2], first));
    free(first), free(second);
    ggml_backend_event_free(event);
    ggml_backend_free(other);
    rig_fini(&r);
}

static void pinned_memory_is_copied_directly(void **unused) {
    (void) unused;
    enum { SIZE = 2 * PIECE };
    struct rig r;
    assert_true(rig_init(&r, SIZE));
    ggml_backend_buffer_t host = ggml_backend_buft_alloc_buffer(ggml_backend_cuda_host_buffer_type(), SIZE);
    unsigned char *pinned = ggml_backend_buffer_get_base(host), *mine = malloc(SIZE);
    setenv("GGML_CUDA_REGISTER_HOST", "1", 1);
    assert_true(ggml_backend_cuda_register_host_buffer(mine, SIZE / 2));
    bytes_make(pinned, SIZE, 3), bytes_make(mine, SIZE, 4);
    const long n_copies = st->n_copies;
    ggml_backend_tensor_set_async(r.backend, r.t[0], pinned, 0, SIZE);
    ggml_backend_tensor_set_async(r.backend, r.t[1], mine, 0, SIZE / 2);
    assert_int_equal(st->n_copies, n_copies + 2);
    assert_int_equal(st->n_pins, 1);
    ggml_backend_tensor_set_async(r.backend, r.t[2], mine, 0, SIZE); // only the first half is pinned
    assert_int_equal(st->n_copies, n_copies + 4);
    assert_int_equal(st->n_pins, 2);
    ggml_backend_synchronize(r.backend);
    assert_true(holds(r.t[0], pinned));
    assert_memory_equal(r.t[1]->data, mine, SIZE / 2);
    assert_true(holds(r.t[2], mine));
    ggml_backend_cuda_unregister_host_buffer(mine);
    unsetenv("GGML_CUDA_REGISTER_HOST");
    free(mine);
    ggml_backend_buffer_free(host);
    rig_fini(&r);
}

static void without_pinned_memory_copies_are_direct(void **unused) {
    (void) unused;
    enum { SIZE = PIECE + 1 };
    struct rig r;
    unsigned char *bytes = malloc(SIZE);
    st->no_pinned = true;
    assert_true(rig_init(&r, SIZE));
    for (unsigned i = 0; i < N_TENSORS; i++) {
        bytes_make(bytes, SIZE, i);
        ggml_backend_tensor_set_async(r.backend, r.t[i], bytes, 0, SIZE);
        ggml_backend_synchronize(r.backend);
        assert_true(holds(r.t[i], bytes));
    }
    assert_int_equal(n_warnings, 1);
    assert_int_equal(st->n_copies, N_TENSORS);
    rig_fini(&r);
    free(bytes);
}

// ---- no allocation after a reserve ----

static void a_reserve_allocates_the_ring(void **unused) {
    (void) unused;
    enum { SIZE = RING + 1 };
    struct rig r;
    unsigned char *bytes = malloc(SIZE);
    assert_true(rig_init(&r, SIZE));
    berth_backend_reserve_copies(r.backend, CUDA_STAGING_MIN - 1);
    assert_int_equal(st->n_pins, 0);
    berth_backend_reserve_copies(r.backend, CUDA_STAGING_MIN);
    assert_int_equal(st->n_pins, 1);
    const size_t n_allocs = cuda_backend_n_allocs(r.backend);
    bytes_make(bytes, SIZE, 5);
    berth_alloc_fail_at(-1);
    for (int i = 0; i < N_TENSORS; i++) {
        ggml_backend_tensor_set_async(r.backend, r.t[i], bytes, 0, SIZE);
    }
    ggml_backend_synchronize(r.backend);
    berth_alloc_fail_at(0);
    for (int i = 0; i < N_TENSORS; i++) {
        assert_true(holds(r.t[i], bytes));
    }
    assert_int_equal(st->n_pins, 1);
    assert_int_equal(cuda_backend_n_allocs(r.backend), n_allocs);
    rig_fini(&r);
    free(bytes);
}

// The scheduler copies weights of the host. Its reserve allocates the memory that its copies require.
static void the_scheduler_reserves_copies(void **unused) {
    (void) unused;
    enum { K = 1024, N = 64, N_LAYERS = 4 };
    ggml_backend_t backends[] = {ggml_backend_cuda_init(0), ggml_backend_cpu_init()};
    struct ggml_context *weights = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *w[N_LAYERS], *y = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, K, N);
    ggml_set_input(y);
    for (int i = 0; i < N_LAYERS; i++) {
        w[i] = ggml_new_tensor_2d(weights, GGML_TYPE_F32, K, K);
        y = ggml_mul_mat(ctx, w[i], y);
    }
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(weights, backends[1]);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_clear(buffer, 0);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, 2, 64, false, true);
    berth_sched_set_resident_limit(sched, backends[0], 0);
    assert_true(ggml_backend_sched_reserve(sched, graph));
    assert_int_equal(st->n_pins, 1);
    const size_t n_allocs = cuda_backend_n_allocs(backends[0]);
    const long n_copies = st->n_copies;
    for (int i = 0; i < 3; i++) {
        berth_alloc_fail_at(-1);
        ggml_backend_sched_reset(sched);
        assert_true(ggml_backend_sched_alloc_graph(sched, graph));
        assert_int_equal(ggml_backend_sched_graph_compute(sched, graph), GGML_STATUS_SUCCESS);
        berth_alloc_fail_at(0);
    }
    assert_true(st->n_copies >= n_copies + 3 * N_LAYERS);
    assert_int_equal(st->n_pins, 1);
    assert_int_equal(cuda_backend_n_allocs(backends[0]), n_allocs);
    ggml_backend_sched_free(sched);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_free(weights);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
}

// ---- failures ----

enum { FAULT_SIZE = 5 * PIECE + 1 }; // the second copy reuses slots

// Copies the same bytes twice. Returns whether no call reported a failure. If so, the bytes must be right.
static bool copy_twice(const unsigned char *bytes) {
    struct rig r;
    bool ok = rig_init(&r, FAULT_SIZE);
    for (int i = 0; i < 2 && ok; i++) {
        ggml_backend_tensor_set_async(r.backend, r.t[i], bytes, 0, FAULT_SIZE);
    }
    if (ok) { // a failure of cuCtxSetCurrent is reported by the next compute
        struct gpu_device *dev = &((struct cuda_backend *) r.backend->context)->dev->gpu;
        ok = berth_backend_synchronize(r.backend) == GGML_STATUS_SUCCESS && !atomic_exchange(&dev->has_failed, false);
    }
    for (int i = 0; i < 2 && ok; i++) {
        assert_true(holds(r.t[i], bytes));
    }
    rig_fini(&r);
    return ok;
}

// The n-th driver call fails, for all n. Errors: 1, an ordinary error; 719, after which the device is lost.
static void every_call_may_fail(void **unused) {
    (void) unused;
    static const int errors[] = {1, 719};
    unsigned char *bytes = malloc(FAULT_SIZE);
    bytes_make(bytes, FAULT_SIZE, 6);
    for (int e = 0; e < 2; e++) {
        int n_failed = 0;
        for (long n = 1;; n++) {
            set_up(NULL);
            st->fail_at = n;
            st->fail_with = errors[e];
            const bool ok = copy_twice(bytes), is_over = st->fail_at > 0;
            st->fail_at = 0;
            n_failed += !ok;
            if (errors[e] == 719) { // the driver frees the objects of a lost device
                cuda_devices_reset();
                drop();
            } else {
                check_nothing_left();
            }
            if (is_over) {
                assert_true(ok);
                break;
            }
        }
        assert_true(n_failed > 2 * (FAULT_SIZE / PIECE)); // at least each copy of a piece and each record of an event
    }
    free(bytes);
}

// After a failed copy, no thread reads the source, so the program may unmap it.
static void a_failed_copy_reads_no_more(void **unused) {
    (void) unused;
    struct rig r;
    assert_true(rig_init(&r, FAULT_SIZE));
    berth_backend_reserve_copies(r.backend, FAULT_SIZE);
    void *bytes = mmap(NULL, FAULT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    st->fail_at = 7; // the first copy of a piece, after the context, the kind of the memory and the events of four slots
    st->fail_with = 1;
    ggml_backend_tensor_set_async(r.backend, r.t[0], bytes, 0, FAULT_SIZE);
    munmap(bytes, FAULT_SIZE);
    assert_int_equal(st->fail_at, 0);
    assert_int_equal(berth_backend_synchronize(r.backend), GGML_STATUS_FAILED);
    rig_fini(&r);
}

static void every_allocation_may_fail(void **unused) {
    (void) unused;
    unsigned char *bytes = malloc(FAULT_SIZE);
    bytes_make(bytes, FAULT_SIZE, 7);
    berth_alloc_watch(true);
    assert_true(copy_twice(bytes));
    const int64_t n_all = berth_alloc_made();
    berth_alloc_watch(false);
    for (int64_t n = 1; n <= n_all; n++) {
        set_up(NULL);
        cuda_devices_reset();
        berth_alloc_fail_at(n);
        copy_twice(bytes);
        berth_alloc_fail_at(0);
        check_nothing_left();
    }
    free(bytes);
}

int main(void) {
    struct standin_functions f;
    if (!standin_load(&f)) {
        return 1;
    }
    st = f.state();
    reset = f.reset;
    drop = f.drop;
    ggml_log_set(log_count, NULL);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(bytes_arrive),
        TEST(order_is_kept),
        TEST(pinned_memory_is_copied_directly),
        TEST(without_pinned_memory_copies_are_direct),
        TEST(a_reserve_allocates_the_ring),
        TEST(the_scheduler_reserves_copies),
        TEST(every_call_may_fail),
        TEST(a_failed_copy_reads_no_more),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
