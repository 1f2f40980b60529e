// SPDX-License-Identifier: MIT
// device.c: the CPU as a device, its registry entry, and the functions for a loader of shared libraries. Buffers come from
// libggml-base.

#include "cpu/cpu.h"

#include "berth-cpu.h"
#include "ggml-backend-impl.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- information from the system ----

// Copies the value of `key` from a file of lines "key: value" to out; "" if the key is missing. stdio would allocate memory.
static void proc_line(const char *path, const char *key, char *out, size_t out_size) {
    char text[4096];
    size_t n = 0;
    out[0] = '\0';
    // One read may return only a part of a file in /proc. The first 4095 bytes contain the keys.
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t got = 1; file >= 0 && got > 0 && n<sizeof text - 1; n += got> 0 ? (size_t) got : 0) {
        got = read(file, text + n, sizeof text - 1 - n);
    }
    if (file >= 0) {
        close(file);
    }
    text[n] = '\0';
    for (char *line = text; *line != '\0'; line += *line == '\n') {
        const size_t size = strcspn(line, "\n");
        char *value = memchr(line, ':', size);
        if (value != NULL && strncmp(line, key, strlen(key)) == 0) {
            value += 1 + strspn(value + 1, " \t");
            snprintf(out, out_size, "%.*s", (int) (line + size - value), value);
            return;
        }
        line += size;
    }
}

static char description[128];

static void device_describe(void) {
    proc_line("/proc/cpuinfo", "model name", description, sizeof description);
    if (description[0] == '\0') {
        strcpy(description, "CPU");
    }
}

// ---- the device ----

static const char *dev_name(ggml_backend_dev_t dev) {
    (void) dev;
    return "CPU";
}

static const char *dev_description(ggml_backend_dev_t dev) {
    (void) dev;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, device_describe);
    return description;
}

// *n_total: bytes of the machine's memory. *n_free: bytes available without swapping.
static void dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *n_total) {
    (void) dev;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *n_total = pages > 0 && page > 0 ? (size_t) pages * (size_t) page : 0;
    char kib[64];
    proc_line("/proc/meminfo", "MemAvailable", kib, sizeof kib);
    const unsigned long long n = strtoull(kib, NULL, 10);
    *n_free = n > 0 ? (size_t) n * 1024 : *n_total;
    if (*n_total < *n_free) {
        *n_total = *n_free;
    }
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_CPU;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    *props = (struct ggml_backend_dev_props){
        .name = dev_name(dev),
        .description = dev_description(dev),
        .type = dev_type(dev),
        .caps = {.buffer_from_host_ptr = true, .mmap_support = true},
    };
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params) {
    (void) dev;
    (void) params;
    return ggml_backend_cpu_init();
}

static ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev) {
    (void) dev;
    return ggml_backend_cpu_buffer_type();
}

static ggml_backend_buffer_t dev_buffer_from_ptr(ggml_backend_dev_t dev, void *ptr, size_t size, size_t max_tensor_size) {
    (void) dev;
    (void) max_tensor_size;
    return ggml_backend_cpu_buffer_from_ptr(ptr, size);
}

static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    (void) dev;
    return op != NULL && cpu_supports_op(op);
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    (void) dev;
    return ggml_backend_buft_is_host(buft);
}

// ---- the registry entry ----

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "CPU";
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    return index == 0 ? cpu_device() : NULL;
}

#define MAX_FEATURES 32
static struct ggml_backend_feature features[MAX_FEATURES];

static void list_features(void) {
    const struct cpu_features *f = cpu_features();
    const struct {
        const char *name;
        bool has;
    } all[] = {
        {"SSE3", f->sse3},
        {"SSSE3", f->ssse3},
        {"AVX", f->avx},
        {"AVX_VNNI", f->avx_vnni},
        {"AVX2", f->avx2},
        {"F16C", f->f16c},
        {"FMA", f->fma},
        {"BMI2", f->bmi2},
        {"AVX512", f->avx512},
        {"AVX512_VBMI", f->avx512_vbmi},
        {"AVX512_VNNI", f->avx512_vnni},
        {"AVX512_BF16", f->avx512_bf16},
        {"AMX_INT8", f->amx_int8},
        {"NEON", f->neon},
        {"ARM_FMA", f->arm_fma},
        {"FP16_VA", f->fp16_va},
        {"MATMUL_INT8", f->i8mm},
        {"SVE", f->sve},
        {"DOTPROD", f->dotprod},
        {"SME", f->sme},
    };
    _Static_assert(sizeof all / sizeof all[0] + 2 < MAX_FEATURES, "room for the tier and the terminator");
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].has) {
            features[n++] = (struct ggml_backend_feature){.name = all[i].name, .value = "1"};
        }
    }
    features[n++] = (struct ggml_backend_feature){.name = "BERTH", .value = berth_cpu_isa()};
    features[n] = (struct ggml_backend_feature){NULL, NULL};
}

