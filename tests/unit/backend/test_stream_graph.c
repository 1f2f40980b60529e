// SPDX-License-Identifier: MIT
// test_stream_graph.c: graphs on the CPU whose weights are mapped from a file and streamed (BERTH_STREAM sets the memory). The results
// are the same bits. A truncated file gives a status. Small files and BERTH_STREAM=0 stream nothing.

#include "support/check.h"

#include "backend/backend.h"
#include "base/mapping.h"
#include "ggml-cpu.h"

#include <sys/mman.h>
#include <unistd.h>

enum { N_LAYERS = 12, WIDTH = 640 }; // 1.6 MB per layer, 18.75 MiB together
#define LAYER_SIZE ((size_t) WIDTH * WIDTH * sizeof(float))
#define SIZE (N_LAYERS * LAYER_SIZE)

static char path[64];
static int fd;
static char *bytes;
static ggml_backend_buffer_t buffer;
static ggml_backend_t cpu;
static char last_log[1024];
static int n_logs;

static void on_log(enum ggml_log_level level, const char *text, void *user) {
    (void) user;
    if (level == GGML_LOG_LEVEL_INFO && strstr(text, "streaming weights") != NULL) {
        snprintf(last_log, sizeof last_log, "%s", text);
        n_logs++;
    }
}

static int setup(void **state) {
    (void) state;
    ggml_log_set(on_log, NULL);
    n_logs = 0;
    snprintf(path, sizeof path, "/tmp/berth-stream-XXXXXX");
    fd = mkstemp(path);
    float *row = malloc(LAYER_SIZE);
    for (int i = 0; i < N_LAYERS; i++) {
        for (int k = 0; k < WIDTH * WIDTH; k++) {
            row[k] = (float) ((k * 7 + i * 13 + k / WIDTH) % 31 - 15) / 200;
        }
        if (write(fd, row, LAYER_SIZE) != (ssize_t) LAYER_SIZE) {
            return -1;
        }
    }
    free(row);
    bytes = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, 2);
    return bytes != MAP_FAILED && fdatasync(fd) == 0 ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    unsetenv("BERTH_STREAM");
    ggml_backend_free(cpu);
    munmap(bytes, SIZE);
    close(fd);
    return unlink(path);
}

static void stream_set(const char *value) {
    setenv("BERTH_STREAM", value, 1);
    buffer = ggml_backend_cpu_buffer_from_ptr(bytes, SIZE);
    assert_non_null(buffer);
}

struct net {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *y;
    ggml_backend_buffer_t memory;
};

// n_layers products; the last layers are those of the file.
static void net_make(struct net *net, int n_layers, int n_tokens) {
    net->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *weights[N_LAYERS];
    struct ggml_tensor *h = net->x = ggml_new_tensor_2d(net->ctx, GGML_TYPE_F32, WIDTH, n_tokens);
    for (int i = 0; i < n_layers; i++) {
        weights[i] = ggml_new_tensor_2d(net->ctx, GGML_TYPE_F32, WIDTH, WIDTH);
        assert_int_equal(ggml_backend_tensor_alloc(buffer, weights[i], bytes + (size_t) i * LAYER_SIZE), GGML_STATUS_SUCCESS);
        h = ggml_tanh(net->ctx, ggml_mul_mat(net->ctx, weights[i], h));
    }
    net->y = h;
    net->graph = ggml_new_graph(net->ctx);
    ggml_build_forward_expand(net->graph, h);
    net->memory = ggml_backend_alloc_ctx_tensors(net->ctx, cpu);
    assert_non_null(net->memory);
    float *x = net->x->data;
    for (int64_t i = 0; i < ggml_nelements(net->x); i++) {
        x[i] = (float) (i % 17 - 8) / 8;
    }
}

static void net_free(struct net *net) {
    ggml_backend_buffer_free(net->memory);
    ggml_free(net->ctx);
}

static void results_are_the_same(void **state) {
    (void) state;
    static float expected[3][WIDTH * 5];
    static const int n_tokens[] = {1, 5, 1};
    for (int part = 0; part < 2; part++) {
        stream_set(part == 0 ? "0" : "8M");
        for (int k = 0; k < 3; k++) {
            struct net net;
            net_make(&net, k == 2 ? N_LAYERS - 3 : N_LAYERS, n_tokens[k]);
            for (int pass = 0; pass < 4; pass++) {
                assert_int_equal(ggml_backend_graph_compute(cpu, net.graph), GGML_STATUS_SUCCESS);
                if (part == 0 && pass == 0) {
                    memcpy(expected[k], net.y->data, ggml_nbytes(net.y));
                }
                assert_memory_equal(expected[k], net.y->data, ggml_nbytes(net.y));
            }
            net_free(&net);
        }
        assert_int_equal(n_logs > 0, part == 1);
        ggml_backend_buffer_free(buffer);
    }
    assert_non_null(strstr(last_log, "BERTH_STREAM limits the memory to 8.0 MiB"));
}

static void other_memory_is_not_streamed(void **state) {
    (void) state;
    char *file = bytes;
    bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0); // pages may be changed
    assert_true(bytes != MAP_FAILED);
    bytes[0]++;
    stream_set("8M");
    struct net net;
    net_make(&net, N_LAYERS, 1);
    assert_int_equal(ggml_backend_graph_compute(cpu, net.graph), GGML_STATUS_SUCCESS);
    assert_int_equal(n_logs, 0);
    assert_int_equal(bytes[0], file[0] + 1);
    net_free(&net);
    ggml_backend_buffer_free(buffer);
    munmap(bytes, SIZE);
    bytes = file;
    stream_set("1G"); // it fits
    net_make(&net, N_LAYERS, 1);
    assert_int_equal(ggml_backend_graph_compute(cpu, net.graph), GGML_STATUS_SUCCESS);
    assert_int_equal(n_logs, 0);
    net_free(&net);
    ggml_backend_buffer_free(buffer);
}

static void a_truncated_file_is_a_status(void **state) {
    (void) state;
    stream_set("8M");
    struct net net;
    net_make(&net, N_LAYERS, 1);
    assert_int_equal(ggml_backend_graph_compute(cpu, net.graph), GGML_STATUS_SUCCESS);
    assert_int_equal(ftruncate(fd, SIZE / 2), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ggml_backend_graph_compute(cpu, net.graph), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "the weights cannot be read from their file"));
    }
    net_free(&net);
    ggml_backend_buffer_free(buffer);
}

static void failing_allocations(void **state) {
    (void) state;
    for (int n = 1; n < 12; n++) {
        stream_set("8M");
        struct net net;
        net_make(&net, N_LAYERS, 1);
        berth_alloc_fail_at(n);
        const enum ggml_status status =
            ggml_backend_graph_compute(cpu, net.graph); // without streaming, if its tables cannot grow
        berth_alloc_fail_at(0);
        assert_true(status == GGML_STATUS_SUCCESS || status == GGML_STATUS_ALLOC_FAILED);
        assert_int_equal(ggml_backend_graph_compute(cpu, net.graph), GGML_STATUS_SUCCESS);
        net_free(&net);
        ggml_backend_buffer_free(buffer);
    }
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(results_are_the_same),
        CASE(other_memory_is_not_streamed),
        CASE(a_truncated_file_is_a_status),
        CASE(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
