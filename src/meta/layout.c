// SPDX-License-Identifier: MIT
// layout.c: the memory of a graph, planned for each device separately. A layout is the result: one range of addresses that all
// devices share, and for each item and device a slot (offset and size in the device's buffer).
// Addresses are never reused, so an address identifies a layout and an item. Invariants:
//
//   base <= starts[i] < starts[i + 1] < end, for every layout; no two layouts of the process overlap
//   slots[j * n_items + i] of items that are alive at the same time do not overlap, and end at peak[j] or before
//   after meta_layout_ensure_memory(buffer, l), the buffer has at least peak[j] bytes of l on device j, until it is resized
//
// A layout may outlive its plan. A graph whose plan was dropped can be computed as long as its layout is kept.

#include "meta/program.h"

#include "base/min.h"

#include <stdatomic.h>

#define SPACE ((size_t) 1 << 59)         // number of addresses
#define OLD_SLOTS_MAX ((size_t) 1 << 18) // limit on the slots of all layouts of a buffer whose plans were dropped

// ---- new ----

static void layout_drop(struct meta_layout *l) {
    if (l != NULL) {
        berth_free(l->starts);
        berth_free(l->slots);
        berth_free(l);
    }
}

// Takes a range of addresses and gives each item its offset. Returns false if the address space is exhausted.
static bool addresses_take(struct meta_layout *l, const struct lifetimes *lives, int pool, uint64_t *offsets) {
    static atomic_size_t next = 1 << 20;
    size_t at = 0, k = 0;
    for (size_t i = 0; i < lives->n_items; i++) {
        const struct berth_plan_item *item = &lives->items[i];
        if (item->pool == pool) {
            const size_t align = max_size(item->align, 64), size = max_size(item->size, 1);
            l->starts[k++] = at = (at + align - 1) / align * align;
            offsets[i] = at;
            if (size >= SPACE - at) {
                return false;
            }
            at += size;
        }
    }
    const size_t page = 1 << 20, size = (at + 2 * page) / page * page;
    l->head.base = atomic_fetch_add(&next, size);
    l->end = l->head.base + size;
    for (k = 0; k < l->n_items; k++) {
        l->starts[k] += l->head.base;
    }
    return l->head.base < SPACE && size < SPACE - l->head.base;
}

static bool is_same(const struct berth_plan_item *a, const struct berth_plan_item *b, size_t n) {
    size_t i = 0;
    while (i < n && a[i].size == b[i].size && a[i].align == b[i].align) {
        i++;
    }
    return i == n;
}

// Plans the items on device j. items: [2 * n_items] scratch for the items of devices j - 1 and j. If the items of both devices
// are equal, the plan of device j - 1 is copied.
static enum ggml_status plan_device(
    struct meta_layout *l, const struct meta_sizing *s, int j, struct berth_plan_item *items, uint64_t *offsets) {
    const size_t n = l->n_items, align = ggml_backend_buft_get_alignment(ggml_backend_dev_buffer_type(s->device->parts[j]));
    struct berth_plan_item *own = items + (size_t) (j % 2) * n;
    struct meta_slot *slots = l->slots + (size_t) j * n;
    struct berth_plan_report report = {0};
    for (size_t i = 0, k = 0; i < s->lives->n_items; i++) {
        if (s->lives->items[i].pool == s->params->pool) {
            own[k] = s->lives->items[i];
            own[k].pool = 0;
            own[k].align = align;
            own[k].size = (s->sizes[(size_t) j * s->lives->n_items + i] + align - 1) / align * align;
            k++;
        }
    }
    if (j > 0 && is_same(own, items + (size_t) ((j + 1) % 2) * n, n)) {
        memcpy(slots, slots - n, n * sizeof slots[0]);
        l->peak[j] = l->peak[j - 1];
        return GGML_STATUS_SUCCESS;
    }
    const struct berth_plan_params params = {
        .time_limit_us = s->params->time_limit_us, .is_brief = s->params->time_limit_us == 0};
    const enum ggml_status status = berth_plan_solve(own, (int64_t) n, &params, offsets, &report);
    for (size_t k = 0; k < n && status == GGML_STATUS_SUCCESS; k++) {
        slots[k] = (struct meta_slot){.off = offsets[k], .size = own[k].size};
    }
    l->peak[j] = report.peak;
    if (report.peak > s->params->report->peak || j == 0) {
        *s->params->report = report;
    }
    return status;
}

