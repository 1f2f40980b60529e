// SPDX-License-Identifier: MIT
// devices.c: opens the devices of a model. The scheduler requires that the host's CPU is the last device.

#include "base/min.h"
#include "model/model.h"

#include "ggml-backend-impl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ISO C has no conversion from object pointers to function pointers. POSIX guarantees equal representations.
void model_device_proc(ggml_backend_dev_t dev, const char *name, void *function) {
    void *p = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), name);
    memcpy(function, &p, sizeof p);
}

void model_device_set_threads(ggml_backend_t backend, int n_threads) {
    ggml_backend_set_n_threads_t set;
    model_device_proc(ggml_backend_get_device(backend), "ggml_backend_set_n_threads", &set);
    if (set != NULL) {
        set(backend, n_threads);
    }
}

static bool device_add(struct model_devices *d, ggml_backend_dev_t dev, struct model_error *error) {
    const size_t n = (size_t) d->n + 1;
    ggml_backend_dev_t *all = berth_realloc(d->dev, n * sizeof(ggml_backend_dev_t));
    if (all != NULL) {
        d->dev = all;
    }
    ggml_backend_t *opened = berth_realloc(d->backend, n * sizeof(ggml_backend_t));
    if (opened != NULL) {
        d->backend = opened;
    }
    if (all == NULL || opened == NULL) {
        return model_fail(error, "out of memory for %zu devices", n);
    }
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    if (backend == NULL) {
        return model_fail(error, "cannot open device '%s': %s", ggml_backend_dev_name(dev), berth_last_error());
    }
    d->dev[d->n] = dev;
    d->backend[d->n++] = backend;
    return true;
}

static bool devices_add_gpus(struct model_devices *d, struct model_error *error) {
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU && !device_add(d, dev, error)) {
            return false;
        }
    }
    return true;
}

int model_n_cores(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int) n : 1;
}

static void threads_set(struct model_devices *d, int n_threads) {
    if (n_threads <= 0) {
        n_threads = model_n_cores();
    }
    d->n_threads = n_threads;
    for (int i = 0; i < d->n; i++) {
        model_device_set_threads(d->backend[i], n_threads);
    }
}

