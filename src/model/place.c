// SPDX-License-Identifier: MIT
// place.c: places the weights of a model on its devices. A device that can use host memory uses the file's mapped pages if the file
// aligns its tensors. Other devices get copies.

#include "base/min.h"
#include "model/model.h"

#include "ggml-backend-impl.h" // ggml_backend_multi_buffer_alloc_buffer

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define MAP_ALIGNMENT 8              // bytes; size of the largest number in any type
#define STEP_SIZE ((size_t) 2 << 20) // bytes that are read or uploaded between two progress reports

struct placing {
    struct model *model;
    const struct model_devices *devices;
    berth_gguf_progress_t progress;
    void *user_data;
    size_t done, total; // bytes placed; bytes in total
    struct model_error *error;
};

// ---- assignment of layers to devices ----

bool model_weight_is_experts(const struct model *m, const struct model_weight *w) {
    return m->params.n_expert > 0 && w->layer >= 0 && w->layer < m->params.n_layer && w->file->ne[2] > 1;
}

int model_weight_device(const struct model *m, const struct model_weight *w) {
    if (w->layer < 0) {
        return m->n_parts - 1;
    }
    return m->expert_device != NULL && model_weight_is_experts(m, w) ? m->expert_device[w->layer] : m->layer_device[w->layer];
}

// Bytes of layers on file.
struct layer_sizes {
    size_t *experts; // [n_layer + 1]
    size_t *others;  // [n_layer + 1] weights except experts; the last entry is the output
};

static bool layer_sizes_init(const struct model *m, struct layer_sizes *sizes) {
    const size_t n = (size_t) m->params.n_layer + 1;
    sizes->experts = berth_calloc(2 * n, sizeof sizes->experts[0]);
    if (sizes->experts == NULL) {
        return false;
    }
    sizes->others = sizes->experts + n;
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct model_weight *w = &m->weights[i];
        if (w->layer >= 0) {
            (model_weight_is_experts(m, w) ? sizes->experts : sizes->others)[w->layer] += ggml_nbytes(w->file);
        }
    }
    if (m->is_tied) {
        sizes->others[m->params.n_layer] += ggml_nbytes(m->token_embd);
    }
    return true;
}

// Returns the bytes of layers that a device can hold. A tenth of its free memory is kept for the cache and the compute buffer.
static size_t device_capacity(const struct model_devices *devices, int d) {
    size_t n_free = 0, n_total = 0;
    ggml_backend_dev_memory(devices->dev[d], &n_free, &n_total);
    const size_t limit = devices->limits != NULL ? devices->limits[d] : 0;
    if (limit > 0 && (n_total == 0 || limit < n_free)) {
        n_free = limit;
    }
    return n_total == 0 && limit == 0 ? SIZE_MAX : n_free - n_free / 10;
}

// Layers are assigned from the last to the first. Each GPU takes consecutive layers, beginning with the last GPU. If all layers
// fit, each GPU takes a share in proportion to its memory, so that memory for its cache remains. Otherwise each GPU takes as many
// layers as fit.
struct assignment {
    int d;        // device that takes layers now; -1: no GPU is left
    size_t left;  // bytes left on device d
    double share; // bytes that device d should still take; the rest of d's share is added to the share of the next device
    // False: device d takes layers until it is full, because it is the first GPU, the layers do not fit, or the memory is
    // unknown.
    bool has_share;
};

static void assignment_next(struct assignment *assign, const struct placing *p, double fraction) {
    assign->d--;
    assign->left = assign->d >= 0 ? device_capacity(p->devices, assign->d) : 0;
    assign->share += fraction * (double) assign->left;
    assign->has_share = assign->d > 0 && fraction > 0; // the first GPU takes all remaining layers
}

// Returns the fraction of each GPU's memory that all layers need. 0: the memory is unknown. More than 1: the layers do not fit.
static double capacity_fraction(const struct placing *p, const size_t *sizes) {
    double total = 0, capacity = 0;
    for (int64_t i = 0; i <= p->model->params.n_layer; i++) {
        total += (double) sizes[i];
    }
    for (int d = 0; d < p->devices->n - 1; d++) {
        capacity += (double) device_capacity(p->devices, d);
    }
    return capacity < (double) SIZE_MAX ? total / capacity : 0;
}

