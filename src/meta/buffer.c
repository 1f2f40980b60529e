// SPDX-License-Identifier: MIT
// buffer.c: memory of a composite device. There are two kinds of buffers:
// - Buffers of tensors with their own memory, such as weights. The callback get_state decides the state of each tensor.
// - Graph memory. The last computation decides the state of each tensor.

#include "meta/meta.h"

#include "base/min.h"
#include "berth-meta.h"
#include "ggml-alloc.h"

#include <stdatomic.h>

static struct meta_entry *entry_at(const struct meta_buffer *mb, size_t off) {
    size_t lo = 0, hi = mb->n_entries;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (mb->entries[mid].off + mb->entries[mid].size <= off && mb->entries[mid].off != off) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return mb->entries + lo; // may be the end of the list
}

static const struct meta_entry *entry_of(const struct ggml_tensor *root) {
    const struct meta_buffer *mb = meta_buffer_of(root->buffer);
    const struct meta_entry *found = mb != NULL ? entry_at(mb, meta_offset(root->data)) : NULL;
    return found != NULL && found < mb->entries + mb->n_entries && found->off == meta_offset(root->data) &&
                   found->size == ggml_nbytes(root)
               ? found
               : NULL;
}

const meta_state *meta_root_state(const struct ggml_tensor *root) {
    const struct meta_buffer *mb = meta_buffer_of(root->buffer);
    if (mb == NULL ||
        (mb->ctxs == NULL && root->op == GGML_OP_NONE && root->buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE)) {
        return &meta_mirrored;
    }
    const struct meta_entry *entry = entry_of(root);
    return entry != NULL ? &mb->states[entry->state].state : &meta_mirrored;
}

// ---- states ----

// Returns the index of the state in mb->states, which is added if it is missing. Returns SIZE_MAX if out of memory.
static size_t state_use(struct meta_buffer *mb, const meta_state *state) {
    size_t i = 0, free = mb->n_states;
    for (; i < mb->n_states && (mb->states[i].n_uses == 0 || !meta_same(&mb->states[i].state, state, mb->device->n)); i++) {
        if (mb->states[i].n_uses == 0 && free == mb->n_states) {
            free = i;
        }
    }
    if (i == mb->n_states) {
        if (!berth_grow((void **) &mb->states, &mb->states_cap, free + 1, sizeof mb->states[0])) {
            return SIZE_MAX;
        }
        i = free;
        mb->n_states += i == mb->n_states;
        mb->states[i] = (struct meta_state_used){.state = *state};
    }
    mb->states[i].n_uses++;
    return i;
}

bool meta_buffer_reserve(struct meta_buffer *mb, size_t n_entries, size_t n_states) {
    return berth_grow((void **) &mb->entries, &mb->entries_cap, n_entries, sizeof mb->entries[0]) &&
           berth_grow((void **) &mb->states, &mb->states_cap, n_states, sizeof mb->states[0]);
}

static void entry_fini(struct meta_buffer *mb, struct meta_entry *e) {
    mb->states[e->state].n_uses--;
    berth_free(e->parts);
}

// Adds an entry and removes the entries that overlap it. Returns NULL if out of memory.
static struct meta_entry *entry_make(struct meta_buffer *mb, size_t off, size_t size) {
    if (!berth_grow((void **) &mb->entries, &mb->entries_cap, mb->n_entries + 1, sizeof mb->entries[0])) {
        return NULL;
    }
    struct meta_entry *first = entry_at(mb, off), *all = mb->entries + mb->n_entries, *end = first;
    while (end < all && (end->off < off + size || end->off == off)) {
        entry_fini(mb, end++);
    }
    memmove(first + 1, end, (size_t) (all - end) * sizeof *first);
    mb->n_entries = mb->n_entries + 1 - (size_t) (end - first);
    *first = (struct meta_entry){.off = off, .size = size};
    return first;
}

