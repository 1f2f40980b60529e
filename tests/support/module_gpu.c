// SPDX-License-Identifier: MIT
// module_gpu.c: a loadable backend with one device of type GPU. Tests compile it with support/module.h. The environment variable
// MODULE_GPU_INITS counts its initialisations. While it is being loaded, it queries the registry in the same thread. With
// -DASKS_IN_THREAD it also queries in a second thread and waits for it.

#include "ggml-backend-impl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Module";
}

static const char *dev_name(ggml_backend_dev_t dev) {
    (void) dev;
    return "Module0";
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static struct ggml_backend_device dev = {.iface = {.get_name = dev_name, .get_description = dev_name, .get_type = dev_type}};

static size_t reg_dev_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 1;
}

static ggml_backend_dev_t reg_dev(ggml_backend_reg_t reg, size_t index) {
    (void) index;
    dev.reg = reg;
    return &dev;
}

static struct ggml_backend_reg reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = {.get_name = reg_name, .get_device_count = reg_dev_count, .get_device = reg_dev},
};

static void *query(void *arg) {
    (void) arg;
    ggml_backend_reg_count();
    ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_reg_by_name("Module");
    return NULL;
}

static ggml_backend_reg_t reg_get(void) {
    const char *before = getenv("MODULE_GPU_INITS");
    char text[16];
    snprintf(text, sizeof text, "%d", (before != NULL ? atoi(before) : 0) + 1);
    setenv("MODULE_GPU_INITS", text, 1);
    query(NULL);
#ifdef ASKS_IN_THREAD
    pthread_t thread;
    if (pthread_create(&thread, NULL, query, NULL) == 0) {
        pthread_join(thread, NULL);
    }
#endif
    return &reg;
}

GGML_BACKEND_DL_IMPL(reg_get)
