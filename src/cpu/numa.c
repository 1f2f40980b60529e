// SPDX-License-Identifier: MIT
// numa.c: ggml's NUMA strategies. A placement is a list of n processor sets. Thread ith of a pool is bound to set ith % n.
//   distribute, mirror  one set per node; nodes without a processor that the process may use are skipped
//   isolate             one set: the node on which the caller of ggml_numa_init ran
//   numactl             one set: the affinity of the process when ggml_numa_init was called
// A set contains only processors that the process may use. No set is empty. Berth does not place memory: the system allocates a
// page on the node that writes it first, or by the policy of numactl.

#include "cpu/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define NUMA_ROOT "/sys/devices/system/node"

struct place {
    struct place *next; // NULL for the last one
    cpu_set_t set[];    // set_size bytes
};

struct cpu_numa {
    int n_nodes;
    int n_places; // >= 1
    int n_cpus;
    size_t set_size;
    struct place *places;
};

// ---- the lists of the Linux kernel ----

static bool number_next(const char **text, int *value) {
    const char *s = *text;
    int v = 0;
    for (; *s >= '0' && *s <= '9'; s++) {
        const int digit = *s - '0';
        if (v > (INT_MAX - digit) / 10) {
            return false;
        }
        v = 10 * v + digit;
    }
    const bool any = s != *text;
    *text = s;
    *value = v;
    return any;
}

int cpu_list_next(const char **text, int *first, int *last) {
    if (**text == '\n' || **text == '\0') {
        return 0;
    }
    if (!number_next(text, first)) {
        return -1;
    }
    *last = *first;
    if (**text == '-') {
        ++*text;
        if (!number_next(text, last) || *last < *first) {
            return -1;
        }
    }
    if (**text == ',') {
        ++*text;
        return **text >= '0' && **text <= '9' ? 1 : -1;
    }
    return **text == '\n' || **text == '\0' ? 1 : -1;
}

// The caller frees the text. On failure, returns NULL and sets errno.
static char *file_text(int dir, const char *path) {
    const int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    size_t capacity = 256, n = 0;
    char *text = shim_malloc(capacity);
    ssize_t got = 1;
    while (text != NULL && (got = read(fd, text + n, capacity - 1 - n)) > 0) {
        n += (size_t) got;
        if (n + 1 == capacity) {
            char *larger = shim_malloc(2 * capacity);
            if (larger != NULL) {
                memcpy(larger, text, n);
            }
            shim_free(text);
            text = larger;
            capacity *= 2;
        }
    }
    int err = got < 0 ? errno : 0;
    if (text == NULL) {
        err = ENOMEM;
    }
    close(fd);
    if (err != 0) {
        shim_free(text);
        errno = err;
        return NULL;
    }
    text[n] = '\0';
    return text;
}

// ---- processor sets ----

static struct place *place_new(size_t set_size) {
    return shim_calloc(1, sizeof(struct place) + set_size);
}

static void place_add(struct cpu_numa *numa, struct place *place) {
    struct place **end = &numa->places;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = place;
    numa->n_places++;
    numa->n_cpus += CPU_COUNT_S(numa->set_size, place->set);
}

// Adds the allowed processors of the list to set. If the text is not a list, returns false.
static bool set_from_list(cpu_set_t *set, const char *list, const struct cpu_numa_host *host) {
    const int n_bits = (int) host->allowed_size * CHAR_BIT;
    int first, last, status;
    while ((status = cpu_list_next(&list, &first, &last)) > 0) {
        for (int i = first; i <= last && i < n_bits; i++) {
            if (CPU_ISSET_S((size_t) i, host->allowed_size, host->allowed)) {
                CPU_SET_S((size_t) i, host->allowed_size, set);
            }
        }
    }
    return status == 0;
}

static bool is_set_of_strategy(enum ggml_numa_strategy strategy, const struct cpu_numa *numa, const struct place *p, int cpu) {
    if (strategy == GGML_NUMA_STRATEGY_ISOLATE) {
        return cpu >= 0 && CPU_ISSET_S((size_t) cpu, numa->set_size, p->set);
    }
    return strategy != GGML_NUMA_STRATEGY_NUMACTL && CPU_COUNT_S(numa->set_size, p->set) > 0;
}

static bool node_add(
    struct cpu_numa *numa, enum ggml_numa_strategy strategy, const struct cpu_numa_host *host, int dir, int node) {
    char path[48];
    snprintf(path, sizeof path, "node%d/cpulist", node);
    char *list = file_text(dir, path);
    if (list == NULL) {
        shim_log(GGML_LOG_LEVEL_WARN, "NUMA: %s/%s: %s", host->root, path, strerror(errno));
        return false;
    }
    struct place *place = place_new(numa->set_size);
    const bool good = place != NULL && set_from_list(place->set, list, host);
    if (!good) {
        shim_log(GGML_LOG_LEVEL_WARN, "NUMA: %s/%s: %s", host->root, path,
            place == NULL ? "out of memory" : "not a list of processors");
    }
    numa->n_nodes += good;
    if (good && is_set_of_strategy(strategy, numa, place, host->cpu)) {
        place_add(numa, place);
    } else {
        shim_free(place);
    }
    shim_free(list);
    return good;
}