// The list ends with a NULL name.
static struct ggml_backend_feature *reg_features(ggml_backend_reg_t reg) {
    (void) reg;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_features);
    return features;
}

static ggml_backend_buffer_type_t *dev_extra_bufts(ggml_backend_dev_t dev) {
    (void) dev;
    static ggml_backend_buffer_type_t none[] = {NULL};
    return none;
}

static const struct shim_proc procs[] = {
    {"ggml_backend_set_n_threads", (shim_proc_t) ggml_backend_cpu_set_n_threads},
    {"ggml_backend_dev_get_extra_bufts", (shim_proc_t) dev_extra_bufts},
    {"ggml_backend_get_features", (shim_proc_t) reg_features},
    {"ggml_backend_set_abort_callback", (shim_proc_t) ggml_backend_cpu_set_abort_callback},
    {"ggml_backend_cpu_numa_init", (shim_proc_t) ggml_numa_init},
    {"ggml_backend_cpu_is_numa", (shim_proc_t) ggml_is_numa},
    {"ggml_backend_cpu_set_use_ref", (shim_proc_t) ggml_backend_cpu_set_use_ref},
    {"ggml_backend_cpu_set_threadpool", (shim_proc_t) ggml_backend_cpu_set_threadpool},
    {"ggml_threadpool_new", (shim_proc_t) ggml_threadpool_new},
    {"ggml_threadpool_free", (shim_proc_t) ggml_threadpool_free},
    {"berth_cpu_work_size", (shim_proc_t) berth_cpu_work_size},
    {"berth_cpu_graph_work_size", (shim_proc_t) berth_cpu_graph_work_size},
    {"berth_cpu_reserve_size", (shim_proc_t) berth_cpu_reserve_size},
    {"berth_cpu_reserve", (shim_proc_t) berth_cpu_reserve},
    {"berth_backend_reserve_size", (shim_proc_t) berth_cpu_reserve_size},
    {"berth_backend_reserve", (shim_proc_t) berth_cpu_reserve},
    {"berth_cpu_set_batch_invariant", (shim_proc_t) berth_cpu_set_batch_invariant},
    {"berth_cpu_isa", (shim_proc_t) berth_cpu_isa},
    {"berth_cpu_op_tier", (shim_proc_t) berth_cpu_op_tier},
};

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name) {
    (void) reg;
    return shim_proc_find(procs, sizeof procs / sizeof procs[0], name);
}

static struct ggml_backend_reg cpu_reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface =
        {
            .get_name = reg_name,
            .get_device_count = reg_device_count,
            .get_device = reg_device,
            .get_proc_address = reg_proc_address,
        },
};

static struct ggml_backend_device device = {
    .iface =
        {
            .get_name = dev_name,
            .get_description = dev_description,
            .get_memory = dev_memory,
            .get_type = dev_type,
            .get_props = dev_props,
            .init_backend = dev_init,
            .get_buffer_type = dev_buffer_type,
            .buffer_from_host_ptr = dev_buffer_from_ptr,
            .supports_op = dev_supports_op,
            .supports_buft = dev_supports_buft,
        },
    .reg = &cpu_reg,
};

ggml_backend_dev_t cpu_device(void) {
    return &device;
}

ggml_backend_reg_t ggml_backend_cpu_reg(void) {
    cpu_init();
    return &cpu_reg;
}

// ---- loading: for shared libraries only, because statically linked backends would define the same names ----

#ifdef GGML_BACKEND_SHARED
GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);
GGML_BACKEND_API int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void) {
    return ggml_backend_cpu_reg();
}

// One build runs on every machine. The score counts the tiers that this machine supports.
int ggml_backend_score(void) {
    int score = 1;
    for (const struct cpu_tier *t = cpu_tiers; t != NULL && t->name != NULL; t++) {
        score += t->has();
    }
    return score;
}
#endif
