// SPDX-License-Identifier: MIT
// backend.c: a backend. Its graphs run on the queue of the device, in the order in which they were submitted; synchronize waits and
// reports failures. graph_optimize enlarges the arena. If graph_optimize was not called, graph_compute enlarges it.

#include "vulkan/backend.h"

#include "backend/backend.h"

#include "ggml-vulkan.h"

#pragma weak berth_backend_fail

static ggml_guid vulkan_guid = {0x56, 0x75, 0x6c, 0x6b, 0x61, 0x6e, 0x4f, 0x0e, 0x8d, 0x1b, 0x62, 0x65, 0x72, 0x74, 0x68, 0x03};

static const char *backend_name(ggml_backend_t backend) {
    return ((struct vulkan_backend *) backend->context)->dev->name;
}

static void backend_free(ggml_backend_t backend) {
    struct vulkan_backend *b = backend->context;
    struct vulkan_device *dev = b->dev;
    if (b->done != VK_NULL_HANDLE) {
        vulkan_backend_wait(b);
        dev->vk.DestroySemaphore(dev->device, b->done, NULL);
    }
    for (int i = 0; i < GPU_MAX_PLANS; i++) {
        vulkan_memory_give_back(dev, &b->records[i].args);
    }
    vulkan_memory_give_back(dev, &b->arena);
    if (b->pool != VK_NULL_HANDLE) {
        dev->vk.DestroyCommandPool(dev->device, b->pool, NULL); // also frees the command buffers
    }
    gpu_plans_fini(&b->plans);
    shim_free(b);
    shim_free(backend);
}

// Records an error of a call that returns nothing. The next synchronize or compute of this backend reports it.
static void record_failure(ggml_backend_t backend, VkResult rc, const char *what) {
    struct vulkan_backend *b = backend->context;
    if (rc == VK_SUCCESS) {
        return;
    }
    vulkan_fail(b->dev, rc, "%s", what);
    if (berth_backend_fail != NULL) {
        berth_backend_fail(backend, "%s: %s failed", b->dev->name, what);
    } else {
        vulkan_device_defer_error(b->dev);
    }
}

static void backend_synchronize(ggml_backend_t backend) {
    struct vulkan_backend *b = backend->context;
    if (vulkan_device_enter_or_defer(b->dev)) {
        record_failure(backend, vulkan_backend_wait(b), "waiting for the device");
    }
}

static enum ggml_status graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return vulkan_compute(backend->context, graph);
}

// Schedulers call this function before they allocate buffers. If the arena cannot be allocated, the next buffer allocation of the
// device fails and reports the reason.
static void graph_optimize(ggml_backend_t backend, struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params) {
    struct vulkan_backend *b = backend->context;
    gpu_plans_keep(&b->plans, graph, params);
    const size_t size = gpu_graph_work_size(&b->plans, graph);
    if (size <= b->arena.size || vulkan_device_enter(b->dev) != GGML_STATUS_SUCCESS) {
        return;
    }
    if (!vulkan_arena_grow(b, size)) {
        gpu_arena_fail(&b->dev->gpu, size, graph);
    }
}

// ---- events: a timeline semaphore with the value that it reaches ----

struct event {
    VkSemaphore semaphore;
    uint64_t value;
};

static ggml_backend_event_t event_new(ggml_backend_dev_t dev) {
    struct vulkan_device *d = vulkan_device_of(dev);
    if (vulkan_device_enter(d) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    struct event *own = shim_calloc(1, sizeof *own);
    ggml_backend_event_t e = shim_calloc(1, sizeof *e);
    VkResult rc = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (own != NULL && e != NULL) {
        rc = vulkan_semaphore_new(d, &own->semaphore);
    }
    if (rc != VK_SUCCESS) {
        vulkan_fail(d, rc, "creating an event");
        shim_free(own);
        shim_free(e);
        return NULL;
    }
    *e = (struct ggml_backend_event){.device = dev, .context = own};
    return e;
}

static void event_wait_host(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    struct vulkan_device *d = vulkan_device_of(dev);
    const struct event *own = event->context;
    if (!vulkan_device_enter_or_defer(d)) {
        return;
    }
    const VkResult rc = vulkan_wait(d, own->semaphore, own->value);
    if (rc != VK_SUCCESS) {
        vulkan_fail(d, rc, "waiting for an event");
        vulkan_device_defer_error(d);
    }
}

static void event_free(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    struct vulkan_device *d = vulkan_device_of(dev);
    struct event *own = event->context;
    if (!atomic_load(&d->is_lost)) {
        vulkan_wait(d, own->semaphore, own->value);
    }
    d->vk.DestroySemaphore(d->device, own->semaphore, NULL);
    shim_free(own);
    shim_free(event);
}

static void event_record(ggml_backend_t backend, ggml_backend_event_t event) {
    struct vulkan_backend *b = backend->context;
    struct event *own = event->context;
    if (!vulkan_device_enter_or_defer(b->dev)) {
        return;
    }
    pthread_mutex_lock(&b->dev->gpu.lock);
    const VkResult rc = vulkan_submit_locked(b->dev, VK_NULL_HANDLE, own->semaphore, own->value + 1);
    own->value += rc == VK_SUCCESS;
    pthread_mutex_unlock(&b->dev->gpu.lock);
    record_failure(backend, rc, "recording an event");
}

// All backends of a device submit to one queue, and recorded commands begin with a barrier, so work that is submitted later waits
// for the event already. For an event of another device, the host waits.
static void event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    const struct vulkan_backend *b = backend->context;
    if (event->device != &b->dev->gpu.ggml) {
        event->device->iface.event_synchronize(event->device, event);
    }
}