// Stops at the first node without a file, so that a wrong list ("0-2000000000") ends early.
static bool nodes_read(struct cpu_numa *numa, enum ggml_numa_strategy strategy, const struct cpu_numa_host *host, int dir) {
    char *online = file_text(dir, "online");
    if (online == NULL) {
        shim_log(GGML_LOG_LEVEL_WARN, "NUMA: %s/online: %s", host->root, strerror(errno));
        return false;
    }
    const char *at = online;
    bool good = true;
    int first, last, status;
    while (good && (status = cpu_list_next(&at, &first, &last)) != 0) {
        if (status < 0) {
            shim_log(GGML_LOG_LEVEL_WARN, "NUMA: %s/online: not a list of nodes", host->root);
            good = false;
        }
        for (int64_t node = first; good && node <= last; node++) {
            good = node_add(numa, strategy, host, dir, (int) node);
        }
    }
    shim_free(online);
    return good;
}

struct cpu_numa *cpu_numa_new(enum ggml_numa_strategy strategy, const struct cpu_numa_host *host) {
    const int dir = open(host->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return NULL; // no NUMA support
    }
    struct cpu_numa *numa = shim_calloc(1, sizeof *numa);
    if (numa == NULL) {
        shim_log(GGML_LOG_LEVEL_WARN, "NUMA: out of memory");
        close(dir);
        return NULL;
    }
    numa->set_size = host->allowed_size;
    bool good = nodes_read(numa, strategy, host, dir) && numa->n_nodes > 1;
    close(dir);
    if (good && strategy == GGML_NUMA_STRATEGY_NUMACTL) {
        struct place *place = place_new(numa->set_size);
        if (place != NULL) {
            memcpy(place->set, host->allowed, host->allowed_size);
            place_add(numa, place);
        }
    }
    if (good && numa->n_places == 0) {
        shim_log(GGML_LOG_LEVEL_WARN,
            "NUMA: none of the %d nodes has a processor that this process may use; threads are not bound", numa->n_nodes);
        good = false;
    }
    if (!good) {
        cpu_numa_free(numa);
        return NULL;
    }
    return numa;
}

void cpu_numa_free(struct cpu_numa *numa) {
    if (numa == NULL) {
        return;
    }
    for (struct place *p = numa->places, *next; p != NULL; p = next) {
        next = p->next;
        shim_free(p);
    }
    shim_free(numa);
}

const cpu_set_t *cpu_numa_place(const struct cpu_numa *numa, int ith) {
    const struct place *p = numa->places;
    for (int i = ith % numa->n_places; i > 0; i--) {
        p = p->next;
    }
    return p->set;
}

size_t cpu_numa_set_size(const struct cpu_numa *numa) {
    return numa->set_size;
}

int cpu_numa_n_nodes(const struct cpu_numa *numa) {
    return numa->n_nodes;
}

int cpu_numa_n_cpus(const struct cpu_numa *numa) {
    return numa->n_cpus;
}

// ---- the placement of the process: never freed, because a thread may read it while the process exits ----

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct cpu_numa *) active;

const struct cpu_numa *cpu_numa_active(void) {
    return atomic_load_explicit(&active, memory_order_acquire);
}

struct cpu_numa *cpu_numa_activate(struct cpu_numa *numa) {
    return atomic_exchange(&active, numa);
}

// Returns the affinity of the calling thread in a set of *size bytes; NULL: unavailable.
static cpu_set_t *affinity_new(size_t *size) {
    for (*size = sizeof(cpu_set_t); *size <= (1u << 20); *size *= 2) {
        cpu_set_t *set = shim_calloc(1, *size);
        if (set == NULL || sched_getaffinity(0, *size, set) == 0) {
            return set;
        }
        shim_free(set);
        if (errno != EINVAL) {
            break;
        }
    }
    return NULL;
}

void ggml_numa_init(enum ggml_numa_strategy numa) {
    if (numa <= GGML_NUMA_STRATEGY_DISABLED || numa >= GGML_NUMA_STRATEGY_COUNT) {
        return;
    }
    struct cpu_numa_host host = {.root = NUMA_ROOT, .cpu = sched_getcpu()};
    pthread_mutex_lock(&init_lock);
    cpu_set_t *allowed = cpu_numa_active() == NULL ? affinity_new(&host.allowed_size) : NULL;
    host.allowed = allowed;
    struct cpu_numa *n = allowed != NULL ? cpu_numa_new(numa, &host) : NULL;
    if (n != NULL) {
        (void) cpu_numa_activate(n);
        shim_log(
            GGML_LOG_LEVEL_INFO, "NUMA: %d nodes, threads on %d processors in %d groups", n->n_nodes, n->n_cpus, n->n_places);
        if (numa == GGML_NUMA_STRATEGY_MIRROR) {
            shim_log(GGML_LOG_LEVEL_INFO, "NUMA: memory is not mirrored; threads are distributed over the nodes");
        }
    }
    shim_free(allowed);
    pthread_mutex_unlock(&init_lock);
}

bool ggml_is_numa(void) {
    return cpu_numa_active() != NULL;
}