bool model_device_unknown(const char *name, struct model_error *error) {
    char known[256] = "";
    size_t n = 0;
    for (size_t i = 0; i < ggml_backend_dev_count() && n < sizeof known; i++) {
        n += (size_t) snprintf(
            known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "", ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
    return model_fail(error, "unknown device '%.64s'; available: %s", name, known);
}

bool model_devices_open(struct model_devices *d, const char *name, int n_threads, struct model_error *error) {
    *d = (struct model_devices){0};
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_dev_t dev = name != NULL ? ggml_backend_dev_by_name(name) : NULL;
    bool ok = true;
    if (cpu == NULL) {
        return model_fail(error, "no CPU device is available");
    }
    if (name != NULL && dev == NULL) {
        return model_device_unknown(name, error);
    }
    if (name == NULL) {
        ok = devices_add_gpus(d, error);
    } else if (dev != cpu) {
        ok = device_add(d, dev, error);
    }
    if (!ok || !device_add(d, cpu, error)) {
        model_devices_close(d);
        return false;
    }
    threads_set(d, n_threads);
    return true;
}

// Divides the threads evenly among the devices of a composite device. Devices without threads are skipped.
static void parts_threads_set(ggml_backend_t meta, int n_threads) {
    int n = 0;
    if (n_threads <= 0) {
        n_threads = model_n_cores();
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < ggml_backend_meta_n_backends(meta); i++) {
            ggml_backend_t part = ggml_backend_meta_simple_backend(meta, i);
            ggml_backend_set_n_threads_t set;
            model_device_proc(ggml_backend_get_device(part), "ggml_backend_set_n_threads", &set);
            n += pass == 0 && set != NULL;
            if (pass == 1 && set != NULL) {
                set(part, n_threads > n ? n_threads / n : 1);
            }
        }
    }
}

bool model_devices_open_list(struct model_devices *d, ggml_backend_dev_t *list, int n, struct model_error *error) {
    *d = (struct model_devices){0};
    for (int i = 0; i < n; i++) {
        if (!device_add(d, list[i], error)) {
            model_devices_close(d);
            return false;
        }
    }
    return true;
}

// ---- a composite device for a model. Attention heads and feed-forward rows are divided among the devices. Every device has the
// complete residual stream. A tensor without a rule is mirrored: every device has a complete copy, which is always correct. The
// share of a device has complete heads and complete quantisation blocks ----

// Data of the split callback. It lives as long as the device is used.
struct model_shares {
    int n;                        // devices
    int64_t head, head_v, gqa;    // elements per key head; per value head; query heads per key head
    int64_t attn_block, ff_block; // largest block sizes of attn_output and of ffn_down
};

static int64_t gcd_i64(int64_t a, int64_t b) {
    return b == 0 ? a : gcd_i64(b, a % b);
}

// The share of a device is a multiple of a unit: the elements of one group of key heads, a feed-forward block, or a row.
enum share_unit { UNIT_QUERY, UNIT_KEY, UNIT_VALUE, UNIT_OUT, UNIT_FF, UNIT_ROW };

static const struct {
    const char *name; // suffix of the tensor's name after a dot, or its prefix
    int axis;
    enum share_unit unit;
} rules[] = {
    {"attn_q.weight", 1, UNIT_QUERY},
    {"attn_q.bias", 0, UNIT_QUERY},
    {"attn_k.weight", 1, UNIT_KEY},
    {"attn_k.bias", 0, UNIT_KEY},
    {"attn_v.weight", 1, UNIT_VALUE},
    {"attn_v.bias", 0, UNIT_VALUE},
    {"attn_output.weight", 0, UNIT_OUT},
    {"cache_k-", 0, UNIT_KEY},
    {"cache_v-", 0, UNIT_VALUE},
    {"ffn_up.weight", 1, UNIT_FF},
    {"ffn_gate.weight", 1, UNIT_FF},
    {"ffn_up.bias", 0, UNIT_FF},
    {"ffn_gate.bias", 0, UNIT_FF},
    {"ffn_down.weight", 0, UNIT_FF},
    {"ffn_up_exps.weight", 1, UNIT_FF},
    {"ffn_gate_exps.weight", 1, UNIT_FF},
    {"ffn_down_exps.weight", 0, UNIT_FF},
    {"output.weight", 1, UNIT_ROW},
};

static bool name_matches(const char *tensor, const char *rule) {
    const size_t n = strlen(tensor), m = strlen(rule);
    const bool is_end = n >= m && strcmp(tensor + n - m, rule) == 0;
    return strncmp(tensor, rule, m) == 0 || (is_end && tensor[n - m - 1] == '.');
}

// Returns the smallest number of key heads whose query heads fill complete blocks of attn_output's rows. One device must have all
// heads of this group.
static int64_t heads_per_unit(const struct model_shares *s) {
    const int64_t width = s->head_v * s->gqa;
    return s->attn_block / gcd_i64(width, s->attn_block);
}

static int64_t unit_size(const struct model_shares *s, enum share_unit unit) {
    const int64_t heads = heads_per_unit(s);
    switch (unit) {
        case UNIT_QUERY: return s->head * s->gqa * heads;
        case UNIT_KEY: return s->head * heads;
        case UNIT_VALUE: return s->head_v * heads;
        case UNIT_OUT: return s->head_v * s->gqa * heads;
        case UNIT_FF: return s->ff_block;
        case UNIT_ROW: return 1;
    }
    return 1;
}

static struct ggml_backend_meta_split_state tensor_share(const struct ggml_tensor *t, void *user) {
    const struct model_shares *s = user;
    struct ggml_backend_meta_split_state state = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!name_matches(t->name, rules[i].name)) {
            continue;
        }
        const int axis = rules[i].axis;
        const int64_t unit = unit_size(s, rules[i].unit), n = t->ne[axis] / unit;
        const int64_t block = axis == 0 ? ggml_blck_size(t->type) : 1;
        if (t->ne[axis] % unit != 0 || unit % block != 0 || n < 2) {
            return state;
        }
        state.axis = (enum ggml_backend_meta_split_axis) axis;
        for (int j = 0; j < s->n; j++) {
            state.ne[j] = (n * (j + 1) / s->n - n * j / s->n) * unit;
        }
        return state;
    }
    return state;
}

static int64_t largest_block(const struct model *m, const char *name) {
    int64_t block = 1;
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ggml_tensor *t = m->weights[i].file;
        const int64_t size = name_matches(t->name, name) ? ggml_blck_size(t->type) : 1;
        block = max_i64(size, block);
    }
    return block;
}

// The caller frees *shares after the last use of the device. NULL: failed.
static ggml_backend_dev_t composite_device_new(
    struct model_shares **shares, const struct model *m, ggml_backend_dev_t *parts, int n, struct model_error *error) {
    struct model_shares *s = berth_calloc(1, sizeof *s);
    if (s == NULL) {
        model_fail(error, "out of memory for the shares of %d devices", n);
        return NULL;
    }
    const struct model_params *p = &m->params;

    *s = (struct model_shares){.n = n,
        .head = p->head_size,
        .head_v = p->head_size_v,
        .gqa = p->n_head_kv > 0 ? p->n_head / p->n_head_kv : 1,
        .attn_block = largest_block(m, "attn_output.weight"),
        .ff_block = largest_block(m, "ffn_down.weight")};
    s->ff_block = max_i64(s->ff_block, largest_block(m, "ffn_down_exps.weight"));
    ggml_backend_dev_t dev = ggml_backend_meta_device(parts, (size_t) n, tensor_share, s);
    if (dev == NULL) {
        model_fail(error, "%s", berth_last_error());
        berth_free(s);
        return NULL;
    }
    *shares = s;
    return dev;
}

