// SPDX-License-Identifier: MIT
// table.c: items in their order of insertion, with a hash table by name. The hash has a secret key (base/siphash.h), so no choice
// of names makes the search slow. At most three quarters of the slots are used. If the number of items is known in advance, the
// table of a large file takes about 14 bytes per item: a pointer of 8 bytes and 4/3 slots of 4 bytes.

#include "gguf/context.h"

#include <string.h>

static const char *name_of(const struct gguf_table *table, size_t i) {
    return (const char *) table->items[i] + table->name_at;
}

// Scales the upper 32 bits of the hash, because the number of slots need not be a power of two.
static size_t slot_of(const struct gguf_table *table, const char *name) {
    return (size_t) ((berth_siphash_of(&table->key, name, strlen(name)) >> 32) * (uint64_t) table->n_slots >> 32);
}

static void slot_put(struct gguf_table *table, size_t i) {
    size_t s = slot_of(table, name_of(table, i));
    while (table->slots[s] != 0) {
        s = s + 1 == table->n_slots ? 0 : s + 1;
    }
    table->slots[s] = (uint32_t) (i + 1);
}

static void slots_fill(struct gguf_table *table) {
    for (size_t i = 0; i < table->n; i++) {
        slot_put(table, i);
    }
}

static size_t grown_capacity(const struct gguf_table *table, size_t n) {
    const size_t twice = n < 8 ? 8 : 2 * n;
    return table->n_expected > n && table->n_expected < twice ? table->n_expected : twice;
}

static bool items_grow(struct gguf_table *table) {
    if (table->n < table->n_cap) {
        return true;
    }
    size_t size;
    const size_t n_cap = grown_capacity(table, table->n);
    void **items = berth_mul_ok(n_cap, sizeof *items, &size) ? berth_realloc(table->items, size) : NULL;
    if (items == NULL) {
        return false;
    }
    table->items = items;
    table->n_cap = n_cap;
    return true;
}

static bool slots_grow(struct gguf_table *table) {
    if (table->n + 1 <= table->n_slots / 4 * 3) {
        return true;
    }
    const size_t n_slots = (grown_capacity(table, table->n) + 2) / 3 * 4 + 4;
    uint32_t *slots = berth_calloc(n_slots, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    if (table->slots == NULL) {
        table->key = berth_siphash_key_new(table);
    }
    berth_free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    slots_fill(table);
    return true;
}

int64_t berth_gguf_table_find(const struct gguf_table *table, const char *name) {
    if (table->n_slots == 0) {
        return -1;
    }
    for (size_t s = slot_of(table, name); table->slots[s] != 0; s = s + 1 == table->n_slots ? 0 : s + 1) {
        const size_t i = table->slots[s] - 1;
        if (strcmp(name_of(table, i), name) == 0) {
            return (int64_t) i;
        }
    }
    return -1;
}

bool berth_gguf_table_add(struct gguf_table *table, void *item) {
    if (table->n >= GGUF_TABLE_MAX || !items_grow(table) || !slots_grow(table)) {
        return false;
    }
    table->items[table->n] = item;
    slot_put(table, table->n++);
    return true;
}

void berth_gguf_table_remove(struct gguf_table *table, size_t i) {
    BERTH_ASSERT(i < table->n);
    memmove(&table->items[i], &table->items[i + 1], (table->n - i - 1) * sizeof *table->items);
    table->n--;
    memset(table->slots, 0, table->n_slots * sizeof *table->slots);
    slots_fill(table);
}

void berth_gguf_table_fini(struct gguf_table *table) {
    berth_free(table->items);
    berth_free(table->slots);
    table->items = NULL;
    table->slots = NULL;
    table->n = table->n_cap = table->n_slots = 0;
}

size_t berth_gguf_table_size(const struct gguf_table *table) {
    return table->n_cap * sizeof *table->items + table->n_slots * sizeof *table->slots;
}
