// SPDX-License-Identifier: MIT
// paper.c: two GPUs that exist on paper: Paper0 and Paper1 can be planned for, not allocated and not computed on. Each has as
// many bytes as PAPER_MEMORY says. Loaded through GGML_BACKEND_PATH, so that commands which plan can be tested over several
// devices.

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

ggml_backend_reg_t ggml_backend_paper_reg(void);

ggml_backend_reg_t ggml_backend_paper_reg(void) {
    static struct ggml_backend_reg reg = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface       = {.get_name = reg_name, .get_device_count = reg_count, .get_device = reg_device},
    };
    const char *memory = getenv("PAPER_MEMORY");
    for (int i = 0; i < 2; i++) {
        device_init(&devices[i], i == 0 ? "Paper0" : "Paper1");
        devices[i].is_paper = true;
        devices[i].align    = 128;
        devices[i].n_free = devices[i].n_total = memory != NULL ? (size_t) strtoull(memory, NULL, 10) : 0;
        devices[i].dev.reg                     = &reg;
    }
    return &reg;
}

GGML_BACKEND_DL_IMPL(ggml_backend_paper_reg)
