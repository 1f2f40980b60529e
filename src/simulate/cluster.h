// SPDX-License-Identifier: MIT
// cluster.h: machines as numbers: what each device holds, reads and multiplies, how long messages take. Measured
// (cluster_measure.c), read and written (cluster_file.c), turned into devices that exist on paper (cluster_paper.c), on which a
// model is run as it would be on real ones, with a clock in place of numbers (cluster_foretell.c). docs/scale.md has the model.
#pragma once

#include "cli/models.h"

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
    double start, op;                // seconds of a graph beside its ops, of a small op
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

// ---- cluster_file.c: CLI_OK, or the exit code after a message ----

int cluster_read(struct cluster *c, const char *path);
void cluster_write(const struct cluster *c, FILE *file);

// ---- cluster_measure.c ----

// This process' devices, those of other ranks among them. wants: types of weights that matter. CLI_OK, or after a message.
// size: bytes of the weights that a token reads, 0: not known, many. What fits into a cache comes from there.
// In rounds, of which none is begun that would end after so many seconds, but for the first.
int cluster_measure(struct cluster *c, const bool wants[GGML_TYPE_COUNT], int64_t n_threads, uint64_t size, double seconds);
// Types of a model's weights.
uint64_t cluster_size(const struct model *model); // of weights that are multiplied
void cluster_types(const struct model *model, bool wants[GGML_TYPE_COUNT]);

// ---- cluster_rounds.c ----

// Of numbers that are known, which for speeds is more than 0: the middle one, of two the faster; 0: none is. Sorts them.
double cluster_middle(double *numbers, int n, bool is_time);
// What rounds have measured of the same devices, hosts and links as out has, by weights of a type.
void cluster_choose_rounds(struct cluster *out, const struct cluster *rounds, int n, enum ggml_type type);

// ---- cluster_sums.c ----

// Latencies of links as sums have them, and `together` of hosts as devices have it that add up all the time, by weights of a type
// of which a token reads so many bytes: beside what they read alone, so that it may be more than 1 where that was a slow moment.
// False: `together` is not known, since their registry has no sums, or cannot.
bool cluster_sums_measure(struct cluster *c, ggml_backend_t *backends, enum ggml_type type, uint64_t size);

// ---- cluster_cost.c ----

// Seconds of an op by itself.
double cluster_op_seconds(const struct cluster_device *d, const struct ggml_tensor *t);

// ---- cluster_paper.c ----

struct paper;
// NULL: out of memory. The cluster outlives it.
struct paper *paper_new(const struct cluster *c);
void paper_free(struct paper *p);
ggml_backend_dev_t paper_device(struct paper *p, int i);
uint64_t paper_bytes(const struct paper *p, int i); // that its buffers hold now
// All devices of a host compute at the same time from now on, or one of all.
void paper_set_together(struct paper *p, bool is_together);
void paper_clock_start(struct paper *p);       // at 0, nothing is under way
double paper_clock_now(const struct paper *p); // seconds until the program had its answer

// ---- cluster_foretell.c ----

struct foretold_device {
    uint64_t weights, cache, compute, work; // bytes
};

struct foretold {
    bool is_known; // else why says why not
    bool fits;     // nothing passes its device's memory
    char why[512]; // it is not known
    int64_t n_ctx, n_batch;
    double read, write;              // tokens a second: of a prompt in batches of n_batch, and with half of the context filled
    int full;                        // the first device whose memory is passed, if !fits
    struct foretold_device *devices; // [cluster.n_devices]
};

// The model over the cluster, by layers or by tensors. CLI_OK also if it cannot be so; else after a message.
int cluster_foretell(const struct cluster *c, const char *path, const struct model_options *o, struct foretold *out);
// --split auto: sets o->by_tensor as is faster on the devices here and of the ranks beside it, and says so. The same.
int cluster_choose(struct model_options *o);
void foretold_fini(struct foretold *f);
static inline uint64_t foretold_bytes(const struct foretold_device *d) {
    return d->weights + d->cache + d->compute + d->work;
}