static enum ggml_status plan_devices(struct meta_layout *l, const struct meta_sizing *s) {
    struct berth_plan_item *items = berth_malloc((2 * l->n_items + 1) * sizeof *items);
    uint64_t *offsets = berth_malloc((l->n_items + 1) * sizeof *offsets);
    enum ggml_status status = items != NULL && offsets != NULL
                                  ? GGML_STATUS_SUCCESS
                                  : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory to plan %zu items", l->n_items);
    for (int j = 0; j < l->n && status == GGML_STATUS_SUCCESS; j++) {
        status = plan_device(l, s, j, items, offsets);
        l->head.bytes += l->peak[j];
    }
    berth_free(items);
    berth_free(offsets);
    return status;
}

static struct meta_layout *layout_make(int n, size_t n_items) {
    struct meta_layout *l = berth_calloc(1, sizeof *l);
    if (l != NULL) {
        l->n = n;
        l->n_items = n_items;
        l->starts = berth_calloc(n_items + 1, sizeof l->starts[0]);
        l->slots = berth_calloc((size_t) n * n_items + 1, sizeof l->slots[0]);
    }
    if (l == NULL || l->starts == NULL || l->slots == NULL) {
        layout_drop(l);
        return NULL;
    }
    return l;
}

static bool is_one_buffer_each(const struct meta_layout *l, const struct meta_device *device) {
    int j = 0;
    while (j < l->n && l->peak[j] <= ggml_backend_buft_get_max_size(ggml_backend_dev_buffer_type(device->parts[j]))) {
        j++;
    }
    return j == l->n;
}

enum ggml_status meta_layout_new(ggml_backend_buffer_type_t buft, struct record *rec, const struct lifetimes *lives,
    const struct berth_layout_params *params, uint64_t *offsets, struct berth_layout **out) {
    struct meta_sizing s = {.device = meta_device_of(buft), .rec = rec, .lives = lives, .params = params};
    size_t n_items = 0;
    for (size_t i = 0; i < lives->n_items; i++) {
        n_items += lives->items[i].pool == params->pool;
    }
    *out = NULL;
    s.sizes = berth_calloc((size_t) s.device->n * lives->n_items + 1, sizeof s.sizes[0]);
    struct meta_layout *l = s.sizes != NULL ? layout_make(s.device->n, n_items) : NULL;
    if (l == NULL) {
        berth_free(s.sizes);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory to plan %zu items on %d devices", n_items, s.device->n);
    }
    enum ggml_status status = meta_sizing_run(&s);
    if (status == GGML_STATUS_SUCCESS) {
        status = plan_devices(l, &s);
    }
    berth_free(s.sizes);
    if (status != GGML_STATUS_SUCCESS || !is_one_buffer_each(l, s.device) || !addresses_take(l, lives, params->pool, offsets)) {
        layout_drop(l);
        return status;
    }
    *out = &l->head;
    return GGML_STATUS_SUCCESS;
}

static struct meta_layout *layout_of(struct berth_layout *layout) {
    return (struct meta_layout *) layout;
}

// Frees the layout; its addresses become invalid. in: the buffer of the layout, or NULL.
static void layout_free(struct meta_layout *l, struct meta_buffer *in) {
    if (in != NULL) {
        meta_buffer_forget(in, l->head.base, l->end);
        meta_buffer_renumber(in); // invalidates the programs of graphs at these addresses
    }
    for (size_t i = 0; i < (size_t) l->n * l->n_items; i++) {
        ggml_backend_buffer_free(l->slots[i].separate);
    }
    layout_drop(l);
}

static void old_layouts_trim(struct meta_buffer *mb) {
    size_t n = 0, n_slots = 0;
    for (struct meta_layout **at = &mb->old, *l; (l = *at) != NULL;) {
        const size_t n_own = (size_t) l->n * l->n_items;
        if (n < META_OLD_MAX && n_own <= OLD_SLOTS_MAX - n_slots) {
            n++;
            n_slots += n_own;
            at = &l->next;
        } else {
            *at = l->next;
            layout_free(l, mb);
        }
    }
}