bool meta_root_record(const struct ggml_tensor *root, const meta_state *state) {
    struct meta_buffer *mb = meta_buffer_of(root->buffer);
    if (mb == NULL || mb->ctxs != NULL) {
        return mb == NULL || meta_same(meta_root_state(root), state, mb->device->n);
    }
    struct meta_entry *e = (struct meta_entry *) (uintptr_t) entry_of(root);
    if (e != NULL && meta_same(&mb->states[e->state].state, state, mb->device->n)) {
        return true;
    }
    const size_t used = state_use(mb, state);
    e = used != SIZE_MAX ? entry_make(mb, meta_offset(root->data), ggml_nbytes(root)) : NULL;
    if (e == NULL) {
        if (used != SIZE_MAX) {
            mb->states[used].n_uses--;
        }
        return false;
    }
    e->state = used;
    return true;
}

// Returns false if the memory of device j has shrunk since the slot was planned, so that the slot is outside.
static bool slot_has_memory(const struct meta_buffer *mb, const struct meta_slot *slot, int j) {
    return slot->separate != NULL || slot->off + slot->size <= ggml_backend_buffer_get_size(mb->parts[j]);
}

bool meta_root_part(const struct ggml_tensor *root, const meta_state *state, int j, struct ggml_tensor *part) {
    const struct meta_buffer *mb = meta_buffer_of(root->buffer);
    if (mb == NULL) {
        return false;
    }
    const int n = mb->device->n;

    *part = (struct ggml_tensor){.type = root->type, .flags = root->flags};
    memcpy(part->name, root->name, sizeof part->name);
    meta_view_part(root, state, root, state, n, j, part);
    if (mb->ctxs != NULL) {
        const struct meta_entry *e = entry_of(root);
        if (e == NULL) {
            return false;
        }
        part->buffer = e->parts[j]->buffer;
        part->data = e->parts[j]->data;
        return true;
    }
    size_t step, off = meta_offset(root->data);
    const struct meta_slot *slots = meta_slots_at(mb, off, &step);
    const struct meta_slot *slot = slots != NULL ? &slots[(size_t) j * step] : NULL;

    if (slot != NULL ? !slot_has_memory(mb, slot, j) : mb->has_layouts) {
        return false;
    }
    part->buffer = slot != NULL && slot->separate != NULL ? slot->separate : mb->parts[j];
    part->data = (char *) ggml_backend_buffer_get_base(part->buffer) + (slot != NULL ? slot->off : off);
    return true;
}

const char *meta_root_fault(const struct ggml_tensor *root, char *text, size_t size) {
    const struct meta_buffer *mb = meta_buffer_of(root->buffer);
    size_t step = 0;
    if (mb == NULL || !mb->has_layouts) {
        return NULL;
    }
    const struct meta_slot *slots = meta_slots_at(mb, meta_offset(root->data), &step);
    if (slots == NULL) {
        snprintf(text, size,
            "was placed by a plan that has been dropped, and only the last %d dropped plans are kept: allocate the graph again",
            META_OLD_MAX);
        return text;
    }
    for (int j = 0; j < mb->device->n; j++) {
        const struct meta_slot *slot = &slots[(size_t) j * step];
        if (!slot_has_memory(mb, slot, j)) {
            snprintf(text, size,
                "ends at byte %llu on device %d, whose buffer has %zu bytes since another graph was reserved: allocate the graph "
                "again",
                (unsigned long long) (slot->off + slot->size), j, ggml_backend_buffer_get_size(mb->parts[j]));
            return text;
        }
    }
    return NULL;
}

bool meta_root_fits(const struct ggml_tensor *root, const meta_state *state, int j) {
    const struct meta_buffer *mb = meta_buffer_of(root->buffer);
    size_t step = 0;
    const struct meta_slot *slots = mb != NULL ? meta_slots_at(mb, meta_offset(root->data), &step) : NULL;
    struct ggml_tensor part = {.type = root->type};
    if (slots == NULL) {
        return true;
    }
    meta_view_part(root, state, root, state, mb->device->n, j, &part);
    return ggml_nbytes(&part) <= slots[(size_t) j * step].size;
}

// ---- buffers ----

static void *buffer_base(ggml_backend_buffer_t buffer) {
    (void) buffer;
    return (void *) META_BASE;
}

static void meta_buffer_free(struct meta_buffer *mb) {
    meta_layouts_leave(mb);
    for (int j = 0; j < mb->device->n; j++) {
        if (mb->parts != NULL) {
            ggml_backend_buffer_free(mb->parts[j]);
        }
        if (mb->ctxs != NULL) {
            ggml_free(mb->ctxs[j]);
        }
    }
    for (size_t i = 0; i < mb->n_entries; i++) {
        berth_free(mb->entries[i].parts);
    }
    berth_free(mb->entries);
    berth_free(mb->states);
    berth_free(mb->parts);
    berth_free(mb->ctxs);
    berth_free(mb);
}

