// SPDX-License-Identifier: MIT
// device.c: composite devices and their buffer types. Equal lists of devices with equal callbacks give the same composite device.
// A composite device exists until the process ends.

#include "meta/meta.h"

#include "base/lock.h"
#include "base/min.h"

#include <stdio.h>

static struct berth_lock lock = BERTH_LOCK_INIT;
static struct meta_device *all;

static struct meta_device *device_of(ggml_backend_dev_t dev) {
    return (struct meta_device *) dev;
}

// ---- buffer type: properties that all devices share ----

static const char *buft_name(ggml_backend_buffer_type_t buft) {
    return device_of(buft->device)->name;
}

static ggml_backend_buffer_type_t part_buft(const struct meta_device *device, int j) {
    return ggml_backend_dev_buffer_type(device->parts[j]);
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    const struct meta_device *device = device_of(buft->device);
    size_t align = 1;
    for (int j = 0; j < device->n; j++) {
        align = max_size(ggml_backend_buft_get_alignment(part_buft(device, j)), align);
    }
    return align;
}

static size_t buft_max_size(ggml_backend_buffer_type_t buft) {
    const struct meta_device *device = device_of(buft->device);
    size_t least = SIZE_MAX;
    for (int j = 0; j < device->n; j++) {
        least = min_size(ggml_backend_buft_get_max_size(part_buft(device, j)), least);
    }
    return least;
}

static size_t buft_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *t) {
    const struct meta_device *device = device_of(buft->device);
    size_t most = 0;
    for (int j = 0; j < device->n; j++) {
        most = max_size(ggml_backend_buft_get_alloc_size(part_buft(device, j), t), most);
    }
    return most;
}

// Addresses of a composite buffer cannot be dereferenced, even if all its devices use host memory.
static bool buft_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return false;
}

static const struct ggml_backend_buffer_type_i buft_iface = {
    .get_name = buft_name,
    .alloc_buffer = meta_buffer_alloc,
    .get_alignment = buft_alignment,
    .get_max_size = buft_max_size,
    .get_alloc_size = buft_alloc_size,
    .is_host = buft_is_host,
};

struct meta_device *meta_device_of(ggml_backend_buffer_type_t buft) {
    return ggml_backend_buft_is_meta(buft) ? device_of(buft->device) : NULL;
}

bool ggml_backend_buft_is_meta(ggml_backend_buffer_type_t buft) {
    return buft != NULL && buft->iface.get_name == buft_name;
}

// ---- the device ----

static const char *dev_name(ggml_backend_dev_t dev) {
    return device_of(dev)->name;
}

static void dev_memory(ggml_backend_dev_t dev, size_t *free, size_t *total) {
    const struct meta_device *device = device_of(dev);

    *free = *total = 0;
    for (int j = 0; j < device->n; j++) {
        size_t one_free = 0, one_total = 0;
        ggml_backend_dev_memory(device->parts[j], &one_free, &one_total);
        *free += one_free;
        *total += one_total;
    }
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_META;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    const struct meta_device *device = device_of(dev);
    bool has_mmap = true;
    for (int j = 0; j < device->n; j++) {
        struct ggml_backend_dev_props one = {0};
        ggml_backend_dev_get_props(device->parts[j], &one);
        has_mmap &= one.caps.mmap_support;
    }
    *props = (struct ggml_backend_dev_props){
        .name = device->name,
        .description = device->name,
        .type = GGML_BACKEND_DEVICE_TYPE_META,
        .caps = {.mmap_support = has_mmap}, // computing waits for the devices, so nothing is asynchronous
    };
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_buffer_type_t dev_buft(ggml_backend_dev_t dev) {
    return &device_of(dev)->buft;
}

static ggml_backend_buffer_type_t dev_host_buft(ggml_backend_dev_t dev) {
    const struct meta_device *device = device_of(dev);
    ggml_backend_buffer_type_t common = ggml_backend_dev_host_buffer_type(device->parts[0]);
    for (int j = 1; j < device->n; j++) {
        if (ggml_backend_dev_host_buffer_type(device->parts[j]) != common) {
            return NULL;
        }
    }
    return common;
}

// Asks each device about a copy of the op whose tensors have no buffers. A device would take a composite buffer for memory of
// another device and reject the op.
static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    const struct meta_device *device = device_of(dev);
    struct ggml_tensor node = *op, srcs[GGML_MAX_SRC];
    node.buffer = NULL;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (op->src[i] != NULL) {
            srcs[i] = *op->src[i];
            srcs[i].buffer = NULL;
            node.src[i] = &srcs[i];
        }
    }
    for (int j = 0; j < device->n; j++) {
        if (!ggml_backend_dev_supports_op(device->parts[j], &node)) {
            return false;
        }
    }
    return true;
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    const struct meta_device *a = device_of(dev), *b = meta_device_of(buft);
    return b != NULL && a->n == b->n && memcmp(a->parts, b->parts, (size_t) a->n * sizeof a->parts[0]) == 0;
}

