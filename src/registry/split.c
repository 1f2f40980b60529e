// SPDX-License-Identifier: MIT
// split.c: implements BERTH_SPLIT=tensor: a program sees one composite GPU in place of all GPUs. The combined devices are the
// parts of the composite GPU. If all parts are CPUs of other ranks (which count as GPUs), this rank's CPU becomes a part, too.
// The table `rules` decides by name how a tensor is split. All other tensors are mirrored (complete on every part), which is
// always correct. The number of heads is unknown here, so attention tensors are split into equal shares or not at all.

#include "registry/registry.h"

#include "ggml-backend.h"

#include <stdlib.h>
#include <string.h>

static struct {
    int n;        // number of parts
    int n_listed; // 1: parts[0] is this rank's CPU, which stays in the list of devices; 0: no part stays in the list
    ggml_backend_dev_t parts[GGML_BACKEND_META_MAX_DEVICES];
    // original get_props function of the composite device, which props_gpu replaces
    void (*props)(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props);
    ggml_backend_dev_t dev;
} split;

// ---- shares ----

static const struct {
    const char *name; // the beginning or the end of the tensor's name
    int axis;
    bool is_even; // split into equal shares or not at all
} rules[] = {
    {"attn_q.weight", 1, true},
    {"attn_k.weight", 1, true},
    {"attn_v.weight", 1, true},
    {"attn_q.bias", 0, true},
    {"attn_k.bias", 0, true},
    {"attn_v.bias", 0, true},
    {"attn_output.weight", 0, true},
    {"cache_k_l", 0, true},
    {"cache_v_l", 0, true},
    {"ffn_up.weight", 1, false},
    {"ffn_gate.weight", 1, false},
    {"ffn_up.bias", 0, false},
    {"ffn_gate.bias", 0, false},
    {"ffn_down.weight", 0, false},
    {"output.weight", 1, false},
};

static bool is_named(const char *tensor, const char *rule) {
    const size_t n = strlen(tensor), m = strlen(rule);
    return strncmp(tensor, rule, m) == 0 || (n > m && tensor[n - m - 1] == '.' && strcmp(tensor + n - m, rule) == 0);
}

// Shares of the feed-forward tensors are multiples of this number of elements, if the extent allows it. ffn_up is split by rows
// and ffn_down within rows, and both must be split at the same elements. ffn_down can only be split at a border of blocks, so the
// unit is the largest block size of a type.
#define FF_UNIT 256

static struct ggml_backend_meta_split_state tensor_share(const struct ggml_tensor *t, void *user) {
    struct ggml_backend_meta_split_state state = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    (void) user;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!is_named(t->name, rules[i].name)) {
            continue;
        }
        const int axis = rules[i].axis;
        const int64_t block = axis == 0 ? ggml_blck_size(t->type) : 1, ne = t->ne[axis];
        int64_t unit = ne % FF_UNIT == 0 && ne >= FF_UNIT * split.n ? FF_UNIT : 32;
        if (rules[i].is_even) {
            unit = block;
        }
        const int64_t units = ne / unit;
        if (ne % unit != 0 || unit % block != 0 || units < split.n || (rules[i].is_even && units % split.n != 0)) {
            return state;
        }
        state.axis = (enum ggml_backend_meta_split_axis) axis;
        for (int j = 0; j < split.n; j++) {
            state.ne[j] = (units * (j + 1) / split.n - units * j / split.n) * unit;
        }
        return state;
    }
    return state;
}

// ---- the device ----

static enum ggml_backend_dev_type type_gpu(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void props_gpu(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    split.props(dev, props);
    props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
}

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Split";
}

static size_t reg_count(ggml_backend_reg_t reg) {
    (void) reg;
    return split.dev != NULL;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    return index == 0 ? split.dev : NULL;
}

static struct ggml_backend_reg split_reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = {.get_name = reg_name, .get_device_count = reg_count, .get_device = reg_device},
};

bool berth_split_is_asked(void) {
    const char *how = getenv("BERTH_SPLIT"), *role = getenv("BERTH_MPI_ROLE");
    return how != NULL && strcmp(how, "tensor") == 0 && (role == NULL || strcmp(role, "worker") != 0);
}

static bool is_rank_cpu(ggml_backend_dev_t dev) {
    const char *colon = strchr(ggml_backend_dev_name(dev), ':'); // MPI1:CPU
    return colon != NULL && strcmp(colon, ":CPU") == 0;
}

ggml_backend_dev_t berth_split_make(ggml_backend_dev_t *devs, size_t n_devs) {
    ggml_backend_dev_t cpu = NULL;
    int n_cpus = 0;
    split.n = split.n_listed = 0;
    for (size_t i = 0; i < n_devs && split.n < GGML_BACKEND_META_MAX_DEVICES - 1; i++) {
        const enum ggml_backend_dev_type type = ggml_backend_dev_type(devs[i]);
        if (type == GGML_BACKEND_DEVICE_TYPE_CPU && cpu == NULL) {
            cpu = devs[i];
        }
        if (type == GGML_BACKEND_DEVICE_TYPE_GPU) {
            n_cpus += is_rank_cpu(devs[i]);
            split.parts[split.n++] = devs[i];
        }
    }
    if (split.n > 0 && n_cpus == split.n && cpu != NULL) {
        memmove(split.parts + 1, split.parts, (size_t) split.n * sizeof split.parts[0]);
        split.parts[0] = cpu;
        split.n++;
        split.n_listed = 1;
    }
    ggml_backend_dev_t dev = split.n > 1 ? ggml_backend_meta_device(split.parts, (size_t) split.n, tensor_share, &split) : NULL;
    // For the same parts, ggml_backend_meta_device returns the same device. Its functions may have been replaced already.
    if (dev != NULL && dev->iface.get_props != props_gpu) {
        split.props = dev->iface.get_props;
        dev->iface.get_type = type_gpu;
        dev->iface.get_props = props_gpu;
        dev->reg = &split_reg;
    }
    split.dev = dev;
    return dev;
}

const ggml_backend_dev_t *berth_split_hidden(size_t *n) {
    *n = split.dev != NULL ? (size_t) (split.n - split.n_listed) : 0;
    return split.parts + split.n_listed;
}

bool berth_split_has(ggml_backend_dev_t dev) {
    size_t n, i = 0;
    const ggml_backend_dev_t *hidden = berth_split_hidden(&n);
    while (i < n && hidden[i] != dev) {
        i++;
    }
    return i < n;
}

ggml_backend_dev_t berth_split_of(ggml_backend_reg_t reg) {
    bool has = false;
    for (int j = 0; split.dev != NULL && j < split.n; j++) {
        has = has || split.parts[j]->reg == reg;
    }
    return has ? split.dev : NULL;
}

void berth_split_drop(void) {
    split.dev = NULL;
}
