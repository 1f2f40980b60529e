// SPDX-License-Identifier: MIT
// pipeline.c: pipelines by kernel, workgroup and shared memory. A pipeline is created when a graph that needs it is reserved, or
// when the graph is first computed, and kept until the device is closed.

#include "vulkan/device.h"

#include <string.h>

static uint32_t key_hash(const char *name, const uint32_t block[3], uint32_t shared_size) {
    uint32_t h = 2166136261u;
    for (; *name != '\0'; name++) {
        h = (h ^ (unsigned char) *name) * 16777619u;
    }
    const uint32_t words[] = {block[0], block[1], block[2], shared_size};
    for (int i = 0; i < 4; i++) {
        h = (h ^ words[i]) * 16777619u;
    }
    return h ^ h >> 15;
}

static const struct vulkan_shader *shader_find(const char *name) {
    for (const struct vulkan_shader *s = vulkan_shaders; s->name != NULL; s++) {
        if (strcmp(s->name, name) == 0) {
            return s;
        }
    }
    return NULL;
}

// ---- SPIR-V ----

enum {
    HEADER_WORDS = 5,
    OP_EXECUTION_MODE = 16,
    OP_CAPABILITY = 17,
    CAPABILITY_DENORM_PRESERVE = 4464,
    CAPABILITY_SIGNED_ZERO_INF_NAN_PRESERVE = 4466,
    MODE_DENORM_PRESERVE = 4459,
    MODE_SIGNED_ZERO_INF_NAN_PRESERVE = 4461,
    N_MODES = 2,
    CAPABILITY_WORDS = 2,
    MODE_WORDS = 4
};

static uint32_t *words_put(uint32_t *to, const uint32_t *from, size_t n) {
    memcpy(to, from, n * sizeof *from);
    return to + n;
}

// Returns the index of the first execution mode of a module of n words; n: there is none.
static size_t execution_mode_find(const uint32_t *code, size_t n) {
    size_t i = HEADER_WORDS;
    while (i < n && (code[i] & 0xffff) != OP_EXECUTION_MODE && code[i] >> 16 > 0) {
        i += code[i] >> 16;
    }
    return i < n && (code[i] & 0xffff) == OP_EXECUTION_MODE ? i : n;
}

// Copies a module of *n words, and adds execution modes that the device supports: f32 denormals are not flushed to 0; -0, infinities
// and NaN are kept. Without a mode, the driver chooses. Sets *n. The caller frees the copy. NULL: out of memory.
static uint32_t *module_copy(const struct vulkan_device *dev, const uint32_t *code, size_t *n) {
    static const uint32_t capabilities[N_MODES] = {CAPABILITY_DENORM_PRESERVE, CAPABILITY_SIGNED_ZERO_INF_NAN_PRESERVE};
    static const uint32_t modes[N_MODES] = {MODE_DENORM_PRESERVE, MODE_SIGNED_ZERO_INF_NAN_PRESERVE};
    BERTH_ASSERT(*n >= HEADER_WORDS);
    const size_t at = execution_mode_find(code, *n);
    const bool has_mode[N_MODES] = {at < *n && dev->traits.keeps_denormals, at < *n && dev->traits.keeps_specials};
    uint32_t *copy = shim_calloc(*n + N_MODES * (CAPABILITY_WORDS + MODE_WORDS), sizeof *copy);
    if (copy == NULL) {
        return NULL;
    }
    uint32_t *to = words_put(copy, code, HEADER_WORDS);
    for (int i = 0; i < N_MODES; i++) {
        if (has_mode[i]) {
            to = words_put(to, (uint32_t[]){CAPABILITY_WORDS << 16 | OP_CAPABILITY, capabilities[i]}, CAPABILITY_WORDS);
        }
    }
    to = words_put(to, code + HEADER_WORDS, at - HEADER_WORDS);
    for (int i = 0; i < N_MODES; i++) {
        if (has_mode[i]) {
            to = words_put(to, (uint32_t[]){MODE_WORDS << 16 | OP_EXECUTION_MODE, code[at + 1], modes[i], 32}, MODE_WORDS);
        }
    }
    to = words_put(to, code + at, *n - at);
    *n = (size_t) (to - copy);
    return copy;
}

// ---- pipelines ----