static void layers_assign(struct placing *p, const size_t *sizes) {
    struct model *m = p->model;
    const int cpu = p->devices->n - 1;
    const double fraction = capacity_fraction(p, sizes);
    struct assignment assign = {.d = cpu};
    assignment_next(&assign, p, fraction < 1 ? fraction : 0); // start with the last GPU
    for (int64_t i = m->params.n_layer; i >= 0; i--) {
        if (i < p->devices->n_host) {
            assign.d = -1;
        }
        while (assign.d >= 0 && (sizes[i] > assign.left || (assign.has_share && (double) sizes[i] / 2 > assign.share))) {
            assignment_next(&assign, p, fraction < 1 ? fraction : 0);
        }
        m->layer_device[i] = assign.d >= 0 ? assign.d : cpu;
        assign.left -= assign.d >= 0 ? sizes[i] : 0;
        assign.share -= (double) sizes[i];
    }
}

// Gives each GPU the experts of its layers, from the last layer to the first, as far as its memory suffices.
static void experts_assign(struct placing *p, const struct layer_sizes *sizes, size_t *left) {
    struct model *m = p->model;
    const int cpu = p->devices->n - 1;
    for (int d = 0; d < cpu; d++) {
        left[d] = device_capacity(p->devices, d);
    }
    for (int64_t i = 0; i <= m->params.n_layer; i++) {
        const int d = m->layer_device[i];
        if (d != cpu) {
            left[d] -= min_size(left[d], sizes->others[i]);
        }
    }
    for (int64_t i = m->params.n_layer; i >= 0; i--) {
        const int d = m->layer_device[i];
        const bool has_place = d != cpu && i >= p->devices->n_host_experts && sizes->experts[i] <= left[d];
        m->expert_device[i] = has_place ? d : cpu;
        if (has_place) {
            left[d] -= sizes->experts[i];
        }
    }
}

// If all weights fit on the GPUs, or the model has no experts, a layer is on one device. Otherwise the GPUs first get the weights
// that every token reads, and experts in the remaining memory: a token reads only some of the experts.
static bool devices_assign(struct placing *p) {
    struct model *m = p->model;
    const size_t n = (size_t) m->params.n_layer + 1;
    struct layer_sizes sizes = {0};
    m->layer_device = berth_calloc(n, sizeof *m->layer_device);
    size_t *all = berth_calloc(n, sizeof *all), *left = berth_calloc((size_t) p->devices->n, sizeof *left);
    bool ok = m->layer_device != NULL && all != NULL && left != NULL && layer_sizes_init(m, &sizes);
    if (!ok) {
        model_fail(p->error, "out of memory for the placement of %" PRId64 " layers", m->params.n_layer);
        goto end;
    }
    size_t n_experts = 0;
    for (size_t i = 0; i < n; i++) {
        n_experts += sizes.experts[i] > 0;
        all[i] = sizes.others[i] + sizes.experts[i];
    }
    const bool has_room = p->devices->n == 1 || (capacity_fraction(p, all) < 1 && p->devices->n_host_experts == 0);
    if (has_room || n_experts == 0) {
        layers_assign(p, all);
        goto end;
    }
    layers_assign(p, sizes.others);
    m->expert_device = berth_calloc(n, sizeof *m->expert_device);
    ok = m->expert_device != NULL ||
         model_fail(p->error, "out of memory for the placement of the experts of %" PRId64 " layers", m->params.n_layer);
    if (ok) {
        experts_assign(p, &sizes, left);
    }
end:
    berth_free(sizes.experts);
    berth_free(all);
    berth_free(left);
    return ok;
}

// ---- weights of one device ----

static bool progress_add(struct placing *p, size_t size) {
    p->done += size;
    return p->progress == NULL || p->progress(p->done, p->total, p->user_data) || model_fail(p->error, "loading was interrupted");
}

static bool tensors_make(struct placing *p, int d) {
    struct model *m = p->model;
    size_t n = 0;
    for (size_t i = 0; i < m->n_weights; i++) {
        n += model_weight_device(m, &m->weights[i]) == d;
    }
    m->parts[d].ctx = ggml_init((struct ggml_init_params){.mem_size = (n + 1) * ggml_tensor_overhead(), .no_alloc = true});
    if (m->parts[d].ctx == NULL) {
        return model_fail(p->error, "out of memory for %zu tensors", n);
    }
    for (size_t i = 0; i < m->n_weights; i++) {
        struct model_weight *w = &m->weights[i];
        if (model_weight_device(m, w) == d) {
            *w->slot = ggml_dup_tensor(m->parts[d].ctx, w->file);
            ggml_set_name(*w->slot, w->file->name);
        }
    }
    return true;
}

// Kernels need aligned numbers. Weights of an unaligned file are copied.
static bool can_map(const struct model *m, ggml_backend_dev_t dev) {
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(dev, &props);
    return props.caps.buffer_from_host_ptr && gguf_get_alignment(berth_gguf_map_meta(m->file)) >= MAP_ALIGNMENT;
}

