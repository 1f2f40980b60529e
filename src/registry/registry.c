// SPDX-License-Identifier: MIT
// registry.c: the process-wide table of registries and devices. Any thread may use it.
// The lock is not held while a function of a backend runs, because backends may query the registry.
// Invariant: each registry and each device is listed once; the devices of a registry are removed with it.

#include "registry/registry.h"

#include "base/lock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

struct entry {
    ggml_backend_reg_t reg;
    void *handle; // library to close when the registry is removed, or NULL
};

static struct berth_lock table_lock = BERTH_LOCK_INIT;
static struct entry *regs;
static size_t n_regs, n_regs_cap;
static ggml_backend_dev_t *devs;
static size_t n_devs, n_devs_cap;
BERTH_LOCK_ACROSS_FORK(table_lock, 102)

// ---- functions called under the lock ----

static size_t reg_at(ggml_backend_reg_t reg) {
    size_t i = 0;
    while (i < n_regs && regs[i].reg != reg) {
        i++;
    }
    return i;
}

static bool dev_is_listed(ggml_backend_dev_t dev) {
    size_t i = 0;
    while (i < n_devs && devs[i] != dev) {
        i++;
    }
    return i < n_devs;
}

static void dev_append(ggml_backend_dev_t dev) {
    if (!dev_is_listed(dev)) {
        devs[n_devs++] = dev;
    }
}

static bool reg_append(ggml_backend_reg_t reg, void *handle, const ggml_backend_dev_t *list, size_t n, bool *known) {
    *known = reg_at(reg) < n_regs;
    if (*known) {
        return true;
    }
    if (!BERTH_GROW(&regs, &n_regs_cap, n_regs + 1) || !BERTH_GROW(&devs, &n_devs_cap, n_devs + n)) {
        return false;
    }
    regs[n_regs++] = (struct entry){reg, handle};
    for (size_t i = 0; i < n; i++) {
        dev_append(list[i]);
    }
    return true;
}

// ---- adding and removing ----

bool berth_registry_add(ggml_backend_reg_t reg, void *handle, bool *known) {
    const size_t n = ggml_backend_reg_dev_count(reg);
    ggml_backend_dev_t *list = n > 0 ? berth_calloc(n, sizeof *list) : NULL;
    size_t n_there = 0;
    bool ok = n == 0 || list != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ggml_backend_dev_t dev = ggml_backend_reg_dev_get(reg, i);
        if (dev != NULL) {
            list[n_there++] = dev;
        }
    }
    *known = false;
    if (ok) {
        berth_lock_take(&table_lock);
        ok = reg_append(reg, handle, list, n_there, known);
        berth_lock_drop(&table_lock);
    }
    berth_free(list);
    if (!ok) {
        berth_fail(
            GGML_STATUS_ALLOC_FAILED, "out of memory to register backend %s with %zu devices", ggml_backend_reg_name(reg), n);
    }
    return ok;
}

void ggml_backend_register(ggml_backend_reg_t reg) {
    if (reg == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_register: the registry is NULL");
        return;
    }
    berth_registry_ready(BERTH_REGISTRY_BUILT_IN);
    bool known;
    const bool ok = berth_registry_add(reg, NULL, &known);
    (void) ok; // an error has been logged
}

void ggml_backend_device_register(ggml_backend_dev_t device) {
    if (device == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_device_register: the device is NULL");
        return;
    }
    berth_registry_ready(BERTH_REGISTRY_BUILT_IN);
    berth_lock_take(&table_lock);
    const bool ok = BERTH_GROW(&devs, &n_devs_cap, n_devs + 1);
    if (ok) {
        dev_append(device);
    }
    berth_lock_drop(&table_lock);
    if (!ok) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory to register device %s", ggml_backend_dev_name(device));
    }
}

// ---- one composite device in place of all GPUs (BERTH_SPLIT) ----

static pthread_mutex_t split_lock = PTHREAD_MUTEX_INITIALIZER; // taken before table_lock
// True while this thread holds split_lock or waits for it. A backend that this thread then calls may query the registry. The
// query must not take split_lock again.
static BERTH_LATE_LOCAL bool has_split_lock;
// Number of devices at the last failed attempt to make the composite device. SIZE_MAX: no further attempt is needed.
static size_t n_devs_tried;

