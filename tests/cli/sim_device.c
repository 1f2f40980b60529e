// SPDX-License-Identifier: MIT
// sim_device.c: two simulated GPUs, Paper0 and Paper1, for tests of commands that plan on several devices. They can be planned for,
// but not allocated or computed on. PAPER_MEMORY sets their memory in bytes. With PAPER_REAL they compute on the CPU and report a
// fusion. With PAPER_OFFLOAD=N they compute batches of at least N tokens with weights of the host. GGML_BACKEND_PATH loads them.

#include "support/device.h"

static struct device devices[2];

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
    return index < 2 ? &devices[index].dev : NULL;
}

static size_t explain(ggml_backend_t backend, char *text, size_t size) {
    (void) backend;
    return (size_t) snprintf(text, size, "ink with paper 3\nfolds 1\n");
}

static void *reg_proc(ggml_backend_reg_t reg, const char *name) {
    static size_t (*const proc)(ggml_backend_t, char *, size_t) = explain;
    void *address = NULL;
    (void) reg;
    if (getenv("PAPER_REAL") != NULL && strcmp(name, "berth_backend_explain") == 0) {
        memcpy(&address, &proc, sizeof address);
    }
    return address;
}

ggml_backend_reg_t ggml_backend_paper_reg(void);

ggml_backend_reg_t ggml_backend_paper_reg(void) {
    static struct ggml_backend_reg reg = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = reg_name, .get_device_count = reg_count, .get_device = reg_device, .get_proc_address = reg_proc},
    };
    const char *memory = getenv("PAPER_MEMORY");
    for (int i = 0; i < 2; i++) {
        device_init(&devices[i], i == 0 ? "Paper0" : "Paper1");
        devices[i].is_paper = getenv("PAPER_REAL") == NULL;
        devices[i].cpu = devices[i].is_paper ? NULL : ggml_backend_cpu_init();
        devices[i].offload_batch = getenv("PAPER_OFFLOAD") != NULL ? atoi(getenv("PAPER_OFFLOAD")) : 0;
        devices[i].align = 128;
        devices[i].n_free = devices[i].n_total = memory != NULL ? (size_t) strtoull(memory, NULL, 10) : 0;
        devices[i].dev.reg = &reg;
    }
    return &reg;
}

GGML_BACKEND_DL_IMPL(ggml_backend_paper_reg)