static const struct ggml_backend_device_i dev_iface = {
    .get_name = dev_name,
    .get_description = dev_name,
    .get_memory = dev_memory,
    .get_type = dev_type,
    .get_props = dev_props,
    .init_backend = meta_backend_new,
    .get_buffer_type = dev_buft,
    .get_host_buffer_type = dev_host_buft,
    .supports_op = dev_supports_op,
    .supports_buft = dev_supports_buft,
};

bool meta_is_device(ggml_backend_dev_t dev) {
    return dev != NULL && dev->iface.init_backend == meta_backend_new;
}

// ---- new ----

static const struct berth_composite_hooks composite_hooks = {
    .set_usage = ggml_backend_meta_buffer_set_usage,
    .is_composite = ggml_backend_buft_is_meta,
    .alloc_ctx = ggml_backend_meta_alloc_ctx_tensors_from_buft,
    .is_backend = ggml_backend_is_meta,
    .reserve = meta_reserve,
    .reserve_size = meta_reserve_size,

    .layout_new = meta_layout_new,
    .layout_free = meta_layout_free,
    .layout_buffer = meta_layout_buffer,
    .layout_ensure_memory = meta_layout_ensure_memory,
    .layout_bytes = meta_layout_bytes,
};

static char *name_make(ggml_backend_dev_t *devs, int n) {
    struct berth_stream s;
    if (!berth_stream_open(&s)) {
        return NULL;
    }
    for (int j = 0; j < n; j++) {
        fprintf(s.file, "%s%s", j == 0 ? "Meta(" : ",", ggml_backend_dev_name(devs[j]));
    }
    fputc(')', s.file);
    return berth_stream_close(&s) ? s.text : NULL;
}

static struct meta_device *device_find(
    ggml_backend_dev_t *devs, int n, ggml_backend_meta_get_split_state_t get_state, void *user) {
    for (struct meta_device *d = all; d != NULL; d = d->next) {
        if (d->n == n && d->get_state == get_state && d->user == user &&
            memcmp(d->parts, devs, (size_t) n * sizeof devs[0]) == 0) {
            return d;
        }
    }
    return NULL;
}

static struct meta_device *device_make(
    ggml_backend_dev_t *devs, int n, ggml_backend_meta_get_split_state_t get_state, void *user) {
    struct meta_device *d = berth_calloc(1, sizeof *d);
    char *name = name_make(devs, n);
    ggml_backend_dev_t *parts = berth_calloc((size_t) n, sizeof *parts);
    if (d == NULL || name == NULL || parts == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_meta_device: out of memory for a composite device of %d devices", n);
        berth_free(d);
        berth_free(name);
        berth_free(parts);
        return NULL;
    }
    memcpy(parts, devs, (size_t) n * sizeof parts[0]);
    *d = (struct meta_device){
        .dev = {.iface = dev_iface, .context = d},
        .buft = {.iface = buft_iface, .device = &d->dev, .context = d},
        .parts = parts,
        .n = n,
        .get_state = get_state,
        .user = user,
        .name = name,
        .next = all,
    };
    all = d;
    berth_composite_hooks_set(&composite_hooks);
    return d;
}

ggml_backend_dev_t ggml_backend_meta_device(
    ggml_backend_dev_t *devs, size_t n_devs, ggml_backend_meta_get_split_state_t get_split_state, void *get_split_state_ud) {
    if (devs == NULL || n_devs == 0 || n_devs > META_MAX) {
        berth_fail(
            GGML_STATUS_FAILED, "ggml_backend_meta_device: cannot combine %zu devices; 1 to %d are possible", n_devs, META_MAX);
        return NULL;
    }
    for (size_t j = 0; j < n_devs; j++) {
        if (devs[j] == NULL || meta_is_device(devs[j])) {
            berth_fail(GGML_STATUS_FAILED, "ggml_backend_meta_device: device %zu of %zu is %s", j, n_devs,
                devs[j] == NULL ? "NULL" : "a composite device itself");
            return NULL;
        }
    }
    berth_lock_take(&lock);
    struct meta_device *d = device_find(devs, (int) n_devs, get_split_state, get_split_state_ud);
    if (d == NULL) {
        d = device_make(devs, (int) n_devs, get_split_state, get_split_state_ud);
    }
    berth_lock_drop(&lock);
    return d != NULL ? &d->dev : NULL;
}

const char *ggml_backend_meta_split_axis_name(enum ggml_backend_meta_split_axis split_axis) {
    static const char *const axes[] = {"0", "1", "2", "3"};
    static const struct {
        enum ggml_backend_meta_split_axis axis;
        const char *name;
    } others[] = {
        {GGML_BACKEND_SPLIT_AXIS_MIRRORED, "MIRRORED"},
        {GGML_BACKEND_SPLIT_AXIS_PARTIAL, "PARTIAL"},
        {GGML_BACKEND_SPLIT_AXIS_NONE, "NONE"},
        {GGML_BACKEND_SPLIT_AXIS_UNKNOWN, "UNKNOWN"},
    };
    if ((unsigned) split_axis < GGML_MAX_DIMS) {
        return axes[split_axis];
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i].axis == split_axis) {
            return others[i].name;
        }
    }
    berth_set_error("ggml_backend_meta_split_axis_name: %d is not a split axis", (int) split_axis);
    return "UNKNOWN";
}