// Puts the composite device into the list of devices, in place of its hidden parts. Returns false if one of these parts is no
// longer listed.
static bool split_list(ggml_backend_dev_t dev) {
    size_t n = 0, n_hidden, n_there = 0;
    berth_split_hidden(&n_hidden);
    berth_lock_take(&table_lock);
    for (size_t i = 0; i < n_devs; i++) {
        n_there += berth_split_has(devs[i]);
    }
    if (n_there == n_hidden) {
        for (size_t i = 0; i < n_devs; i++) {
            if (!berth_split_has(devs[i])) {
                devs[n++] = devs[i];
            }
        }
        memmove(devs + 1, devs, n * sizeof devs[0]); // GPUs are first in the list
        devs[0] = dev;
        n_devs = n + 1;
    }
    berth_lock_drop(&table_lock);
    return n_there == n_hidden;
}

static void split_try_make(void) {
    if (has_split_lock) {
        return;
    }
    has_split_lock = true;
    berth_log_hold();
    pthread_mutex_lock(&split_lock);
    if (n_devs_tried != SIZE_MAX && !berth_split_is_asked()) {
        n_devs_tried = SIZE_MAX;
    }
    berth_lock_take(&table_lock);
    const size_t n = n_devs_tried != SIZE_MAX && n_devs != n_devs_tried ? n_devs : 0;
    ggml_backend_dev_t *list = n > 0 ? berth_calloc(n, sizeof *list) : NULL;
    if (list != NULL) {
        memcpy(list, devs, n * sizeof *list);
    }
    berth_lock_drop(&table_lock);
    if (list != NULL) {
        ggml_backend_dev_t dev = berth_split_make(list, n);
        if (dev == NULL) {
            n_devs_tried = n;
        } else if (split_list(dev)) {
            n_devs_tried = SIZE_MAX;
        } else {
            berth_split_drop();
        }
    }
    berth_free(list);
    pthread_mutex_unlock(&split_lock);
    has_split_lock = false;
    berth_log_let_go();
}

// ---- unloading ----

// If the composite device has a part of this registry, replaces the device by its other hidden parts. Requires both locks.
// Returns false if out of memory.
static bool split_remove(ggml_backend_reg_t reg) {
    ggml_backend_dev_t made = berth_split_of(reg);
    size_t n_hidden, n_kept = 0;
    const ggml_backend_dev_t *hidden = berth_split_hidden(&n_hidden);
    if (made == NULL) {
        return true;
    }
    if (!BERTH_GROW(&devs, &n_devs_cap, n_devs + n_hidden)) {
        return false;
    }
    for (size_t i = 0; i < n_devs; i++) {
        if (devs[i] != made) {
            devs[n_kept++] = devs[i];
        }
    }
    n_devs = n_kept;
    for (size_t i = n_hidden;
         i-- > 0;) { // backwards, because parts are inserted at the front; the program may have registered one itself
        if (hidden[i]->reg != reg && !dev_is_listed(hidden[i])) {
            memmove(devs + 1, devs, n_devs * sizeof devs[0]);
            devs[0] = hidden[i];
            n_devs++;
        }
    }
    berth_split_drop();
    n_devs_tried = 0; // the remaining devices may form a composite device
    return true;
}

// Removes a registry and its devices from the table. Requires both locks.
static void reg_remove(size_t at) {
    const ggml_backend_reg_t reg = regs[at].reg;
    size_t n = 0;
    n_regs--;
    for (size_t i = at; i < n_regs; i++) {
        regs[i] = regs[i + 1];
    }
    for (size_t i = 0; i < n_devs; i++) {
        if (devs[i]->reg != reg) {
            devs[n++] = devs[i];
        }
    }
    n_devs = n;
    n_devs_tried = n_devs_tried != SIZE_MAX ? 0 : SIZE_MAX; // the next query tries again to make a composite device
}

// Removes the registry and closes its library, so the caller must have freed all backends and buffers of the registry.
// If a composite device (BERTH_SPLIT) has parts of this registry, the composite device is removed too. The caller must then also
// have freed the backends and buffers of the composite device.
void ggml_backend_unload(ggml_backend_reg_t reg) {
    berth_registry_ready(BERTH_REGISTRY_BUILT_IN);
    const bool is_inner = has_split_lock;
    if (!is_inner) {
        pthread_mutex_lock(&split_lock);
        has_split_lock = true;
    }
    berth_lock_take(&table_lock);
    const size_t at = reg_at(reg);
    const bool found = reg != NULL && at < n_regs, ok = !found || split_remove(reg);
    void *handle = found && ok ? regs[at].handle : NULL;
    if (found && ok) {
        reg_remove(at);
    }
    berth_lock_drop(&table_lock);
    if (!is_inner) {
        has_split_lock = false;
        pthread_mutex_unlock(&split_lock);
    }
    if (!found) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_unload: %s",
            reg == NULL ? "the registry is NULL" : "the registry is not registered");
    } else if (!ok) {
        berth_fail(GGML_STATUS_ALLOC_FAILED,
            "ggml_backend_unload: out of memory to list the devices that were combined with those of %s",
            ggml_backend_reg_name(reg));
    } else if (handle != NULL) {
        dlclose(handle);
    }
}

