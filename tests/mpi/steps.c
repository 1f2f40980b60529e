// SPDX-License-Identifier: MIT
// steps.c ROUNDS STEPS: a chain of products over the devices of all workers. Each of ROUNDS rounds opens and frees everything and
// computes STEPS steps, whose results must equal the CPU's. If a worker was left out, it runs only a few rounds. It prints the
// bytes of a repeated step and checks that memory and file descriptors of all ranks do not grow. Exit codes: 0 success, 5 a device
// failed and the program got the error, 1 anything else.

#include "berth-mpi.h"
#include "berth.h"
#include "ggml-alloc.h"
#include "ggml-cpu.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WIDTH 256
#define MAX_DEVICES 16
#define FEW_ROUNDS 20

static int n_devices; // devices of other ranks
static ggml_backend_dev_t devices[MAX_DEVICES + 1];
static berth_mpi_traffic_t get_traffic;

// Errors are printed where they end the program. A rank that was lost before it joined is not an error; only a warning names it.
static void log_warnings(enum ggml_log_level level, const char *text, void *user_data) {
    (void) user_data;
    if (level == GGML_LOG_LEVEL_WARN) {
        fputs(text, stderr);
    }
}

static int report_error(const char *where) {
    fprintf(stderr, "%s: %s\n", where, berth_last_error());
    return 5;
}

// ---- resources of other processes ----

struct taken {
    long pages, files;
};

static struct taken taken_by(int pid) {
    struct taken t = {0};
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%*d %ld", &t.pages) != 1) {
            t.pages = 0;
        }
        fclose(file);
    }
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL) {
        t.files++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return t;
}

// All ranks are children of one launcher. Returns their number.
static int ranks_taken(struct taken *list, int n_max) {
    char path[64];
    int n = 0, pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int) getppid(), (int) getppid());
    FILE *file = fopen(path, "r");
    while (file != NULL && n < n_max && fscanf(file, "%d", &pid) == 1) {
        list[n++] = taken_by(pid);
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

// ---- chain ----

struct chain {
    ggml_backend_t backends[MAX_DEVICES + 1]; // the CPU is the last
    struct ggml_context *ctx, *weights[MAX_DEVICES];
    ggml_backend_buffer_t buffers[MAX_DEVICES];
    ggml_backend_sched_t sched;
    struct ggml_cgraph *graph;
    struct ggml_tensor *in, *out, *w[MAX_DEVICES];
};

static void chain_free(struct chain *c) {
    ggml_backend_sched_free(c->sched);
    for (int i = 0; i < n_devices; i++) {
        ggml_backend_buffer_free(c->buffers[i]);
        ggml_free(c->weights[i]);
    }
    for (int i = 0; i <= n_devices; i++) {
        ggml_backend_free(c->backends[i]);
    }
    ggml_free(c->ctx);
    *c = (struct chain){0};
}

static const char *chain_open(struct chain *c, const float *numbers) {
    for (int i = 0; i <= n_devices; i++) {
        c->backends[i] = ggml_backend_dev_init(devices[i], NULL);
        if (c->backends[i] == NULL) {
            return "opening";
        }
    }
    c->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    for (int i = 0; i < n_devices; i++) {
        c->weights[i] = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
        c->w[i] = ggml_new_tensor_2d(c->weights[i], GGML_TYPE_F32, WIDTH, WIDTH);
        c->buffers[i] = ggml_backend_alloc_ctx_tensors_from_buft(c->weights[i], ggml_backend_dev_buffer_type(devices[i]));
        if (c->buffers[i] == NULL) {
            return "allocating";
        }
        ggml_backend_buffer_set_usage(c->buffers[i], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        ggml_backend_tensor_set(c->w[i], numbers, 0, ggml_nbytes(c->w[i]));
    }
    c->in = ggml_new_tensor_2d(c->ctx, GGML_TYPE_F32, WIDTH, 2);
    struct ggml_tensor *x = c->in;
    ggml_set_input(c->in);
    for (int i = 0; i < n_devices; i++) {
        x = ggml_soft_max(c->ctx, ggml_mul_mat(c->ctx, c->w[i], x));
    }
    c->out = x;
    c->graph = ggml_new_graph(c->ctx);
    ggml_set_output(c->out);
    ggml_build_forward_expand(c->graph, c->out);
    c->sched = ggml_backend_sched_new(c->backends, NULL, n_devices + 1, 64, false, true);
    return c->sched != NULL && ggml_backend_sched_reserve(c->sched, c->graph) &&
                   ggml_backend_sched_alloc_graph(c->sched, c->graph)
               ? NULL
               : "planning";
}

static const char *chain_step(struct chain *c, const float *in, float *out) {
    ggml_backend_tensor_set(c->in, in, 0, ggml_nbytes(c->in));
    if (ggml_backend_sched_graph_compute(c->sched, c->graph) != GGML_STATUS_SUCCESS) {
        return "computing";
    }
    ggml_backend_tensor_get(c->out, out, 0, ggml_nbytes(c->out));
    return NULL;
}

// Computes the expected result on the CPU alone.
static void expected(const float *numbers, const float *in, float *out) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 64 << 20});
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDTH, WIDTH),
                       *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDTH, 2);
    memcpy(w->data, numbers, ggml_nbytes(w));
    memcpy(x->data, in, ggml_nbytes(x));
    for (int i = 0; i < n_devices; i++) {
        x = ggml_soft_max(ctx, ggml_mul_mat(ctx, w, x));
    }
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, x);
    ggml_graph_compute_with_ctx(ctx, graph, 1);
    memcpy(out, x->data, ggml_nbytes(x));
    ggml_free(ctx);
}

