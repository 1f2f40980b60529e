// SPDX-License-Identifier: MIT
// limits.c: the bytes a device may give to a model, and whether the model keeps within them.

#include "fit/limits.h"

#include <stdlib.h>
#include <string.h>

static bool is_same(const struct fit_limit *a, const struct fit_limit *b) {
    return a->name_length == b->name_length && strncmp(a->text, b->text, a->name_length) == 0;
}

static int limit_put(struct fit_limits *limits, const struct fit_limit *limit) {
    struct fit_limit *items = realloc(limits->items, (limits->n + 1) * sizeof *items);
    if (items == NULL) {
        return cli_fail(CLI_FAILURE, "out of memory for %zu limits", limits->n + 1);
    }
    limits->items = items;
    items[limits->n++] = *limit;
    return CLI_OK;
}

static int limit_add(struct fit_limits *limits, const char *command, const char *text) {
    const char *sign = strrchr(text, '=');
    struct fit_limit limit = {.text = text, .name_length = sign != NULL ? (size_t) (sign - text) : 0, .device = FIT_ALL};
    if (sign == text || !cli_parse_size(sign != NULL ? sign + 1 : text, &limit.bytes) || limit.bytes == 0) {
        return cli_usage(
            command, "--memory '%s' is not a number of bytes from 1 to 2^62, or a device, '=' and such a number", text);
    }
    for (size_t i = 0; i < limits->n; i++) {
        if (is_same(&limits->items[i], &limit)) {
            return cli_usage(command, "--memory '%s' and '%s' are for the same", limits->items[i].text, text);
        }
    }
    return limit_put(limits, &limit);
}

int fit_limits_add(struct fit_limits *limits, const char *command, char *text) {
    int code = CLI_OK;
    for (char *next = text; code == CLI_OK && next != NULL; text = next) {
        next = strchr(text, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        code = limit_add(limits, command, text);
    }
    return code;
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

int fit_limits_resolve(struct fit_limits *limits, const struct workbench *m) {
    for (size_t i = 0; i < limits->n; i++) {
        struct fit_limit *limit = &limits->items[i];
        limit->device = fit_limit_device(limit, &m->devices);
        if (limit->device == FIT_NONE) {
            return cli_fail(CLI_FAILURE, "--memory '%s': the model has nothing on a device '%.*s'; 'berth devices' lists them",
                limit->text, (int) limit->name_length, limit->text);
        }
    }
    int code = CLI_OK;
    for (int d = 0; d + 1 < m->devices.n && code == CLI_OK; d++) { // the last is the CPU: the question may be for another host
        size_t n_free = 0, n_total = 0;
        ggml_backend_dev_memory(m->devices.dev[d], &n_free, &n_total);
        if (n_total > 0 && fit_limits_get(limits, d) == NULL) {
            code = limit_put(limits, &(struct fit_limit){.device = d, .bytes = n_free});
        }
    }
    return code;
}

void fit_limits_free(struct fit_limits *limits) {
    free(limits->items);
    *limits = (struct fit_limits){0};
}

uint64_t fit_bytes(const struct workbench *m, int device) {
    uint64_t sum = 0;
    for (int d = 0; d < m->devices.n; d++) {
        const struct session_memory *x = &m->session->memory[d];
        sum += device == FIT_ALL || device == d ? x->weights + x->cache + x->compute + x->work : 0;
    }
    return sum;
}

int fit_limits_passed(const struct fit_limits *limits, const struct workbench *m) {
    for (size_t i = 0; i < limits->n; i++) {
        if (fit_bytes(m, limits->items[i].device) > limits->items[i].bytes) {
            return limits->items[i].device;
        }
    }
    return FIT_NONE;
}

const struct fit_limit *fit_limits_get(const struct fit_limits *limits, int device) {
    for (size_t i = 0; i < limits->n; i++) {
        if (limits->items[i].device == device) {
            return &limits->items[i];
        }
    }
    return NULL;
}
