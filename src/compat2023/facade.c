// SPDX-License-Identifier: MIT
// facade.c: presents a 2023 backend and its buffers as a backend, a device and a buffer type of the current API.
// So the current scheduler's passes, graph copies and context allocation work on 2023 backends.
// A date is the month of the ggml API for which a program was written (BERTH_2023=YYYYMM).

#include "compat2023/compat2023.h"

static const struct gen_facade *of_dev(ggml_backend_dev_t dev) {
    return dev->context;
}

static const struct gen_facade *of_buft(ggml_backend_buffer_type_t buft) {
    return buft->context;
}

static const struct gen_facade *of_backend(ggml_backend_t backend) {
    return backend->context;
}

// ---- the buffer type ----

static const char *buft_name(ggml_backend_buffer_type_t buft) {
    return of_buft(buft)->date->source_name(of_buft(buft)->source);
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    return gen_today(of_buft(buft)->date->alloc(of_buft(buft)->source, size));
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    return of_buft(buft)->date->source_align(of_buft(buft)->source);
}

static size_t buft_max_size(ggml_backend_buffer_type_t buft) {
    return of_buft(buft)->date->source_max_size(of_buft(buft)->source);
}

static size_t buft_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    return of_buft(buft)->date->source_alloc_size(of_buft(buft)->source, tensor);
}

static bool buft_is_host(ggml_backend_buffer_type_t buft) {
    return of_buft(buft)->date->is_host(of_buft(buft)->source);
}

// ---- the device ----

static const char *dev_name(ggml_backend_dev_t dev) {
    return of_dev(dev)->date->name(of_dev(dev)->gen);
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    return of_dev(dev)->date->is_cpu(of_dev(dev)->gen) ? GGML_BACKEND_DEVICE_TYPE_CPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

static ggml_backend_buffer_type_t dev_buft(ggml_backend_dev_t dev) {
    return &((struct gen_facade *) dev->context)->buft;
}

static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    return of_dev(dev)->date->supports_op(of_dev(dev)->gen, op);
}

// If the buffer type belongs to the device's date, the date's function `reads` decides. Otherwise, only a CPU device supports the
// buffer type, and only if its memory is host memory.
static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    const struct gen_facade *own = of_dev(dev);
    const gen_buffer_t buffer = berth_2023_buffer_of_type(buft);
    const bool is_facade = buft != NULL && buft->iface.get_name == buft_name;
    const struct gen_date *date = buffer != NULL ? gen_head(buffer)->date : own->date;
    if (buft == dev_buft(dev)) {
        return true;
    }
    if (date == own->date && (buffer != NULL || is_facade)) {
        return date->reads(own->gen, buffer != NULL ? date->source_of(buffer) : of_buft(buft)->source);
    }
    return own->date->is_cpu(own->gen) && ggml_backend_buft_is_host(buft);
}

// ---- the backend ----

static const char *backend_name(ggml_backend_t backend) {
    return of_backend(backend)->date->name(of_backend(backend)->gen);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return of_backend(backend)->date->compute(of_backend(backend)->gen, graph);
}

static void backend_synchronize(ggml_backend_t backend) {
    of_backend(backend)->date->synchronize(of_backend(backend)->gen);
}

void berth_2023_facade_init(struct gen_facade *facade, const struct gen_date *date, gen_backend_t gen, gen_source_t source) {
    *facade = (struct gen_facade){
        .dev =
            {
                .context = facade,
                .iface = {.get_name = dev_name,
                    .get_type = dev_type,
                    .get_buffer_type = dev_buft,
                    .supports_op = dev_supports_op,
                    .supports_buft = dev_supports_buft},
            },
        .buft =
            {
                .context = facade,
                .device = &facade->dev,
                .iface = {.get_name = buft_name,
                    .alloc_buffer = buft_alloc,
                    .get_alignment = buft_alignment,
                    .get_max_size = buft_max_size,
                    .get_alloc_size = buft_alloc_size,
                    .is_host = buft_is_host},
            },
        .backend =
            {
                .context = facade,
                .device = &facade->dev,
                .iface = {.get_name = backend_name, .synchronize = backend_synchronize, .graph_compute = backend_compute},
            },
        .date = date,
        .gen = gen,
        .source = source,
    };
}

void berth_2023_facade_fini(struct gen_facade *facade) {
    berth_backend_forget(&facade->backend);
}
