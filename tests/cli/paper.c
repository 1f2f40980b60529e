// SPDX-License-Identifier: MIT
// paper.c: two GPUs that exist on paper: Paper0 and Paper1 can be planned for, not allocated and not computed on. Each has as
// many bytes as PAPER_MEMORY says. Loaded through GGML_BACKEND_PATH, so that commands which plan can be tested over several
// devices.

#include "ggml-backend-impl.h"

#include <stdlib.h>

static struct ggml_backend_device devices[2]; // filled by the registry
static struct ggml_backend_buffer_type types[2];
static const char *const names[2] = {"Paper0", "Paper1"};

// ---- memory ----

static const char *type_name(ggml_backend_buffer_type_t type) {
    return names[type - types];
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size) {
    (void) type;
    (void) size;
    return NULL;
}

static size_t type_alignment(ggml_backend_buffer_type_t type) {
    (void) type;
    return 128;
}

// ---- backend ----

static const char *paper_name(ggml_backend_t backend) {
    return names[backend->device - devices];
}

static void paper_free(ggml_backend_t backend) {
    free(backend);
}

static enum ggml_status paper_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    (void) backend;
    (void) graph;
    return GGML_STATUS_FAILED;
}

static ggml_backend_t paper_init(ggml_backend_dev_t device, const char *params) {
    static ggml_guid guid  = {0x70, 0x61, 0x70, 0x65, 0x72, 0x51, 0x0e, 0x4b, 0xa1, 0x37, 0x9c, 0x05, 0xe8, 0x62, 0xd3, 0x1a};
    ggml_backend_t backend = calloc(1, sizeof *backend);
    (void) params;
    if (backend != NULL) {
        backend->guid   = &guid;
        backend->device = device;
        backend->iface  = (struct ggml_backend_i){.get_name = paper_name, .free = paper_free, .graph_compute = paper_compute};
    }
    return backend;
}

// ---- device ----

static const char *device_name(ggml_backend_dev_t device) {
    return names[device - devices];
}

static void device_memory(ggml_backend_dev_t device, size_t *free, size_t *total) {
    const char *text = getenv("PAPER_MEMORY");
    (void) device;
    *free = *total = text != NULL ? (size_t) strtoull(text, NULL, 10) : 0;
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device) {
    (void) device;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void device_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props) {
    props->name = props->description = device_name(device);
    props->type                      = device_type(device);
    device_memory(device, &props->memory_free, &props->memory_total);
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device) {
    return &types[device - devices];
}

static bool device_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op) {
    (void) device;
    (void) op;
    return true;
}

static bool device_supports_type(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
    return type == device_buffer_type(device);
}

// ---- registry ----

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Paper";
}

static size_t reg_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 2;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    return index < 2 ? &devices[index] : NULL;
}

ggml_backend_reg_t ggml_backend_paper_reg(void);

ggml_backend_reg_t ggml_backend_paper_reg(void) {
    static struct ggml_backend_reg reg = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface       = {.get_name = reg_name, .get_device_count = reg_count, .get_device = reg_device},
    };
    for (int i = 0; i < 2; i++) {
        types[i].device = &devices[i];
        types[i].iface  = (struct ggml_backend_buffer_type_i){
             .get_name = type_name, .alloc_buffer = type_alloc, .get_alignment = type_alignment};
        devices[i].reg   = &reg;
        devices[i].iface = (struct ggml_backend_device_i){.get_name = device_name,
            .get_description                                        = device_name,
            .get_memory                                             = device_memory,
            .get_type                                               = device_type,
            .get_props                                              = device_props,
            .init_backend                                           = paper_init,
            .get_buffer_type                                        = device_buffer_type,
            .supports_op                                            = device_supports_op,
            .supports_buft                                          = device_supports_type};
    }
    return &reg;
}

GGML_BACKEND_DL_IMPL(ggml_backend_paper_reg)
