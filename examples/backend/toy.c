// SPDX-License-Identifier: MIT
// toy.c: a minimal backend with one device, "Toy0", which adds and multiplies f32 tensors in host memory.
// docs/dev/adding-a-backend.md explains it. This command builds it as a library that programs load:
//     cc -std=c11 -shared -fPIC -Iinclude -DGGML_BACKEND_DL -o libggml-toy.so examples/backend/toy.c

#include "ggml-backend-impl.h"

#include <stdlib.h>

static struct ggml_backend_device toy_device; // filled at the end of the file

// ---- the backend: runs graphs ----

static const char *toy_name(ggml_backend_t backend) {
    (void) backend;
    return "Toy";
}

static void toy_free(ggml_backend_t backend) {
    free(backend);
}

static bool is_floats(const struct ggml_tensor *t) {
    return t != NULL && t->type == GGML_TYPE_F32 && ggml_is_contiguous(t);
}

// Computes one node. The scheduler only assigns nodes that toy_dev_supports_op accepts.
static void toy_run(struct ggml_tensor *node) {
    const float *a = node->src[0]->data, *b = node->src[1]->data;
    float *out = node->data;
    const int64_t n = ggml_nelements(node);
    for (int64_t i = 0; i < n; i++) {
        out[i] = node->op == GGML_OP_ADD ? a[i] + b[i] : a[i] * b[i];
    }
}

static enum ggml_status toy_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    (void) backend;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (node->op == GGML_OP_ADD || node->op == GGML_OP_MUL) {
            toy_run(node);
        } else if (!ggml_backend_dev_supports_op(&toy_device, node)) {
            return GGML_STATUS_FAILED;
        }
    }
    return GGML_STATUS_SUCCESS;
}

static ggml_backend_t toy_init(ggml_backend_dev_t device, const char *params) {
    // Programs identify a backend by its GUID. Use 16 random bytes.
    static ggml_guid guid = {0x74, 0x6f, 0x79, 0x1b, 0x3c, 0x5d, 0x4e, 0x21, 0x90, 0xa4, 0x0f, 0x66, 0xd2, 0x13, 0x8e, 0x07};
    (void) params;
    ggml_backend_t backend = calloc(1, sizeof *backend);
    if (backend == NULL) {
        return NULL;
    }
    backend->guid = &guid;
    backend->device = device;
    backend->iface = (struct ggml_backend_i){.get_name = toy_name, .free = toy_free, .graph_compute = toy_compute};
    return backend;
}

// ---- the device: its properties and capabilities ----

static const char *toy_dev_name(ggml_backend_dev_t device) {
    (void) device;
    return "Toy0";
}

static const char *toy_dev_description(ggml_backend_dev_t device) {
    (void) device;
    return "A device that adds and multiplies";
}

static void toy_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total) {
    (void) device;
    *free = 0; // the device uses host memory, whose size the CPU device reports
    *total = 0;
}

static enum ggml_backend_dev_type toy_dev_type(ggml_backend_dev_t device) {
    (void) device;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void toy_dev_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props) {
    props->name = toy_dev_name(device);
    props->description = toy_dev_description(device);
    props->type = toy_dev_type(device);
    toy_dev_memory(device, &props->memory_free, &props->memory_total);
}

static ggml_backend_buffer_type_t toy_dev_buffer_type(ggml_backend_dev_t device) {
    (void) device;
    return ggml_backend_cpu_buffer_type();
}

static bool toy_dev_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op) {
    (void) device;
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return true; // nothing to compute
        case GGML_OP_ADD:
        case GGML_OP_MUL:
            return is_floats(op) && is_floats(op->src[0]) && is_floats(op->src[1]) && ggml_are_same_shape(op->src[0], op->src[1]);
        default: return false;
    }
}

static bool toy_dev_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t buft) {
    (void) device;
    return ggml_backend_buft_is_host(buft);
}

// ---- the registry: the entry point of the library ----

static const char *toy_reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Toy";
}

static size_t toy_reg_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 1;
}

static ggml_backend_dev_t toy_reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    return index == 0 ? &toy_device : NULL;
}

ggml_backend_reg_t ggml_backend_toy_reg(void);

ggml_backend_reg_t ggml_backend_toy_reg(void) {
    static struct ggml_backend_reg reg = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = toy_reg_name, .get_device_count = toy_reg_count, .get_device = toy_reg_device},
    };
    toy_device.reg = &reg;
    return &reg;
}

static struct ggml_backend_device toy_device = {
    .iface =
        {
            .get_name = toy_dev_name,
            .get_description = toy_dev_description,
            .get_memory = toy_dev_memory,
            .get_type = toy_dev_type,
            .get_props = toy_dev_props,
            .init_backend = toy_init,
            .get_buffer_type = toy_dev_buffer_type,
            .supports_op = toy_dev_supports_op,
            .supports_buft = toy_dev_supports_buft,
        },
};

GGML_BACKEND_DL_IMPL(ggml_backend_toy_reg)