void meta_layout_free(struct berth_layout *layout) {
    struct meta_layout *l = layout_of(layout);
    struct meta_buffer *in = l->in;
    if (in != NULL) {
        struct meta_layout **at = &in->layouts;
        while (*at != l) {
            at = &(*at)->next;
        }
        *at = l->next;
    }
    // A layout with separate memory is not kept, because the memory would stay allocated even if its graph never runs again.
    if (in == NULL || l->n_separate > 0) {
        layout_free(l, in);
        return;
    }
    l->is_old = true;
    l->next = in->old;
    in->old = l;
    old_layouts_trim(in);
}

void meta_layouts_leave(struct meta_buffer *mb) {
    for (struct meta_layout *l = mb->layouts; l != NULL; l = l->next) {
        l->in = NULL; // the plan frees the layout
    }
    while (mb->old != NULL) {
        struct meta_layout *l = mb->old;
        mb->old = l->next;
        layout_free(l, NULL);
    }
}

// ---- memory ----

ggml_backend_buffer_t meta_layout_buffer(ggml_backend_buffer_type_t buft) {
    ggml_backend_buffer_t buffer = meta_buffer_make(buft, SPACE, 0);
    if (buffer != NULL) {
        meta_buffer_of(buffer)->has_layouts = true;
    }
    return buffer;
}

static ggml_backend_buffer_t part_new(const struct meta_buffer *mb, int j, size_t size) {
    ggml_backend_buffer_t part = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(mb->device->parts[j]), size);
    ggml_backend_buffer_set_usage(part, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    return part;
}

// As part_new, for a buffer that the caller can do without: a failure frees no memory of other owners (berth_reclaim).
static ggml_backend_buffer_t part_try_new(const struct meta_buffer *mb, int j, size_t size) {
    berth_reclaim_pause();
    ggml_backend_buffer_t part = part_new(mb, j, size);
    berth_reclaim_resume();
    return part;
}

// Replaces the memory of device j by `size` bytes. If memory does not suffice for the old and the new buffer at the same time,
// the old buffer is freed first. If the allocation still fails, a buffer of the old size is allocated.
static bool part_resize(struct meta_buffer *mb, int j, size_t size) {
    const size_t before = ggml_backend_buffer_get_size(mb->parts[j]);
    ggml_backend_buffer_t fresh = before > 0 ? part_try_new(mb, j, size) : part_new(mb, j, size);
    if (fresh == NULL && before > 0 && before < size) {
        ggml_backend_buffer_free(mb->parts[j]);
        mb->parts[j] = NULL;
        fresh = part_new(mb, j, size);
    }
    const bool ok = fresh != NULL;
    if (!ok && mb->parts[j] == NULL) {
        fresh = part_new(mb, j, before);
        if (fresh == NULL) {
            fresh = part_new(mb, j, 0);
        }
    }
    if (fresh != NULL) {
        ggml_backend_buffer_free(mb->parts[j]);
        mb->parts[j] = fresh;
        meta_buffer_renumber(mb);
        meta_buffer_forget(mb, 0, SIZE_MAX);
    }
    return ok;
}

bool meta_layout_ensure_memory(ggml_backend_buffer_t buffer, struct berth_layout *layout, bool is_exact, bool *is_moved) {
    struct meta_buffer *mb = meta_buffer_of(buffer);
    struct meta_layout *l = layout_of(layout);
    const uint64_t id = mb->id;
    bool ok = true;
    if (l->in == NULL) {
        l->in = mb;
        l->next = mb->layouts;
        mb->layouts = l;
    }
    for (int j = 0; j < l->n && ok; j++) {
        const size_t have = ggml_backend_buffer_get_size(mb->parts[j]);
        if (have < l->peak[j]) {
            ok = part_resize(mb, j, l->peak[j]);
        }
    }
    for (int j = 0; j < l->n && ok && is_exact; j++) {
        if (ggml_backend_buffer_get_size(mb->parts[j]) > l->peak[j]) {
            part_resize(mb, j, l->peak[j]); // on failure the device keeps more memory than required
        }
    }
    *is_moved = mb->id != id;
    return ok;
}

