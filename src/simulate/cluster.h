// SPDX-License-Identifier: MIT
// cluster.h: machines as numbers: the memory and the speeds of each device, and how long messages take. They are measured
// (measure.c) or read from a file (file.c), and become simulated devices (device.c), on which a model is run as on real ones,
// with a clock in place of results (predict.c). docs/user/scale.md has the model.
#pragma once

#include "model/workbench.h"

#define CLUSTER_MAX 1024 // devices
#define CLUSTER_ROUNDS 5 // of measuring, at most
#define CLUSTER_TOGETHER_LEAST 0.05

struct cluster_device {
    char name[64]; // "CPU", "MPI1:CPU", "CUDA0"
    int host;
    uint64_t memory;    // bytes that a model may fill
    uint64_t alignment; // of its buffers, a power of two
    int64_t threads;
    double bandwidth, flops;         // bytes of memory, operations of products, a second
    double start, op;                // seconds of a graph in addition to its ops, of a small op
    double read[GGML_TYPE_COUNT];    // bytes of weights of a type a second, for one token; 0: as bandwidth
    double product[GGML_TYPE_COUNT]; // operations a second on weights of a type, for many tokens; 0: as flops
    double attend_read, attend;      // the same of attention: bytes of keys and values, operations; 0: likewise
};

struct cluster_host {
    char name[64];
    double together; // speed of a device while all of the host compute, as a part of its speed alone
};

// Between devices of two hosts, or of one.
struct cluster_link {
    int a, b;                  // hosts; -1: any two that no other link names
    double latency, bandwidth; // seconds, bytes a second
};

// The first device is the CPU of the host that the program runs on.
struct cluster {
    struct cluster_host *hosts;
    struct cluster_device *devices;
    struct cluster_link *links;
    int n_hosts, n_devices, n_links;
};

void cluster_fini(struct cluster *c);
// One more, zeroed; NULL: out of memory, or more than CLUSTER_MAX.
struct cluster_host *cluster_host_add(struct cluster *c);
struct cluster_device *cluster_device_add(struct cluster *c);
struct cluster_link *cluster_link_add(struct cluster *c);
// Between devices i and k; of one host, if none is named, half of what its memory does.
struct cluster_link cluster_link_of(const struct cluster *c, int i, int k);
bool cluster_is_cpu(const struct cluster_device *d);
// The devices that a model is split over by tensors, at most GGML_BACKEND_META_MAX_DEVICES of them: all GPUs; where there are none,
// all CPUs. Returns how many there are, which may be more.
int cluster_parts(const struct cluster *c, int *devices);

// ---- file.c ----

// Reads JSON; name is the file's in messages. On failure c is empty.
bool cluster_read(struct cluster *c, const char *text, size_t size, const char *name, struct model_error *error);
void cluster_write(const struct cluster *c, FILE *file);

// ---- measure.c ----

struct cluster_measure_params {
    bool wants[GGML_TYPE_COUNT]; // types of weights that are measured
    uint64_t size;               // bytes of the weights that a token reads, which may fit into a cache; 0: unknown, many
    int64_t n_threads;           // 0: the cores
    double seconds;              // no round begins that would end later, except the first
    struct work_watch watch;
};

// Measures this process' devices, including those of other ranks.
bool cluster_measure(struct cluster *c, const struct cluster_measure_params *params, struct model_error *error);
// Sets the types and the size of a model's weights that are multiplied.
void cluster_measure_params_set_model(struct cluster_measure_params *params, const struct model *model);

// ---- rounds.c ----

// Of numbers that are known, which for speeds is more than 0: the middle one, of two the faster; 0: none is. Sorts them.
double cluster_middle(double *numbers, int n, bool is_time);
// What rounds have measured of the same devices, hosts and links as out has, by weights of a type.
void cluster_choose_rounds(struct cluster *out, const struct cluster *rounds, int n, enum ggml_type type);

// ---- sums.c ----

// Sets the latencies of links to those of sums, and `together` of hosts to the speed of devices that sum continuously, with weights
// of a type of which a token reads `size` bytes. `together` is relative to the speed alone, so it exceeds 1 if that was measured
// in a slow moment. False: `together` is unknown, because the devices' registry has no sums or they failed.
bool cluster_sums_measure(struct cluster *c, ggml_backend_t *backends, enum ggml_type type, uint64_t size);

// ---- device.c: simulated devices ----

struct simulation;
// NULL: out of memory. The cluster outlives it.
struct simulation *simulation_new(const struct cluster *c);
void simulation_free(struct simulation *sim);
ggml_backend_dev_t simulation_device(struct simulation *sim, int i);
uint64_t simulation_bytes(const struct simulation *sim, int i); // that its buffers hold now
// From now on all devices of a host compute at the same time, or only one does.
void simulation_set_together(struct simulation *sim, bool is_together);
void simulation_clock_start(struct simulation *sim);       // at 0, with every device idle
double simulation_clock_now(const struct simulation *sim); // seconds until the program had its answer

// ---- predict.c ----

struct prediction_device {
    uint64_t weights, cache, compute, work; // bytes
};

struct prediction {
    bool is_known; // else why says why not
    bool fits;     // no device has more than its memory
    char why[512];
    int64_t n_ctx, n_batch;
    double prefill, decode;            // tokens a second: of a prompt in batches of n_batch, and with half of the context filled
    int full;                          // the first device whose memory is exceeded, if !fits
    struct prediction_device *devices; // [cluster.n_devices]
};

// Predicts a model over the cluster, by layers or by tensors. True with !out->is_known where it cannot be split so; false if it
// cannot be opened. The caller calls prediction_fini either way.
bool cluster_predict(
    const struct cluster *c, const char *path, const struct model_options *o, struct prediction *out, struct model_error *error);
void prediction_fini(struct prediction *p);
// By layers and by tensors; false if the model cannot be opened. The caller calls prediction_fini of both either way.
enum { CLUSTER_LAYER, CLUSTER_TENSOR, CLUSTER_N_WAYS };
bool cluster_predict_ways(const struct cluster *c, const char *path, const struct model_options *o,
    struct prediction ways[CLUSTER_N_WAYS], struct model_error *error);
// The faster one that is known and fits; -1: there is none.
int prediction_best(const struct prediction ways[CLUSTER_N_WAYS]);
static inline uint64_t prediction_bytes(const struct prediction_device *d) {
    return d->weights + d->cache + d->compute + d->work;
}

// --split auto: measures the devices here and of the other ranks, and sets o->by_tensor to what is predicted to be faster.
// text says what was predicted; it is empty where there is nothing to choose.
bool cluster_choose(
    const char *path, struct model_options *o, const struct work_watch *watch, char text[128], struct model_error *error);