static void buffer_free(ggml_backend_buffer_t buffer) {
    meta_buffer_free(buffer->context);
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    const struct meta_buffer *mb = buffer->context;
    for (int j = 0; j < mb->device->n; j++) {
        ggml_backend_buffer_clear(mb->parts[j], value);
    }
    meta_layouts_each_separate(mb, ggml_backend_buffer_clear, value);
}

static void reset_separate(ggml_backend_buffer_t separate, uint8_t value) {
    (void) value;
    ggml_backend_buffer_reset(separate);
}

static void buffer_reset(ggml_backend_buffer_t buffer) {
    const struct meta_buffer *mb = buffer->context;
    for (int j = 0; j < mb->device->n; j++) {
        ggml_backend_buffer_reset(mb->parts[j]);
    }
    meta_layouts_each_separate(mb, reset_separate, 0);
}

// Asks the callback for the state of t. Returns false with an error if the state does not fit the tensor.
static bool state_ask(const struct meta_device *device, const struct ggml_tensor *t, meta_state *state) {
    *state = device->get_state != NULL ? device->get_state(t, device->user) : meta_mirrored;
    const char *fault = meta_state_fault(state, t, device->n);
    if (fault != NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the split of %s (axis %d of %lld x %lld x %lld x %lld, %u segments) is invalid: %s",
            device->name, berth_name_of(t), (int) state->axis, (long long) t->ne[0], (long long) t->ne[1], (long long) t->ne[2],
            (long long) t->ne[3], state->n_segments, fault);
    }
    return fault == NULL;
}

static enum ggml_status fail_no_memory(const struct meta_buffer *mb, const struct ggml_tensor *t) {
    return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for the split of %s", mb->device->name, berth_name_of(t));
}

static enum ggml_status buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t) {
    const struct meta_buffer *mb = buffer->context;
    if (mb->ctxs != NULL || t->view_src != NULL || buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
        return GGML_STATUS_SUCCESS;
    }
    meta_state state;
    if (!state_ask(mb->device, t, &state)) {
        return GGML_STATUS_FAILED;
    }
    return meta_root_record(t, &state) ? GGML_STATUS_SUCCESS : fail_no_memory(mb, t);
}

// ---- access from the host ----

// The host reads and writes byte ranges of the complete tensor. After a write to a partial tensor, the first device has the bytes
// and the other devices have zeros, so that the sum is correct.

enum access_kind { ACCESS_SET, ACCESS_GET, ACCESS_FILL };

struct access {
    enum access_kind kind;
    char *data;          // the caller's memory, for the range
    size_t offset, size; // range in bytes from the start of the root
    uint8_t value;       // for ACCESS_FILL
    struct ggml_tensor *parts;
};

static void piece_access(const struct access *a, const struct meta_piece *p) {
    struct ggml_tensor *part = &a->parts[p->j];
    char *data = a->data != NULL ? a->data + (p->whole - a->offset) : NULL;
    if (a->kind == ACCESS_SET) {
        ggml_backend_tensor_set_2d(part, data, p->part, p->size, p->n_outer, p->part_step, p->whole_step);
    } else if (a->kind == ACCESS_GET) {
        ggml_backend_tensor_get_2d(part, data, p->part, p->size, p->n_outer, p->part_step, p->whole_step);
    } else {
        for (size_t i = 0; i < p->n_outer; i++) {
            ggml_backend_tensor_memset(part, a->value, p->part + i * p->part_step, p->size);
        }
    }
}

static void piece_access_clipped(const struct access *a, const struct meta_piece *p, size_t i) {
    const size_t at = p->whole + i * p->whole_step, range_end = a->offset + a->size;
    const size_t from = max_size(at, a->offset), to = min_size(at + p->size, range_end);
    if (from < to) {
        struct meta_piece one = *p;
        one.part += i * p->part_step + (from - at);
        one.whole = from;
        one.size = to - from;
        one.n_outer = 1;
        piece_access(a, &one);
    }
}