// Specialisation constants 0 to 2 are the size of the workgroup, 3 is the number of 32-bit words of shared memory, 4 is the size of
// a subgroup.
static VkResult pipeline_create(struct vulkan_device *dev, struct vulkan_pipeline *p) {
    const uint32_t shared_words = p->shared_size / 4 > 0 ? p->shared_size / 4 : 1;
    const uint32_t values[] = {p->block[0], p->block[1], p->block[2], shared_words, dev->traits.subgroup};
    VkSpecializationMapEntry entries[5];
    for (uint32_t i = 0; i < 5; i++) {
        entries[i] = (VkSpecializationMapEntry){.constantID = i, .offset = i * 4, .size = 4};
    }
    const VkSpecializationInfo special = {.mapEntryCount = 5, .pMapEntries = entries, .dataSize = sizeof values, .pData = values};
    size_t n_words = (size_t) (p->shader->end - p->shader->code);
    uint32_t *words = module_copy(dev, p->shader->code, &n_words);
    if (words == NULL) {
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    const VkShaderModuleCreateInfo code = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = n_words * sizeof *words, .pCode = words};
    VkShaderModule module = VK_NULL_HANDLE;
    VkResult rc = dev->vk.CreateShaderModule(dev->device, &code, NULL, &module);
    shim_free(words);
    if (rc != VK_SUCCESS) {
        return rc;
    }
    const VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_DISPATCH_BASE,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
            .stage = VK_SHADER_STAGE_COMPUTE_BIT,
            .module = module,
            .pName = "main",
            .pSpecializationInfo = &special},
        .layout = dev->layout};
    rc = dev->vk.CreateComputePipelines(dev->device, VK_NULL_HANDLE, 1, &info, NULL, &p->pipeline);
    if (rc != VK_SUCCESS) {
        p->pipeline = VK_NULL_HANDLE;
    }
    atomic_fetch_add(&dev->n_allocs, 1);
    dev->vk.DestroyShaderModule(dev->device, module, NULL);
    return rc;
}

static bool is_same(const struct vulkan_pipeline *p, const char *kernel, const uint32_t block[3], uint32_t shared_size) {
    return memcmp(p->block, block, sizeof p->block) == 0 && p->shared_size == shared_size && strcmp(p->shader->name, kernel) == 0;
}

VkPipeline vulkan_pipeline_get(struct vulkan_device *dev, const char *kernel, const struct gpu_dims *dims) {
    uint32_t block[3];
    for (int i = 0; i < 3; i++) {
        block[i] = dims->block[i] > 0 ? dims->block[i] : 1;
    }
    VkResult rc = VK_SUCCESS;
    VkPipeline found = VK_NULL_HANDLE;
    pthread_mutex_lock(&dev->gpu.lock);
    size_t at = key_hash(kernel, block, dims->shared_size) & (VULKAN_MAX_PIPELINES - 1);
    while (dev->pipelines[at].pipeline != VK_NULL_HANDLE && !is_same(&dev->pipelines[at], kernel, block, dims->shared_size)) {
        at = (at + 1) & (VULKAN_MAX_PIPELINES - 1);
    }
    struct vulkan_pipeline *p = &dev->pipelines[at];
    const struct vulkan_shader *shader = p->pipeline == VK_NULL_HANDLE ? shader_find(kernel) : p->shader;
    if (p->pipeline == VK_NULL_HANDLE && shader != NULL) {
        rc = VK_ERROR_TOO_MANY_OBJECTS;
        if (dev->n_pipelines + 1 < VULKAN_MAX_PIPELINES) { // one slot stays free, so that every search ends
            *p = (struct vulkan_pipeline){.shader = shader, .shared_size = dims->shared_size};
            memcpy(p->block, block, sizeof block);
            rc = pipeline_create(dev, p);
            dev->n_pipelines += rc == VK_SUCCESS;
        }
    }
    found = p->pipeline;
    pthread_mutex_unlock(&dev->gpu.lock);
    if (shader == NULL) {
        shim_error(GGML_STATUS_FAILED, "%s: kernel %s does not exist", dev->name, kernel);
    } else if (rc != VK_SUCCESS) {
        vulkan_fail(dev, rc, "creating the pipeline of kernel %s, workgroup %u x %u x %u, %u bytes shared", kernel, block[0],
            block[1], block[2], dims->shared_size);
    }
    return found;
}

void vulkan_pipelines_free(struct vulkan_device *dev) {
    for (size_t i = 0; i < VULKAN_MAX_PIPELINES; i++) {
        if (dev->pipelines[i].pipeline != VK_NULL_HANDLE) {
            dev->vk.DestroyPipeline(dev->device, dev->pipelines[i].pipeline, NULL);
        }
    }
    memset(dev->pipelines, 0, sizeof dev->pipelines);
    dev->n_pipelines = 0;
}