static size_t device_bytes(const struct placing *p, int d, size_t *largest) {
    size_t sum = 0;
    *largest = 0;
    for (size_t i = 0; i < p->model->n_weights; i++) {
        if (model_weight_device(p->model, &p->model->weights[i]) == d) {
            const size_t size = ggml_nbytes(p->model->weights[i].file);
            sum += size;
            *largest = max_size(size, *largest);
        }
    }
    return sum;
}

// Reads one byte per page, so that the disk is read in order.
static bool pages_touch(struct placing *p, const struct ggml_tensor *t) {
    const size_t size = ggml_nbytes(t);
    for (size_t at = 0; at < size && p->progress != NULL;) {
        const size_t step = min_size(size - at, STEP_SIZE);
        for (size_t i = 0; i < step; i += 4096) {
            (void) *((const volatile unsigned char *) t->data + at + i);
        }
        at += step;
        if (!progress_add(p, step)) {
            return false;
        }
    }
    return true;
}

static ggml_backend_buffer_t weight_buffer(
    const struct model *m, const ggml_backend_buffer_t *buffers, const struct ggml_tensor *t) {
    for (int64_t f = 0; f < m->n_files; f++) {
        const uintptr_t base = (uintptr_t) berth_gguf_map_base(m->files[f]), at = (uintptr_t) t->data;
        if (at >= base && at - base < berth_gguf_map_size(m->files[f])) {
            return buffers[f];
        }
    }
    return buffers[0];
}

// Creates one buffer per file and combines them into the buffer of part d. False: failed. Then the caller frees the entries of
// `buffers`; an entry is NULL if its buffer was not created.
static bool buffers_map(struct placing *p, int d, size_t largest, ggml_backend_buffer_t *buffers) {
    struct model *m = p->model;
    for (int64_t f = 0; f < m->n_files; f++) {
        void *base = (void *) (uintptr_t) berth_gguf_map_base(m->files[f]); // the map is read-only, and weights are never written
        buffers[f] = ggml_backend_dev_buffer_from_host_ptr(p->devices->dev[d], base, berth_gguf_map_size(m->files[f]), largest);
        if (buffers[f] == NULL) {
            return false;
        }
    }
    m->parts[d].buffer = m->n_files == 1 ? buffers[0] : ggml_backend_multi_buffer_alloc_buffer(buffers, (size_t) m->n_files);
    return m->parts[d].buffer != NULL;
}