static bool piece_visit(const struct meta_piece *p, void *user) {
    const struct access *a = user;
    const size_t range_end = a->offset + a->size;
    size_t first = a->offset > p->whole ? (a->offset - p->whole + p->whole_step - 1) / p->whole_step : 0, end = p->n_outer;
    if (range_end < p->whole + p->size) {
        end = 0;
    } else if ((range_end - p->whole - p->size) / p->whole_step + 1 < end) {
        end = (range_end - p->whole - p->size) / p->whole_step + 1;
    }
    if (first < end) {
        struct meta_piece some = *p;
        some.part += first * p->part_step;
        some.whole += first * p->whole_step;
        some.n_outer = end - first;
        piece_access(a, &some);
    }
    if (first > 0 && first <= p->n_outer) {
        piece_access_clipped(a, p, first - 1);
    }
    if (end < p->n_outer && end >= first) {
        piece_access_clipped(a, p, end);
    }
    return true;
}

// Adds the parts of a partial tensor, which are f32.
static void get_sum(const struct access *a, const struct ggml_tensor *root, int n) {
    float sum[1024], one[1024]; // fixed blocks: no allocation
    if (a->offset % sizeof(float) != 0 || a->size % sizeof(float) != 0) {
        berth_backend_fail(NULL,
            "cannot read bytes %zu to %zu of %s: it is a sum over devices, and the range does not consist of complete elements",
            a->offset, a->offset + a->size, berth_name_of(root));
        return;
    }
    for (size_t at = 0; at < a->size; at += sizeof sum) {
        const size_t size = min_size(a->size - at, sizeof sum);
        for (int j = 0; j < n; j++) {
            ggml_backend_tensor_get(&a->parts[j], j == 0 ? sum : one, a->offset + at, size);
            for (size_t i = 0; i < size / sizeof(float) && j > 0; i++) {
                sum[i] += one[i];
            }
        }
        memcpy(a->data + at, sum, size);
    }
}

static void access_whole(const struct access *a, int j) {
    if (a->kind == ACCESS_SET) {
        ggml_backend_tensor_set(&a->parts[j], a->data, a->offset, a->size);
    } else if (a->kind == ACCESS_GET) {
        ggml_backend_tensor_get(&a->parts[j], a->data, a->offset, a->size);
    } else {
        ggml_backend_tensor_memset(&a->parts[j], a->value, a->offset, a->size);
    }
}

static void access_run(const struct ggml_tensor *tensor, struct access a) {
    const struct ggml_tensor *root = meta_root(tensor);
    const meta_state *state = meta_root_state(root);
    const struct meta_buffer *mb = meta_buffer_of(root->buffer);
    struct ggml_tensor parts[META_MAX];
    a.offset += (size_t) ((uintptr_t) tensor->data - (uintptr_t) root->data);
    a.parts = parts;
    for (int j = 0; mb != NULL && j < mb->device->n; j++) {
        if (!meta_root_fits(root, state, j) || !meta_root_part(root, state, j, &parts[j])) {
            mb = NULL;
        }
    }
    if (mb == NULL) {
        char text[192];
        const char *fault = meta_root_fault(root, text, sizeof text);
        berth_backend_fail(NULL, "tensor %s %s", berth_name_of(tensor),
            fault != NULL ? fault : "has an address outside the memory of its buffer");
    } else if (meta_is_split(state)) {
        meta_pieces(root, state, mb->device->n, -1, piece_visit, &a);
    } else if (a.kind == ACCESS_GET && meta_is_partial(state)) {
        get_sum(&a, root, mb->device->n);
    } else {
        access_whole(&a, 0);
        for (int j = 1; j < mb->device->n && a.kind != ACCESS_GET; j++) {
            if (meta_is_partial(state)) {
                a.kind = ACCESS_FILL;
                a.value = 0;
            }
            access_whole(&a, j);
        }
    }
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset, size_t size) {
    (void) buffer;
    access_run(t, (struct access){.kind = ACCESS_SET, .data = (char *) (uintptr_t) data, .offset = offset, .size = size});
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset, size_t size) {
    (void) buffer;
    access_run(t, (struct access){.kind = ACCESS_GET, .data = data, .offset = offset, .size = size});
}