// ---- rounds ----

static int n_done;
static struct taken before[MAX_DEVICES + 2];

// Ranks check each other's processes from time to time, so a file may be open for a moment. A leaked file is open at every check.
static void files_least(struct taken *list) {
    struct taken now[MAX_DEVICES + 2];
    for (int look = 0; look < 20; look++) {
        const struct timespec pause = {.tv_nsec = 2000000};
        nanosleep(&pause, NULL);
        const int n = ranks_taken(now, MAX_DEVICES + 2);
        for (int i = 0; i < n; i++) {
            list[i].files = now[i].files < list[i].files ? now[i].files : list[i].files;
        }
    }
}

static int is_flat(void) {
    struct taken now[MAX_DEVICES + 2];
    const int n = ranks_taken(now, MAX_DEVICES + 2);
    files_least(now);
    for (int i = 0; i < n; i++) {
        if (now[i].files > before[i].files || now[i].pages > before[i].pages + 512) {
            fprintf(stderr, "process %d of %d: %ld pages and %ld files, before %ld and %ld\n", i, n, now[i].pages, now[i].files,
                before[i].pages, before[i].files);
            return 0;
        }
    }
    return 1;
}

static int steps_run(struct chain *c, const float *in, const float *want, int n_steps) {
    static float out[2 * WIDTH];
    struct berth_mpi_traffic from = {0}, to = {0};
    for (int i = 0; i < n_steps; i++, n_done++) {
        const char *failed = chain_step(c, in, out);
        if (failed != NULL) {
            return report_error(failed);
        }
        if (memcmp(out, want, sizeof out) != 0) {
            const char *error = berth_last_error(); // a read cannot report it: the next step does
            failed = strstr(error, "MPI") != NULL ? chain_step(c, in, out) : NULL;
            fprintf(stderr, "step %d: another result, %g for %g: %s\n", n_done, (double) out[0], (double) want[0], error);
            return failed != NULL ? report_error(failed) : 1;
        }
        if (n_done == 50) {
            ranks_taken(before, MAX_DEVICES + 2);
            files_least(before);
        }
        if (i == 1) {
            get_traffic(&from);
        } else if (i == 101) {
            get_traffic(&to);
            // Bytes that a rank sends and receives in addition to the input and the output of the chain.
            const double all = (double) (to.sent_size + to.received_size - from.sent_size - from.received_size) / 100;
            const double overhead = (all - 2 * sizeof out) / n_devices;
            printf("a step: %.0f bytes, %.0f per rank in addition to activations\n", all, overhead);
            if (overhead > 1024) {
                return 1;
            }
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    int n_rounds = argc > 1 ? atoi(argv[1]) : 1;
    const int n_steps = argc > 2 ? atoi(argv[2]) : 200;
    static float numbers[WIDTH * WIDTH], in[2 * WIDTH], want[2 * WIDTH];
    ggml_log_set(log_warnings, NULL);
    ggml_backend_load_all();
    for (size_t i = 0; i < ggml_backend_dev_count() && n_devices < MAX_DEVICES; i++) {
        if (strncmp(ggml_backend_dev_name(ggml_backend_dev_get(i)), "MPI", 3) == 0) {
            devices[n_devices++] = ggml_backend_dev_get(i);
        }
    }
    if (n_devices == 0) {
        return report_error("no device of another rank");
    }
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    // The program continues without a worker that was left out.
    if (size != NULL && n_devices < atoi(size) - 1 && n_rounds > FEW_ROUNDS) {
        n_rounds = FEW_ROUNDS;
    }
    devices[n_devices] = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    void *p = ggml_backend_reg_get_proc_address(ggml_backend_reg_by_name("MPI"), "berth_mpi_traffic");
    memcpy(&get_traffic, &p, sizeof get_traffic);
    for (int i = 0; i < WIDTH * WIDTH; i++) {
        numbers[i] = (float) (i * 7919 % 1009) / 1009.0f - 0.5f;
        in[i % (2 * WIDTH)] = (float) (i % 31) / 31.0f;
    }
    expected(numbers, in, want);
    struct chain c = {0};
    for (int i = 0; i < n_rounds; i++) {
        const char *failed = chain_open(&c, numbers);
        const int code = failed != NULL ? report_error(failed) : steps_run(&c, in, want, n_steps);
        chain_free(&c);
        if (code != 0) {
            return code;
        }
    }
    if (n_done > 60 && !is_flat()) {
        return 1;
    }
    return 0;
}