static const struct ggml_backend_i backend_iface = {
    .get_name = backend_name,
    .free = backend_free,
    .synchronize = backend_synchronize,
    .graph_compute = graph_compute,
    .event_record = event_record,
    .event_wait = event_wait,
    .graph_optimize = graph_optimize,
};

ggml_backend_t vulkan_backend_new(struct vulkan_device *dev) {
    if (vulkan_device_enter(dev) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    struct vulkan_backend *b = shim_calloc(1, sizeof *b);
    ggml_backend_t backend = shim_calloc(1, sizeof *backend);
    if (b == NULL || backend == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a backend", dev->name);
        shim_free(b);
        shim_free(backend);
        return NULL;
    }
    b->dev = dev;
    b->plans.dev = &dev->gpu;
    b->plans.no_fusion = gpu_env_is_set("BERTH_VULKAN_NO_FUSION");
    *backend = (struct ggml_backend){.guid = &vulkan_guid, .iface = backend_iface, .device = &dev->gpu.ggml, .context = b};
    const VkCommandPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = dev->family};
    VkResult rc = dev->vk.CreateCommandPool(dev->device, &info, NULL, &b->pool);
    if (rc != VK_SUCCESS) {
        b->pool = VK_NULL_HANDLE;
    } else {
        rc = vulkan_semaphore_new(dev, &b->done);
    }
    if (rc != VK_SUCCESS) {
        vulkan_fail(dev, rc, "creating a backend");
        backend_free(backend);
        return NULL;
    }
    return backend;
}

bool ggml_backend_is_vk(ggml_backend_t backend) {
    return backend != NULL && backend->guid == &vulkan_guid;
}

size_t vulkan_backend_n_allocs(ggml_backend_t backend) {
    return ggml_backend_is_vk(backend) ? atomic_load(&((struct vulkan_backend *) backend->context)->dev->n_allocs) : 0;
}

size_t vulkan_backend_explain(ggml_backend_t backend, char *buf, size_t size) {
    if (!ggml_backend_is_vk(backend) || buf == NULL || size == 0) {
        return 0;
    }
    return gpu_plans_explain(&((const struct vulkan_backend *) backend->context)->plans, buf, size);
}

// ---- the device's interface ----

static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *n_total) {
    *n_free = *n_total = 0;
    if (!atomic_load(&vulkan_device_of(dev)->is_lost)) {
        vulkan_memory_query(vulkan_device_of(dev), n_free, n_total);
    }
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    return vulkan_device_of(dev)->traits.is_integrated ? GGML_BACKEND_DEVICE_TYPE_IGPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    struct vulkan_device *d = vulkan_device_of(dev);
    *props = (struct ggml_backend_dev_props){
        .name = d->name,
        .description = d->description,
        .type = dev_type(dev),
        .device_id = d->pci[0] != '\0' ? d->pci : NULL,
        .caps = {.async = true, .events = true, .mmap_support = true},
    };
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params) {
    (void) params;
    return vulkan_backend_new(vulkan_device_of(dev));
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    return buft == &vulkan_device_of(dev)->gpu.buft;
}

const struct ggml_backend_device_i vulkan_device_iface = {
    .get_name = gpu_dev_name,
    .get_description = gpu_dev_description,
    .get_memory = dev_memory,
    .get_type = dev_type,
    .get_props = dev_props,
    .init_backend = dev_init,
    .get_buffer_type = gpu_dev_buft,
    .supports_op = gpu_dev_supports_op,
    .supports_buft = dev_supports_buft,
    .offload_op = gpu_dev_offload_op,
    .event_new = event_new,
    .event_free = event_free,
    .event_synchronize = event_wait_host,
};