static void buffer_fill(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset, size_t size) {
    (void) buffer;
    access_run(t, (struct access){.kind = ACCESS_FILL, .value = value, .offset = offset, .size = size});
}

static const struct ggml_backend_buffer_i buffer_iface = {
    .free_buffer = buffer_free,
    .get_base = buffer_base,
    .init_tensor = buffer_init_tensor,
    .memset_tensor = buffer_fill,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .clear = buffer_clear,
    .reset = buffer_reset,
};

struct meta_buffer *meta_buffer_of(ggml_backend_buffer_t buffer) {
    return buffer != NULL && buffer->iface.free_buffer == buffer_free ? buffer->context : NULL;
}

static atomic_uint_fast64_t last_id;

void meta_buffer_forget(struct meta_buffer *mb, size_t from, size_t to) {
    size_t n = 0;
    for (size_t i = 0; i < mb->n_entries; i++) {
        if (mb->entries[i].off >= from && mb->entries[i].off < to) {
            entry_fini(mb, &mb->entries[i]);
        } else {
            mb->entries[n++] = mb->entries[i];
        }
    }
    if (n < mb->n_entries) {
        mb->recorded_by = 0;
    }
    mb->n_entries = n;
}

void meta_buffer_renumber(struct meta_buffer *mb) {
    mb->id = ++last_id;
}

static struct meta_buffer *meta_buffer_new(struct meta_device *device, bool is_own) {
    struct meta_buffer *mb = berth_calloc(1, sizeof *mb);
    if (mb == NULL) {
        return NULL;
    }
    mb->device = device;
    mb->id = ++last_id;
    mb->parts = berth_calloc((size_t) device->n, sizeof mb->parts[0]);
    mb->ctxs = is_own ? berth_calloc((size_t) device->n, sizeof mb->ctxs[0]) : NULL;
    if (mb->parts == NULL || (is_own && mb->ctxs == NULL)) {
        meta_buffer_free(mb);
        return NULL;
    }
    return mb;
}

ggml_backend_buffer_t meta_buffer_make(ggml_backend_buffer_type_t buft, size_t space, size_t size) {
    struct meta_device *device = meta_device_of(buft);
    struct meta_buffer *mb = meta_buffer_new(device, false);
    bool ok = mb != NULL;
    for (int j = 0; ok && j < device->n; j++) {
        mb->parts[j] = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(device->parts[j]), size);
        ok = mb->parts[j] != NULL;
    }
    ggml_backend_buffer_t buffer = ok ? ggml_backend_buffer_init(buft, buffer_iface, mb, space) : NULL;
    if (buffer == NULL && mb != NULL) {
        meta_buffer_free(mb);
    }
    return buffer;
}

ggml_backend_buffer_t meta_buffer_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    const struct meta_device *device = meta_device_of(buft);
    ggml_backend_buffer_t buffer = meta_buffer_make(buft, size, size);
    if (buffer == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: cannot allocate a buffer of %zu bytes on each of %d devices", device->name,
            size, device->n);
    }
    return buffer;
}

// ---- tensors with their own memory ----

static bool needs_memory(const struct ggml_tensor *t) {
    return t->data == NULL && t->view_src == NULL;
}

static bool parts_make(struct meta_buffer *mb, const struct ggml_tensor *t, struct meta_entry *e) {
    const int n = mb->device->n;
    meta_state state;
    if (!state_ask(mb->device, t, &state)) {
        return false;
    }
    e->state = state_use(mb, &state);
    e->parts = e->state != SIZE_MAX ? berth_calloc((size_t) n, sizeof e->parts[0]) : NULL;
    if (e->parts == NULL) {
        return fail_no_memory(mb, t) == GGML_STATUS_SUCCESS;
    }
    for (int j = 0; j < n; j++) {
        int64_t ne[GGML_MAX_DIMS];
        memcpy(ne, t->ne, sizeof ne);
        if (meta_is_split(&state)) {
            ne[state.axis] = meta_len(&state, n, j);
        }
        e->parts[j] = ggml_new_tensor(mb->ctxs[j], t->type, GGML_MAX_DIMS, ne);
        if (e->parts[j] == NULL || berth_is_poison(e->parts[j])) {
            return false;
        }
        ggml_set_name(e->parts[j], t->name);
    }
    return true;
}