static bool weights_map(struct placing *p, int d, size_t largest) {
    struct model *m = p->model;
    ggml_backend_buffer_t *buffers = berth_calloc((size_t) m->n_files, sizeof(ggml_backend_buffer_t));
    bool ok = (buffers != NULL || model_fail(p->error, "out of memory for %" PRId64 " buffers", m->n_files)) &&
              (buffers_map(p, d, largest, buffers) ||
                  model_fail(p->error, "cannot use the mapped file as a buffer: %s", berth_last_error()));
    for (int64_t f = 0; !ok && buffers != NULL && f < m->n_files; f++) {
        ggml_backend_buffer_free(buffers[f]);
    }
    if (ok) {
        ggml_backend_buffer_set_usage(m->parts[d].buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    for (size_t i = 0; ok && i < m->n_weights; i++) {
        const struct model_weight *w = &m->weights[i];
        if (model_weight_device(m, w) != d) {
            continue;
        }
        ok = (ggml_backend_tensor_alloc(weight_buffer(m, buffers, w->file), *w->slot, w->file->data) == GGML_STATUS_SUCCESS ||
                 model_fail(p->error, "cannot place tensor '%s': %s", w->file->name, berth_last_error())) &&
             pages_touch(p, w->file);
    }
    berth_free(buffers);
    return ok;
}

static void pages_drop(const struct model *m, const void *bytes, size_t size) {
    for (int64_t f = 0; f < m->n_files; f++) {
        berth_gguf_map_drop(m->files[f], bytes, size); // no effect on bytes of other files
    }
}

// Drops the remaining pages of uploaded weights: pages shared by two steps or two weights, and pages that the kernel read ahead.
// Pages for other devices stay, so that each page is read only once.
static void device_drop(const struct placing *p, int d) {
    const struct model *m = p->model;
    const uintptr_t page_size = (uintptr_t) sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ggml_tensor *t = m->weights[i].file;
        for (int64_t f = 0; model_weight_device(m, &m->weights[i]) == d && f < m->n_files; f++) {
            const uintptr_t at = (uintptr_t) t->data, base = (uintptr_t) berth_gguf_map_base(m->files[f]);
            const uintptr_t size = ggml_nbytes(t), top = base + berth_gguf_map_size(m->files[f]);
            if (at >= base && at < top && size <= top - at) {
                const uintptr_t from = at - at % page_size, to = (at + size + page_size - 1) / page_size * page_size;
                const uintptr_t first = max_size(from, base);
                berth_gguf_map_drop(m->files[f], (const void *) first, min_size(to, top) - first);
            }
        }
    }
}

static void headers_drop(const struct model *m) {
    for (int64_t f = 0; f < m->n_files; f++) {
        const char *data = berth_gguf_map_base(m->files[f]);
        if (data != NULL) {
            const size_t head = gguf_get_data_offset(berth_gguf_map_meta(m->files[f]));
            berth_gguf_map_drop(m->files[f], data - head, head);
        }
    }
}

static bool weights_upload(struct placing *p, int d) {
    struct model *m = p->model;
    m->parts[d].buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(m->parts[d].ctx, ggml_backend_dev_buffer_type(p->devices->dev[d]));
    if (m->parts[d].buffer == NULL) {
        return model_fail(p->error, "cannot allocate %zu bytes of weights on %s: %s", m->parts[d].size,
            ggml_backend_dev_name(p->devices->dev[d]), berth_last_error());
    }
    ggml_backend_buffer_set_usage(m->parts[d].buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct model_weight *w = &m->weights[i];
        const size_t size = ggml_nbytes(w->file);
        for (size_t at = 0; model_weight_device(m, w) == d && at < size;) {
            const size_t step = min_size(size - at, STEP_SIZE);
            ggml_backend_tensor_set(*w->slot, (const char *) w->file->data + at, at, step);
            pages_drop(m, (const char *) w->file->data + at, step); // the device has its copy
            at += step;
            if (!progress_add(p, step)) {
                return false;
            }
        }
    }
    device_drop(p, d);
    return true;
}

// With plan_only, the buffer has no memory. The tensors get a placeholder address that is never dereferenced.
static bool weights_plan(struct placing *p, int d) {
    struct model *m = p->model;
    m->parts[d].buffer = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(p->devices->dev[d]), 0);
    if (m->parts[d].buffer == NULL) {
        return model_fail(p->error, "%s", berth_last_error());
    }
    ggml_backend_buffer_set_usage(m->parts[d].buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (struct ggml_tensor *t = ggml_get_first_tensor(m->parts[d].ctx); t != NULL;
         t = ggml_get_next_tensor(m->parts[d].ctx, t)) {
        t->buffer = m->parts[d].buffer;
        t->data = (void *) (uintptr_t) 4096;
    }
    return true;
}

static bool device_fill(struct placing *p, int d, bool plan_only) {
    struct model *m = p->model;
    size_t largest;
    const size_t size = device_bytes(p, d, &largest);
    if (!tensors_make(p, d)) {
        return false;
    }
    if (size == 0) {
        return true;
    }
    m->parts[d].is_mapped = can_map(m, p->devices->dev[d]);
    m->parts[d].size = m->parts[d].is_mapped ? size
                                             : ggml_backend_alloc_ctx_tensors_from_buft_size(
                                                   m->parts[d].ctx, ggml_backend_dev_buffer_type(p->devices->dev[d]));
    if (plan_only) {
        return weights_plan(p, d);
    }
    return m->parts[d].is_mapped ? weights_map(p, d, largest) : weights_upload(p, d);
}

bool weights_place(struct model *m, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
    void *user_data, struct model_error *error) {
    struct placing p = {.model = m, .devices = devices, .progress = progress, .user_data = user_data, .error = error};
    if (!devices_assign(&p)) {
        return false;
    }
    // A tied output on another device needs a copy of the embedding.
    const bool is_copied = m->is_tied && m->layer_device[m->params.n_layer] != devices->n - 1;
    if (is_copied) {
        m->weights[m->n_weights++] = (struct model_weight){.file = m->token_embd, .slot = &m->output, .layer = m->params.n_layer};
    }
    for (size_t i = 0; i < m->n_weights; i++) {
        p.total += ggml_nbytes(m->weights[i].file);
    }
    bool is_uploaded = false;
    for (int d = 0; d < devices->n; d++) {
        if (!device_fill(&p, d, plan_only)) {
            return false;
        }
        is_uploaded |= !plan_only && m->parts[d].size > 0 && !m->parts[d].is_mapped;
    }
    if (is_uploaded) {
        headers_drop(m);
    }
    if (m->is_tied && !is_copied) {
        m->output = m->token_embd;
    }
    return true;
}
