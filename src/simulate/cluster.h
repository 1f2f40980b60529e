// SPDX-License-Identifier: MIT
// cluster.h: a simulated cluster consists of numbers: the memory and speeds of devices, and the latency and bandwidth of links.
// measure.c measures these numbers, or file.c reads them from a file. predict.c runs a model on simulated devices (device.c),
// which advance a clock instead of computing. docs/user/scale.md states the formulas.
#pragma once

#include "model/workbench.h"

#define CLUSTER_MAX 1024            // devices
#define CLUSTER_ROUNDS 5            // largest number of rounds; each round measures everything once
#define CLUSTER_TOGETHER_LEAST 0.05 // lower limit of cluster_host.together

struct cluster_device {
    char name[64];      // "CPU", "MPI1:CPU", "CUDA0"
    int host;           // index in cluster.hosts
    uint64_t memory;    // bytes available to a model
    uint64_t alignment; // of its buffers, a power of two
    int64_t threads;
    double bandwidth, flops;         // memory bytes per second; f32 operations per second in products
    double start, op;                // fixed seconds per graph; fixed seconds per op, except for products
    double read[GGML_TYPE_COUNT];    // [type] bytes of weights per second in products with one token; 0: bandwidth
    double product[GGML_TYPE_COUNT]; // [type] operations per second in products with many tokens; 0: flops
    // In attention: bytes of keys and values per second (0: bandwidth); operations per second (0: flops).
    double attend_read, attend;
};

struct cluster_host {
    char name[64];
    double together; // speed of a device while all devices of the host compute, divided by its speed alone; at most 1
};

// A link between the devices of two hosts, or between the devices of one host (a == b).
struct cluster_link {
    int a, b;                  // indices of hosts; both -1: the default link
    double latency, bandwidth; // seconds, bytes per second
};

// The first device is the CPU of the host on which the program runs.
struct cluster {
    struct cluster_host *hosts;
    struct cluster_device *devices;
    struct cluster_link *links;
    int n_hosts, n_devices, n_links;
};

void cluster_fini(struct cluster *c);
// Adds a zeroed entry. NULL: out of memory, or more than CLUSTER_MAX.
struct cluster_host *cluster_host_add(struct cluster *c);
struct cluster_device *cluster_device_add(struct cluster *c);
struct cluster_link *cluster_link_add(struct cluster *c);
// Returns the link between devices i and k. If both devices are on one host and the host has no link to itself, the latency is
// DEFAULT_LATENCY (file.c), and the bandwidth is half of the smaller memory bandwidth of the two devices.
struct cluster_link cluster_link_of(const struct cluster *c, int i, int k);
bool cluster_is_cpu(const struct cluster_device *d);
// Finds the devices for a split by tensors: all GPUs, or all CPUs if there is no GPU. Returns their number. Writes at most
// GGML_BACKEND_META_MAX_DEVICES of them to `devices`.
int cluster_parts(const struct cluster *c, int *devices);

// ---- file.c ----

// Reads JSON; name: the file name for messages. On failure c is empty.
bool cluster_read(struct cluster *c, const char *text, size_t size, const char *name, struct model_error *error);
void cluster_write(const struct cluster *c, FILE *file);

// ---- measure.c ----

struct cluster_measure_params {
    bool measures_type[GGML_TYPE_COUNT]; // types of weights to measure
    uint64_t size;                       // bytes of weights per token; 0: unknown, assumed to exceed the processor caches
    int64_t n_threads;                   // 0: number of cores
    double seconds;                      // time limit; at least one round is measured
    struct work_watch watch;
};

// Measures the devices of this process, including those of other ranks.
bool cluster_measure(struct cluster *c, const struct cluster_measure_params *params, struct model_error *error);
// Sets the types and the total size of the weights that are multiplied.
void cluster_measure_params_set_model(struct cluster_measure_params *params, const struct model *model);

// ---- rounds.c ----

// Returns the median of the known numbers; 0: none is known. A time is known if it is at least 0, a speed if it is above 0. Of
// two middle numbers, returns the faster one: the smaller time, or the larger speed. Changes the array.
double cluster_median(double *numbers, int n, bool is_time);
// Sets the numbers of out to the medians of n rounds with the same devices, hosts and links. `together` was measured with weights
// of `type`.
void cluster_choose_rounds(struct cluster *out, const struct cluster *rounds, int n, enum ggml_type type);

// ---- sums.c ----

// Measures sums over devices. Raises the latencies of links to the latency of a sum. Sets `together` of each host to the speed of
// decode by tensors, divided by the speed of the slowest device alone. This quotient can exceed 1 if other programs slowed down
// the measurement of a device alone. `size`: bytes of weights of `type` per token. Returns false if `together` is unknown,
// because the registry has no function for sums or a sum failed.
bool cluster_sums_measure(struct cluster *c, ggml_backend_t *backends, enum ggml_type type, uint64_t size);

// ---- device.c: simulated devices ----

struct simulation;
// NULL: out of memory. The cluster must outlive the simulation.
struct simulation *simulation_new(const struct cluster *c);
void simulation_free(struct simulation *sim);
ggml_backend_dev_t simulation_device(struct simulation *sim, int i);
uint64_t simulation_bytes(const struct simulation *sim, int i); // bytes of all buffers of device i that exist now
// is_together: true if all devices of a host compute at the same time, so that their speeds are multiplied by
// `together`. false if one device computes at a time.
void simulation_set_together(struct simulation *sim, bool is_together);
void simulation_clock_start(struct simulation *sim);       // sets the clock to 0 and every device to idle
double simulation_clock_now(const struct simulation *sim); // seconds since simulation_clock_start

// ---- predict.c ----

struct prediction_device {
    uint64_t weights, cache, compute, work; // bytes
};

struct prediction {
    bool is_known; // false: `why` has the reason
    bool fits;     // no device needs more than its memory
    char why[512];
    int64_t n_ctx, n_batch;
    double prefill, decode;            // tokens per second; prefill in batches of n_batch, decode at half of the context
    int full;                          // the first device whose memory is exceeded, if !fits
    struct prediction_device *devices; // [cluster.n_devices]
};

// Predicts the speed and the memory of a model that is split by layers or by tensors. If the model cannot be split in this way,
// the result is true and out->is_known is false. If the model cannot be opened, the result is false. The caller always calls
// prediction_fini.
bool cluster_predict(
    const struct cluster *c, const char *path, const struct model_options *o, struct prediction *out, struct model_error *error);
void prediction_fini(struct prediction *p);
// Predicts both ways to split a model. False: the model cannot be opened. The caller always calls prediction_fini on both
// predictions.
enum { CLUSTER_LAYER, CLUSTER_TENSOR, CLUSTER_N_WAYS };
bool cluster_predict_ways(const struct cluster *c, const char *path, const struct model_options *o,
    struct prediction ways[CLUSTER_N_WAYS], struct model_error *error);
// Returns the way with the fastest decode that is known and fits; -1: none.
int prediction_best(const struct prediction ways[CLUSTER_N_WAYS]);
static inline uint64_t prediction_bytes(const struct prediction_device *d) {
    return d->weights + d->cache + d->compute + d->work;
}

// Implements --split auto: measures the devices of all ranks, and sets o->by_tensor to the way to split with the faster predicted
// decode. text receives a line with the predictions, or "" if there is nothing to choose.
bool cluster_choose(
    const char *path, struct model_options *o, const struct work_watch *watch, char text[128], struct model_error *error);
