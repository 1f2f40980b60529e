// SPDX-License-Identifier: MIT
// map.c: tensors to numbers. Open addressing with linear probing, at most half full, grown by doubling.

#include "sched/sched.h"

#include <string.h>

static size_t slot_of(const struct sched_map *map, const struct ggml_tensor *key) {
    const uint64_t h = ((uint64_t) (uintptr_t) key >> 4) * 0x9E3779B97F4A7C15u;
    size_t i         = (size_t) (h >> 20) & (map->n_slots - 1);
    while (map->keys[i] != NULL && map->keys[i] != key) {
        i = (i + 1) & (map->n_slots - 1);
    }
    return i;
}

bool sched_map_reserve(struct sched_map *map, size_t n) {
    if (n * 2 <= map->n_slots) {
        return true;
    }
    struct sched_map larger = {.n_slots = map->n_slots > 0 ? map->n_slots : 16, .n_keys = map->n_keys};
    while (larger.n_slots < n * 2) {
        larger.n_slots *= 2;
    }
    larger.keys   = berth_calloc(larger.n_slots, sizeof larger.keys[0]);
    larger.values = berth_malloc(larger.n_slots * sizeof larger.values[0]);
    if (larger.keys == NULL || larger.values == NULL) {
        sched_map_fini(&larger);
        return false;
    }
    for (size_t i = 0; i < map->n_slots; i++) {
        if (map->keys[i] != NULL) {
            const size_t j   = slot_of(&larger, map->keys[i]);
            larger.keys[j]   = map->keys[i];
            larger.values[j] = map->values[i];
        }
    }
    sched_map_fini(map);
    *map = larger;
    return true;
}

bool sched_map_put(struct sched_map *map, const struct ggml_tensor *key, int32_t value) {
    if (!sched_map_reserve(map, map->n_keys + 1)) {
        return false;
    }
    const size_t i = slot_of(map, key);
    map->n_keys += map->keys[i] == NULL;
    map->keys[i]   = key;
    map->values[i] = value;
    return true;
}

int32_t sched_map_get(const struct sched_map *map, const struct ggml_tensor *key, int32_t otherwise) {
    if (map->n_keys == 0) {
        return otherwise;
    }
    const size_t i = slot_of(map, key);
    return map->keys[i] != NULL ? map->values[i] : otherwise;
}

void sched_map_clear(struct sched_map *map) {
    if (map->n_keys > 0) {
        if (map->n_keys * 32 < map->n_slots) {
            sched_map_fini(map);
            return;
        }
        memset(map->keys, 0, map->n_slots * sizeof map->keys[0]);
        map->n_keys = 0;
    }
}

void sched_map_fini(struct sched_map *map) {
    berth_free(map->keys);
    berth_free(map->values);
    *map = (struct sched_map){0};
}