// ---- queries by index ----

size_t ggml_backend_reg_count(void) {
    berth_registry_ready(BERTH_REGISTRY_INSTALLED);
    berth_lock_take(&table_lock);
    const size_t n = n_regs;
    berth_lock_drop(&table_lock);
    return n;
}

size_t ggml_backend_dev_count(void) {
    berth_registry_ready(BERTH_REGISTRY_INSTALLED);
    split_try_make();
    berth_lock_take(&table_lock);
    const size_t n = n_devs;
    berth_lock_drop(&table_lock);
    return n;
}

static ggml_backend_reg_t reg_number(size_t index) {
    berth_registry_ready(BERTH_REGISTRY_INSTALLED);
    berth_lock_take(&table_lock);
    ggml_backend_reg_t reg = index < n_regs ? regs[index].reg : NULL;
    berth_lock_drop(&table_lock);
    return reg;
}

static ggml_backend_dev_t dev_number(size_t index) {
    berth_registry_ready(BERTH_REGISTRY_INSTALLED);
    split_try_make();
    berth_lock_take(&table_lock);
    ggml_backend_dev_t dev = index < n_devs ? devs[index] : NULL;
    berth_lock_drop(&table_lock);
    return dev;
}

ggml_backend_reg_t ggml_backend_reg_get(size_t index) {
    ggml_backend_reg_t reg = reg_number(index);
    if (reg == NULL) {
        berth_fail(
            GGML_STATUS_FAILED, "ggml_backend_reg_get: there is no registry %zu, there are %zu", index, ggml_backend_reg_count());
    }
    return reg;
}

ggml_backend_dev_t ggml_backend_dev_get(size_t index) {
    ggml_backend_dev_t dev = dev_number(index);
    if (dev == NULL) {
        berth_fail(
            GGML_STATUS_FAILED, "ggml_backend_dev_get: there is no device %zu, there are %zu", index, ggml_backend_dev_count());
    }
    return dev;
}

// ---- queries by name or type: names are compared without regard to case; NULL if there is no match ----

static bool is_name(const char *have, const char *want) {
    return have != NULL && want != NULL && strcasecmp(have, want) == 0;
}

ggml_backend_reg_t ggml_backend_reg_by_name(const char *name) {
    ggml_backend_reg_t reg;
    for (size_t i = 0; (reg = reg_number(i)) != NULL; i++) {
        if (is_name(ggml_backend_reg_name(reg), name)) {
            return reg;
        }
    }
    return NULL;
}

ggml_backend_dev_t ggml_backend_dev_by_name(const char *name) {
    ggml_backend_dev_t dev;
    for (size_t i = 0; (dev = dev_number(i)) != NULL; i++) {
        if (is_name(ggml_backend_dev_name(dev), name)) {
            return dev;
        }
    }
    return NULL;
}

ggml_backend_dev_t ggml_backend_dev_by_type(enum ggml_backend_dev_type type) {
    ggml_backend_dev_t dev;
    for (size_t i = 0; (dev = dev_number(i)) != NULL; i++) {
        if (ggml_backend_dev_type(dev) == type) {
            return dev;
        }
    }
    return NULL;
}

// ---- create a backend ----

ggml_backend_t ggml_backend_init_by_name(const char *name, const char *params) {
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(name);
    if (dev == NULL) {
        berth_set_error("ggml_backend_init_by_name: no device is named %s", name != NULL ? name : "(NULL)");
        return NULL;
    }
    return ggml_backend_dev_init(dev, params);
}

ggml_backend_t ggml_backend_init_by_type(enum ggml_backend_dev_type type, const char *params) {
    ggml_backend_dev_t dev = ggml_backend_dev_by_type(type);
    if (dev == NULL) {
        berth_set_error("ggml_backend_init_by_type: no device is of type %d", (int) type);
        return NULL;
    }
    return ggml_backend_dev_init(dev, params);
}

// Order: GPU with its own memory, GPU that shares the host's memory, CPU.
ggml_backend_t ggml_backend_init_best(void) {
    static const enum ggml_backend_dev_type order[] = {
        GGML_BACKEND_DEVICE_TYPE_GPU,
        GGML_BACKEND_DEVICE_TYPE_IGPU,
        GGML_BACKEND_DEVICE_TYPE_CPU,
    };
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_by_type(order[i]);
        if (dev != NULL) {
            return ggml_backend_dev_init(dev, NULL);
        }
    }
    berth_set_error(
        "ggml_backend_init_best: no backend is registered, and there is none in the folders of the program and of libggml");
    return NULL;
}
