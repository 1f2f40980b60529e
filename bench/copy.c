// SPDX-License-Identifier: MIT
// copy.c: measures ggml_backend_tensor_set_async to a device, in GB/s, from pinned and from pageable host memory, and compares the
// bytes on the device. The column "pinned" is the speed of the link. The CUDA backend copies pageable memory directly (column 0),
// or with 1, 2, 4, ... threads that fill pinned memory (BERTH_CUDA_STAGING_THREADS; "default": the variable is not set). Consecutive
// copies have different sources and targets. A speed is the best of N_RUNS runs.
//
//     bench-copy [DEVICE [MIB [FOLDER]]]    DEVICE: CUDA0; MIB: memory on the device and twice on the host: 512; FOLDER: backends
//
// Exit code: 1: bytes differ or a copy failed; 77: no such device.

#include "clock.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { N_RUNS = 3, N_COLUMNS = 7, MIB = 1 << 20 };

static const struct column {
    const char *name;
    const char *threads; // NULL: the variable is not set
    bool is_pinned;
} columns[N_COLUMNS] = {{"pinned", NULL, true}, {"0", "0", false}, {"1", "1", false}, {"2", "2", false}, {"4", "4", false},
    {"8", "8", false}, {"default", NULL, false}};

struct bench {
    ggml_backend_dev_t dev;
    size_t size; // bytes of the tensor and of each source
    struct ggml_context *ctx;
    struct ggml_tensor *t;
    ggml_backend_buffer_t memory, host;
    char *pinned, *pageable, *got;
};

static void log_warnings(enum ggml_log_level level, const char *text, void *user_data) {
    (void) user_data;
    if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static void bytes_make(char *p, size_t size, uint64_t x) {
    for (size_t i = 0; i < size; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(p + i, &x, 8);
    }
}

static bool bench_init(struct bench *b) {
    b->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    b->t = ggml_new_tensor_1d(b->ctx, GGML_TYPE_I8, (int64_t) b->size);
    b->memory = ggml_backend_alloc_ctx_tensors_from_buft(b->ctx, ggml_backend_dev_buffer_type(b->dev));
    ggml_backend_buffer_type_t buft = ggml_backend_dev_host_buffer_type(b->dev);
    b->host = buft != NULL ? ggml_backend_buft_alloc_buffer(buft, b->size) : NULL;
    b->pageable = malloc(b->size);
    b->got = malloc(b->size);
    if (b->memory == NULL || b->host == NULL || b->pageable == NULL || b->got == NULL) {
        printf("cannot allocate %zu MiB on the device and three times on the host\n", b->size / MIB);
        return false;
    }
    b->pinned = ggml_backend_buffer_get_base(b->host);
    bytes_make(b->pinned, b->size, 1);
    bytes_make(b->pageable, b->size, 2);
    return true;
}

static void bench_fini(struct bench *b) {
    ggml_backend_buffer_free(b->host);
    ggml_backend_buffer_free(b->memory);
    ggml_free(b->ctx);
    free(b->pageable);
    free(b->got);
}

// Copies the whole source in copies of `size` bytes. Returns GB/s, or 0 if the bytes on the device differ from the source.
static double speed_measure(const struct bench *b, const struct column *column, size_t size) {
    if (column->threads != NULL) {
        setenv("BERTH_CUDA_STAGING_THREADS", column->threads, 1);
    } else {
        unsetenv("BERTH_CUDA_STAGING_THREADS");
    }
    ggml_backend_t backend = ggml_backend_dev_init(b->dev, NULL);
    const char *from = column->is_pinned ? b->pinned : b->pageable;
    double best = 0;
    for (int run = 0; run < N_RUNS + 1 && backend != NULL; run++) { // the first run allocates
        ggml_backend_buffer_clear(b->memory, 0);
        const double start = clock_s(CLOCK_MONOTONIC);
        for (size_t off = 0; off + size <= b->size; off += size) {
            ggml_backend_tensor_set_async(backend, b->t, from + off, off, size);
        }
        ggml_backend_synchronize(backend);
        const double speed = (double) (b->size / size * size) * 1e-9 / (clock_s(CLOCK_MONOTONIC) - start);
        if (run > 0 && speed > best) {
            best = speed;
        }
        memset(b->got, 0, b->size);
        ggml_backend_tensor_get(b->t, b->got, 0, b->size);
        if (memcmp(b->got, from, b->size / size * size) != 0) {
            best = 0;
            break;
        }
    }
    ggml_backend_free(backend);
    return best;
}

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "CUDA0";
    struct bench b = {.size = (size_t) (argc > 2 ? atoi(argv[2]) : 512) * MIB};
    ggml_log_set(log_warnings, NULL);
    if (argc > 3) {
        ggml_backend_load_all_from_path(argv[3]);
    } else {
        ggml_backend_load_all();
    }
    b.dev = ggml_backend_dev_by_name(device);
    if (b.dev == NULL || b.size == 0) {
        printf("skipped: no device %s, or no MiB to copy\n", device);
        return 77;
    }
    int n_wrong = 0;
    const bool ok = bench_init(&b);
    printf("GB/s to %s\n%-12s", ggml_backend_dev_description(b.dev), "MiB a copy");
    for (int c = 0; c < N_COLUMNS; c++) {
        printf("%9s", columns[c].name);
    }
    printf("  default / pinned, default / 0\n");
    for (size_t size = MIB; ok && size <= b.size && size <= 256 * (size_t) MIB; size *= 4) {
        double speeds[N_COLUMNS];
        printf("%-12zu", size / MIB);
        for (int c = 0; c < N_COLUMNS; c++) {
            speeds[c] = speed_measure(&b, &columns[c], size);
            n_wrong += speeds[c] == 0;
            printf("%9.1f", speeds[c]);
        }
        printf("  %.2f, %.2f\n", speeds[N_COLUMNS - 1] / speeds[0], speeds[N_COLUMNS - 1] / speeds[1]);
    }
    printf("%d of the speeds are 0, because a copy failed or gave other bytes\n", n_wrong);
    bench_fini(&b);
    return !ok || n_wrong > 0;
}
