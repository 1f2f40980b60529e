// SPDX-License-Identifier: MIT
// limits.c: manages the memory limits of devices, and checks whether a model stays within them.

#include "base/base.h"
#include "fit/fit.h"

#include <string.h>

static bool limit_put(struct fit_limits *limits, const struct fit_limit *limit, struct model_error *error) {
    struct fit_limit *items = berth_realloc(limits->items, (limits->n + 1) * sizeof *items);
    if (items == NULL) {
        return model_fail(error, "out of memory for %zu limits", limits->n + 1);
    }
    limits->items = items;
    items[limits->n++] = *limit;
    return true;
}

enum ggml_status fit_limits_add(
    struct fit_limits *limits, const char *text, size_t name_length, uint64_t bytes, struct model_error *error) {
    for (size_t i = 0; i < limits->n; i++) {
        const struct fit_limit *other = &limits->items[i];
        if (other->name_length == name_length && strncmp(other->text, text, name_length) == 0) {
            model_fail(error, "--memory '%s' and --memory '%s' limit the same device", other->text, text);
            return GGML_STATUS_FAILED;
        }
    }
    const struct fit_limit limit = {.text = text, .name_length = name_length, .device = FIT_ALL, .bytes = bytes};
    return limit_put(limits, &limit, error) ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

int fit_limit_device(const struct fit_limit *limit, const struct model_devices *devices) {
    if (limit->text == NULL || limit->name_length == 0) {
        return limit->device;
    }
    for (int d = 0; d < devices->n; d++) {
        const char *name = ggml_backend_dev_name(devices->dev[d]);
        if (strlen(name) == limit->name_length && strncmp(name, limit->text, limit->name_length) == 0) {
            return d;
        }
    }
    return FIT_NONE;
}

bool fit_limits_resolve(struct fit_limits *limits, const struct model_devices *devices, struct model_error *error) {
    for (size_t i = 0; i < limits->n; i++) {
        struct fit_limit *limit = &limits->items[i];
        limit->device = fit_limit_device(limit, devices);
        if (limit->device == FIT_NONE) {
            return model_fail(error, "--memory '%s': the model does not use a device '%.*s'; 'berth devices' lists the devices",
                limit->text, (int) limit->name_length, limit->text);
        }
    }
    // The CPU (the last device) gets no limit, because the user may ask about another computer with more main memory.
    for (int d = 0; d + 1 < devices->n; d++) {
        size_t n_free = 0, n_total = 0;
        ggml_backend_dev_memory(devices->dev[d], &n_free, &n_total);
        if (n_total > 0 && fit_limits_get(limits, d) == NULL &&
            !limit_put(limits, &(struct fit_limit){.device = d, .bytes = n_free}, error)) {
            return false;
        }
    }
    return true;
}

uint64_t fit_bytes(const struct workbench *m, int device) {
    uint64_t sum = 0;
    for (int d = 0; d < m->devices.n; d++) {
        const struct session_memory *x = &m->session->memory[d];
        if (device == FIT_ALL || device == d) {
            sum += x->weights + x->cache + x->compute + x->work;
        }
    }
    return sum;
}

int fit_limits_exceeded(const struct fit_limits *limits, const struct workbench *m) {
    for (size_t i = 0; i < limits->n; i++) {
        if (fit_bytes(m, limits->items[i].device) > limits->items[i].bytes) {
            return limits->items[i].device;
        }
    }
    return FIT_NONE;
}

struct fit_limit *fit_limits_get(const struct fit_limits *limits, int device) {
    for (size_t i = 0; i < limits->n; i++) {
        if (limits->items[i].device == device) {
            return &limits->items[i];
        }
    }
    return NULL;
}
