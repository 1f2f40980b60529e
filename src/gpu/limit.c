// SPDX-License-Identifier: MIT
// limit.c: the limit of a GPU's memory that the environment variable BERTH_MEMORY sets for the process.

#include "base/shim/shim.h"
#include "base/size.h"
#include "gpu/gpu.h"

#include <stdlib.h>

// Reads one item, NAME=SIZE or SIZE. Returns true if it is the limit of the device.
static bool item_read(const char *item, size_t n, const char *name, uint64_t *size) {
    char text[128];
    if (n >= sizeof text) {
        shim_log(GGML_LOG_LEVEL_WARN, "BERTH_MEMORY: an item of %zu characters is ignored; at most %zu are possible", n,
            sizeof text - 1);
        return false;
    }
    memcpy(text, item, n);
    text[n] = '\0';
    const char *sign = strchr(text, '=');
    if (!berth_parse_size(sign != NULL ? sign + 1 : text, size) || *size == 0) {
        shim_log(GGML_LOG_LEVEL_WARN, "BERTH_MEMORY: '%s' is ignored, because it is neither a size nor NAME=SIZE, such as %s=12G",
            text, name);
        return false;
    }
    return sign == NULL || ((size_t) (sign - text) == strlen(name) && strncmp(text, name, strlen(name)) == 0);
}

size_t gpu_memory_limit(const char *name) {
    const char *at = getenv("BERTH_MEMORY");
    size_t limit = 0;
    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ",");
        uint64_t size = 0;
        if (item_read(at, n, name, &size)) {
            limit = (size_t) size;
        }
        at += n + (at[n] == ',');
    }
    return limit;
}
