// SPDX-License-Identifier: MIT
// cluster.h: a simulated cluster: the memory and the speeds of each device, and the latency and bandwidth of links. The numbers are
// measured (measure.c) or read from a file (file.c). They become simulated devices (device.c), on which a model runs as on real
// ones, but which advance a clock instead of computing results (predict.c). docs/user/scale.md describes the model.
#pragma once

#include "model/workbench.h"

#define CLUSTER_MAX 1024 // devices
#define CLUSTER_ROUNDS 5 // rounds of measuring, at most
#define CLUSTER_TOGETHER_LEAST 0.05

struct cluster_device {
    char name[64]; // "CPU", "MPI1:CPU", "CUDA0"
    int host;
    uint64_t memory;    // bytes available to a model
    uint64_t alignment; // of its buffers, a power of two
    int64_t threads;
    double bandwidth, flops;         // bytes of memory per second, operations of products per second
    double start, op;                // seconds per graph in addition to its ops, seconds per small op
    double read[GGML_TYPE_COUNT];    // bytes per second of weights of a type, for one token; 0: bandwidth
    double product[GGML_TYPE_COUNT]; // operations per second on weights of a type, for many tokens; 0: flops
    // For attention: bytes of keys and values per second (0: bandwidth), operations per second (0: flops)
    double attend_read, attend;
};

struct cluster_host {
    char name[64];
    double together; // speed of a device while all devices of the host compute, relative to its speed alone
};

// A link between devices of two hosts, or of one host.
struct cluster_link {
    int a, b;                  // hosts; -1: any two hosts without another link
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
// Each of these functions adds one zeroed entry; NULL: out of memory, or more than CLUSTER_MAX.
struct cluster_host *cluster_host_add(struct cluster *c);
struct cluster_device *cluster_device_add(struct cluster *c);
struct cluster_link *cluster_link_add(struct cluster *c);
// Returns the link between devices i and k. Two devices of one host without a link get LEAST_LATENCY and half of the smaller memory
// bandwidth (file.c).
struct cluster_link cluster_link_of(const struct cluster *c, int i, int k);
bool cluster_is_cpu(const struct cluster_device *d);
// Writes the devices over which a model is split by tensors, at most GGML_BACKEND_META_MAX_DEVICES: all GPUs, or all CPUs if there
// is no GPU. Returns their number, which may be larger.
int cluster_parts(const struct cluster *c, int *devices);

// ---- file.c ----

// Reads JSON; name: the file name for messages. On failure c is empty.
bool cluster_read(struct cluster *c, const char *text, size_t size, const char *name, struct model_error *error);
void cluster_write(const struct cluster *c, FILE *file);

// ---- measure.c ----

struct cluster_measure_params {
    bool measures_type[GGML_TYPE_COUNT]; // types of weights to measure
    uint64_t size;     // bytes of weights that a token reads, which may fit into a cache; 0: unknown, assumed to be large
    int64_t n_threads; // 0: number of cores
    double seconds;    // a round that would end later is not started, except the first
    struct work_watch watch;
};

// Measures the devices of this process, including those of other ranks.
bool cluster_measure(struct cluster *c, const struct cluster_measure_params *params, struct model_error *error);
// Sets the types and the total size of the model's weights that are multiplied.
void cluster_measure_params_set_model(struct cluster_measure_params *params, const struct model *model);

// ---- rounds.c ----

// Returns the median of the known numbers; a speed is known if it is more than 0. Of two middle numbers it returns the faster one.
// Returns 0 if none is known. Sorts the numbers.
double cluster_median(double *numbers, int n, bool is_time);
// Sets the numbers of out to the medians of n rounds, which measured the same devices, hosts and links, with weights of a type.
void cluster_choose_rounds(struct cluster *out, const struct cluster *rounds, int n, enum ggml_type type);

// ---- sums.c ----

// Sets the latencies of links to those of sums over devices. Sets `together` of hosts to the speed of devices that sum
// continuously, with weights of a type of which a token reads `size` bytes. `together` is relative to the speed alone, so it
// exceeds 1 if the speed alone was measured in a slow moment. Returns false if `together` is unknown, because the devices' registry
// has no sums or they failed.
bool cluster_sums_measure(struct cluster *c, ggml_backend_t *backends, enum ggml_type type, uint64_t size);

// ---- device.c: simulated devices ----

struct simulation;
// NULL: out of memory. The cluster must outlive the simulation.
struct simulation *simulation_new(const struct cluster *c);
void simulation_free(struct simulation *sim);
ggml_backend_dev_t simulation_device(struct simulation *sim, int i);
uint64_t simulation_bytes(const struct simulation *sim, int i); // current bytes of its buffers
// Selects whether all devices of a host compute at the same time from now on, or only one of them.
void simulation_set_together(struct simulation *sim, bool is_together);
void simulation_clock_start(struct simulation *sim);       // sets the clock to 0 and every device to idle
double simulation_clock_now(const struct simulation *sim); // seconds until the program had its result

// ---- predict.c ----

struct prediction_device {
    uint64_t weights, cache, compute, work; // bytes
};

struct prediction {
    bool is_known; // false: `why` has the reason
    bool fits;     // no device needs more than its memory
    char why[512];
    int64_t n_ctx, n_batch;
    double prefill, decode;            // tokens per second: prompt in batches of n_batch; decode with half of the context filled
    int full;                          // the first device whose memory is exceeded, if !fits
    struct prediction_device *devices; // [cluster.n_devices]
};

// Predicts a model on the cluster, split by layers or by tensors. Returns true with !out->is_known if the model cannot be split in
// this way, false if it cannot be opened. The caller calls prediction_fini in both cases.
bool cluster_predict(
    const struct cluster *c, const char *path, const struct model_options *o, struct prediction *out, struct model_error *error);
void prediction_fini(struct prediction *p);
// Predicts both ways. Returns false if the model cannot be opened. The caller calls prediction_fini on both in any case.
enum { CLUSTER_LAYER, CLUSTER_TENSOR, CLUSTER_N_WAYS };
bool cluster_predict_ways(const struct cluster *c, const char *path, const struct model_options *o,
    struct prediction ways[CLUSTER_N_WAYS], struct model_error *error);
// Returns the faster way that is known and fits; -1: there is none.
int prediction_best(const struct prediction ways[CLUSTER_N_WAYS]);
static inline uint64_t prediction_bytes(const struct prediction_device *d) {
    return d->weights + d->cache + d->compute + d->work;
}

// Implements --split auto: measures the devices of this and the other ranks, and sets o->by_tensor to the way that is predicted to
// be faster. text receives a line with the prediction; it is empty if there is nothing to choose.
bool cluster_choose(
    const char *path, struct model_options *o, const struct work_watch *watch, char text[128], struct model_error *error);