// layout_first and layout_next iterate over all layouts of a buffer: first the layouts with a plan, then the old layouts.
static struct meta_layout *layout_first(const struct meta_buffer *mb) {
    return mb->layouts != NULL ? mb->layouts : mb->old;
}

static struct meta_layout *layout_next(const struct meta_buffer *mb, const struct meta_layout *l) {
    return l->next != NULL || l->is_old ? l->next : mb->old;
}

size_t meta_layout_bytes(ggml_backend_buffer_t buffer) {
    const struct meta_buffer *mb = meta_buffer_of(buffer);
    size_t size = 0;
    for (int j = 0; j < mb->device->n; j++) {
        size += ggml_backend_buffer_get_size(mb->parts[j]);
    }
    for (const struct meta_layout *l = layout_first(mb); l != NULL; l = layout_next(mb, l)) {
        for (size_t i = 0; l->n_separate > 0 && i < (size_t) l->n * l->n_items; i++) {
            size += ggml_backend_buffer_get_size(l->slots[i].separate);
        }
    }
    return size;
}

void meta_layouts_each_separate(
    const struct meta_buffer *mb, void (*call)(ggml_backend_buffer_t separate, uint8_t value), uint8_t value) {
    for (const struct meta_layout *l = layout_first(mb); l != NULL; l = layout_next(mb, l)) {
        for (size_t i = 0; l->n_separate > 0 && i < (size_t) l->n * l->n_items; i++) {
            if (l->slots[i].separate != NULL) {
                call(l->slots[i].separate, value);
            }
        }
    }
}

// ---- lookup by address ----

static struct meta_layout *layout_at(const struct meta_buffer *mb, size_t off) {
    struct meta_layout *l = layout_first(mb);
    while (l != NULL && (off < l->head.base || off >= l->end)) {
        l = layout_next(mb, l);
    }
    return l;
}

struct meta_slot *meta_slots_at(const struct meta_buffer *mb, size_t off, size_t *step) {
    const struct meta_layout *l = layout_at(mb, off);
    if (l == NULL || l->n_items == 0) {
        return NULL;
    }
    size_t lo = 0, hi = l->n_items;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        *(l->starts[mid] <= off ? &lo : &hi) = mid;
    }
    *step = l->n_items;
    return l->starts[lo] == off ? &l->slots[lo] : NULL; // a root begins at the start of its item
}

static struct ggml_tensor bytes_at(ggml_backend_buffer_t buffer, size_t off, size_t size) {
    struct ggml_tensor t = {.type = GGML_TYPE_I8, .ne = {(int64_t) size, 1, 1, 1}, .nb = {1, size, size, size}};
    t.buffer = buffer;
    t.data = (char *) ggml_backend_buffer_get_base(buffer) + off;
    return t;
}

bool meta_slot_grow(const struct ggml_tensor *root, int j, size_t size) {
    struct meta_buffer *mb = meta_buffer_of(root->buffer);
    size_t step = 0;
    struct meta_slot *slots = mb != NULL ? meta_slots_at(mb, meta_offset(root->data), &step) : NULL;
    if (slots == NULL) {
        return false;
    }
    struct meta_slot *slot = &slots[(size_t) j * step];
    ggml_backend_buffer_t fresh = part_new(mb, j, size), last = slot->separate != NULL ? slot->separate : mb->parts[j];
    if (fresh == NULL) {
        return false;
    }
    if (slot->size > 0) {
        struct ggml_tensor from = bytes_at(last, slot->off, slot->size), to = bytes_at(fresh, 0, slot->size);
        if (!berth_tensor_copy(__func__, NULL, &from, &to, NULL)) {
            ggml_backend_buffer_free(fresh);
            return false;
        }
    }
    layout_at(mb, meta_offset(root->data))->n_separate += slot->separate == NULL;
    ggml_backend_buffer_free(slot->separate);
    *slot = (struct meta_slot){.size = size, .separate = fresh};
    meta_buffer_renumber(mb);
    return true;
}