bool model_devices_open_parts(struct model_devices *d, const struct model *model, ggml_backend_dev_t *parts, int n,
    ggml_backend_dev_t host, struct model_error *error) {
    *d = (struct model_devices){0};
    ggml_backend_dev_t dev = composite_device_new(&d->shares, model, parts, n, error);
    if (dev == NULL || !device_add(d, dev, error) || !device_add(d, host, error)) {
        model_devices_close(d);
        return false;
    }
    return true;
}

// Lists all GPUs. The CPU of another MPI rank has the type GPU. If all listed devices are CPUs, the CPU of this rank is added as
// the first device.
static int parts_list_gpus(ggml_backend_dev_t *parts) {
    int n = 0, n_cpus = 0;
    for (size_t i = 0; i < ggml_backend_dev_count() && n < GGML_BACKEND_META_MAX_DEVICES; i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU) {
            const char *of_rank = strchr(ggml_backend_dev_name(dev), ':'); // MPI1:CPU
            n_cpus += of_rank != NULL && strcmp(of_rank, ":CPU") == 0;
            parts[n++] = dev;
        }
    }
    if (n > 0 && n_cpus == n && n < GGML_BACKEND_META_MAX_DEVICES) {
        memmove(parts + 1, parts, (size_t) n * sizeof *parts);
        parts[0] = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        n++;
    }
    return n;
}

// names: comma-separated, a name may occur twice; NULL: all GPUs. Returns the number of devices, at most
// GGML_BACKEND_META_MAX_DEVICES; 0: failed.
static int parts_find(const char *names, ggml_backend_dev_t *parts, struct model_error *error) {
    int n = names == NULL ? parts_list_gpus(parts) : 0;
    for (const char *at = names; at != NULL && n < GGML_BACKEND_META_MAX_DEVICES;) {
        char name[128];
        const char *comma = strchr(at, ',');
        snprintf(name, sizeof name, "%.*s", (int) (comma != NULL ? (size_t) (comma - at) : strlen(at)), at);
        parts[n] = ggml_backend_dev_by_name(name);
        if (parts[n++] == NULL) {
            model_device_unknown(name, error);
            return 0;
        }
        at = comma != NULL ? comma + 1 : NULL;
    }
    if (n < 2) {
        const char *why = berth_last_error(); // reason why a backend was not loaded, or why ranks did not join
        model_fail(error,
            "splitting tensors requires two or more devices, but %d %s given; set them with --device, as in --device CPU,CPU%s%s",
            n, n == 1 ? "is" : "are", why[0] != '\0' ? "; earlier error: " : "", why);
        return 0;
    }
    return n;
}

bool model_devices_open_split(
    struct model_devices *d, const struct model *model, const char *names, int n_threads, struct model_error *error) {
    *d = (struct model_devices){0};
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (cpu == NULL) {
        return model_fail(error, "no CPU device is available");
    }
    ggml_backend_dev_t parts[GGML_BACKEND_META_MAX_DEVICES];
    const int n = parts_find(names, parts, error);
    if (n == 0 || !model_devices_open_parts(d, model, parts, n, cpu, error)) {
        return false;
    }
    threads_set(d, n_threads);
    parts_threads_set(d->backend[0], n_threads);
    return true;
}

bool model_devices_set_limit(struct model_devices *d, int i, size_t bytes) {
    if (d->limits == NULL) {
        d->limits = berth_calloc((size_t) d->n, sizeof *d->limits);
    }
    if (d->limits != NULL) {
        d->limits[i] = bytes;
    }
    return d->limits != NULL;
}

void model_devices_close(struct model_devices *d) {
    for (int i = 0; i < d->n; i++) {
        ggml_backend_free(d->backend[i]);
    }
    berth_free(d->dev);
    berth_free(d->backend);
    berth_free(d->shares);
    berth_free(d->limits);
    *d = (struct model_devices){0};
}

void model_devices_set_abort(struct model_devices *d, ggml_abort_callback callback, void *user_data) {
    d->abort = callback;
    d->abort_data = user_data;
    for (int i = 0; i < d->n; i++) {
        ggml_backend_set_abort_callback_t set;
        model_device_proc(d->dev[i], "ggml_backend_set_abort_callback", &set);
        if (set != NULL) {
            set(d->backend[i], callback, user_data);
        }
    }
}