// Creates the parts of all tensors of the context. *size receives the number of addresses that the complete tensors take in the
// buffer.
static bool all_parts_make(struct meta_buffer *mb, struct ggml_context *ctx, size_t align, size_t *size) {
    size_t off = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (!needs_memory(t)) {
            continue;
        }
        struct meta_entry *e = &mb->entries[mb->n_entries++];
        *e = (struct meta_entry){.off = off, .size = ggml_nbytes(t)};
        size_t padded;
        if (!parts_make(mb, t, e) || !berth_add_ok(e->size > 0 ? e->size : 1, align - 1, &padded) ||
            !berth_add_ok(off, padded - padded % align, &off)) {
            return false;
        }
    }
    *size = off;
    return true;
}

static bool part_alloc(struct meta_buffer *mb, int j) {
    size_t size = 0;
    for (size_t i = 0; i < mb->n_entries; i++) {
        size += ggml_nbytes(mb->entries[i].parts[j]);
    }
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(mb->device->parts[j]);
    mb->parts[j] =
        size > 0 ? ggml_backend_alloc_ctx_tensors_from_buft(mb->ctxs[j], buft) : ggml_backend_buft_alloc_buffer(buft, 0);
    return mb->parts[j] != NULL;
}

static void place_all(struct meta_buffer *mb, struct ggml_context *ctx, ggml_backend_buffer_t buffer) {
    size_t i = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (needs_memory(t)) {
            t->buffer = buffer;
            t->data = (void *) (META_BASE + mb->entries[i++].off);
        }
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src != NULL && t->buffer == NULL && t->view_src->buffer != NULL) {
            t->buffer = t->view_src->buffer;
            t->data = (char *) t->view_src->data + t->view_offs;
        }
    }
}

struct ggml_backend_buffer *ggml_backend_meta_alloc_ctx_tensors_from_buft(
    struct ggml_context *ctx, ggml_backend_buffer_type_t buft) {
    struct meta_device *device = meta_device_of(buft);
    size_t n = 0, size = 0;
    if (ctx == NULL || device == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_meta_alloc_ctx_tensors_from_buft: %s",
            ctx == NULL ? "the context is NULL" : "the buffer type does not belong to a composite device");
        return NULL;
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        n += needs_memory(t);
    }
    if (n == 0) {
        return NULL;
    }
    struct meta_buffer *mb = meta_buffer_new(device, true);
    if (mb == NULL || !berth_grow((void **) &mb->entries, &mb->entries_cap, n, sizeof mb->entries[0])) {
        goto fail;
    }
    for (int j = 0; j < device->n; j++) {
        mb->ctxs[j] = ggml_init((struct ggml_init_params){.mem_size = (n + 1) * ggml_tensor_overhead(), .no_alloc = true});
        if (mb->ctxs[j] == NULL) {
            goto fail;
        }
    }
    if (!all_parts_make(mb, ctx, ggml_backend_buft_get_alignment(buft), &size)) {
        goto fail;
    }
    for (int j = 0; j < device->n; j++) {
        if (!part_alloc(mb, j)) {
            goto fail;
        }
    }
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(buft, buffer_iface, mb, size);
    if (buffer == NULL) {
        goto fail;
    }
    place_all(mb, ctx, buffer);
    return buffer;
fail:
    berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: cannot allocate memory for %zu tensors: %s", device->name, n, berth_last_error());
    if (mb != NULL) {
        meta_buffer_free(mb);
    }
    return NULL;
}

// ---- other functions of the interface ----

bool ggml_backend_buffer_is_meta(ggml_backend_buffer_t buf) {
    return meta_buffer_of(buf) != NULL;
}

size_t berth_meta_buffer_size(ggml_backend_buffer_t buffer, int64_t index) {
    const struct meta_buffer *mb = meta_buffer_of(buffer);
    return mb != NULL && index >= 0 && index < mb->device->n ? ggml_backend_buffer_get_size(mb->parts[index]) : 0;
}

void ggml_backend_meta_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    const struct meta_buffer *mb = meta_buffer_of(buffer);
    for (int j = 0; mb != NULL && j < mb->device->n; j++) {
        ggml_backend_buffer_set_usage(mb->parts[j], usage);
    }
}
