// SPDX-License-Identifier: MIT
// meta.h: a device made of several: what its files share.
//
//   device.c   devices, buffer types                      state.c    who holds which elements; views of what is split
//   buffer.c   memory; bytes in and out                   rule.c     how ops carry on what is split
//   layout.c   graphs' memory: a plan for each device     version.c  a tensor in another state
//   sizing.c   what a graph needs on each device          build.c    a graph as steps for each device
//   backend.c  the backend, and the programs it knows     program.c  programs and their memory
//   reserve.c  what lets a graph be computed later        run.c      a thread per device; sums and moves between devices
//              without allocating
//
// A tensor of such a device has an address that nobody may read: base + offset, which says where it lies on each device: in graph
// memory that was planned for each, by its layout; else at the same offset on all, or, allocated on its own, by its entry. Its
// root (the tensor itself, or what it is a view of) has a state; the states of views follow from their strides.
#pragma once

#include "backend/backend.h"
#include "record/record.h"

#define META_MAX GGML_BACKEND_META_MAX_DEVICES

static inline const struct ggml_tensor *meta_root(const struct ggml_tensor *t) {
    return t->view_src != NULL ? t->view_src : t;
}
#define META_MAX_SEGMENTS 16
#define META_BASE ((uintptr_t) 0x1000000000000000u) // never memory of the process

typedef struct ggml_backend_meta_split_state meta_state;

// ---- device.c ----

struct meta_device {
    struct ggml_backend_device dev; // first: a device is cast to this
    struct ggml_backend_buffer_type buft;
    ggml_backend_dev_t *parts; // [n]
    int n;
    ggml_backend_meta_get_split_state_t get_state;
    void *user;
    char *name;
    struct meta_device *next; // of all there are
};

struct meta_device *meta_device_of(ggml_backend_buffer_type_t buft); // NULL: not of such a device
bool meta_is_device(ggml_backend_dev_t dev);
ggml_backend_t meta_backend_new(ggml_backend_dev_t dev, const char *params);
enum ggml_status meta_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph);
size_t meta_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph);
ggml_backend_buffer_t meta_buffer_alloc(ggml_backend_buffer_type_t buft, size_t size);

// ---- state.c ----

extern const meta_state meta_mirrored, meta_partial;

static inline bool meta_is_split(const meta_state *s) {
    return (unsigned) s->axis < GGML_MAX_DIMS;
}
static inline bool meta_is_mirrored(const meta_state *s) {
    return s->axis == GGML_BACKEND_SPLIT_AXIS_MIRRORED;
}
static inline bool meta_is_partial(const meta_state *s) {
    return s->axis == GGML_BACKEND_SPLIT_AXIS_PARTIAL;
}
// The same elements on every device, in the same order.
bool meta_same(const meta_state *a, const meta_state *b, int n);
// Elements along the axis on device j.
int64_t meta_len(const meta_state *s, int n, int j);
// One stretch a device along the axis, in the order of the devices: a slice is a view of the whole.
bool meta_is_plain(const meta_state *s);
int64_t meta_start(const meta_state *s, int n, int j); // of such a stretch
// NULL, or what is wrong with what a callback said of the tensor.
const char *meta_state_fault(const meta_state *s, const struct ggml_tensor *t, int n);
// s with every count times num / den; false where that is not whole.
bool meta_scaled(const meta_state *s, int n, int axis, int64_t num, int64_t den, meta_state *out);
// Adds a segment, or a repetition of the last one. False: more segments than a state has room for.
bool meta_segment_add(meta_state *s, int n, const int64_t *ne);

// The state of t, a view of a root that is split by s. False: no state says it.
bool meta_view_state(const struct ggml_tensor *root, const meta_state *s, const struct ggml_tensor *t, int n, meta_state *out);
// The part of device j of t: extents, strides, and the offset in the root's part. t is the root, or a view of it that has a
// state of its own (as): extents and strides are written into part, the offset is returned.
size_t meta_view_part(const struct ggml_tensor *root, const meta_state *s, const struct ggml_tensor *t, const meta_state *as,
    int n, int j, struct ggml_tensor *part);

// A stretch of the root's bytes that repeats: piece i of n_outer is at whole + i * whole_step in the whole tensor, and at
// part + i * part_step in the part of device j.
struct meta_piece {
    int j;
    size_t whole, part, size;
    size_t whole_step, part_step, n_outer;
};
// Calls do_piece for every piece of device j (-1: of all). Stops when it says false.
bool meta_pieces(const struct ggml_tensor *root, const meta_state *s, int n, int j,
    bool (*do_piece)(const struct meta_piece *p, void *user), void *user);

// ---- buffer.c ----

// What lies at an offset of a buffer.
struct meta_entry {
    size_t off, size;           // of the whole tensor, as its addresses say
    size_t state;               // index of the buffer's states
    struct ggml_tensor **parts; // [n] of a tensor with memory of its own; NULL: each part lies at off
};

// Entries that are split alike have one.
struct meta_state_used {
    meta_state state;
    size_t n_uses; // 0: free
};

struct meta_buffer {
    struct meta_device *device;
    uint64_t id;                  // no other buffer of the process has or had it
    ggml_backend_buffer_t *parts; // [n]; NULL: nothing of it is there
    struct ggml_context **ctxs;   // [n] of the parts of tensors with memory of their own; NULL: memory of graphs
    struct meta_entry *entries;   // by off; no two overlap
    size_t n_entries, entries_cap;
    struct meta_state_used *states;
    size_t n_states, states_cap;
    uint64_t noted_by; // program whose results the entries say, 0: of several
    bool is_laid_out;  // all in it lies in one of its layouts
    struct meta_layout *layouts;
    struct meta_layout *old; // without a plan, the newest first
};

struct meta_buffer *meta_buffer_of(ggml_backend_buffer_t buffer); // NULL: another kind of buffer
static inline size_t meta_offset(const void *data) {
    return (uintptr_t) data - META_BASE;
}
// What holds a root's bytes now: of memory of its own what the callback said, of graph memory what was computed there last.
const meta_state *meta_root_state(const struct ggml_tensor *root);
// A root in graph memory holds this from now on, and what overlapped it is gone. False: out of memory.
bool meta_root_note(const struct ggml_tensor *root, const meta_state *state) BERTH_MUST_USE;
// Room for notes of so many roots in so many states. False: out of memory.
bool meta_buffer_reserve(struct meta_buffer *mb, size_t n_entries, size_t n_states) BERTH_MUST_USE;
// The root's part on device j: buffer, data, extents, strides. False: not of such a device.
bool meta_root_part(const struct ggml_tensor *root, const meta_state *state, int j, struct ggml_tensor *part);
// NULL, or why its buffer has no memory where the root lies.
const char *meta_root_fault(const struct ggml_tensor *root, char *text, size_t size);
// Has the root room on device j for its part in this state? Parts of graph memory that was planned for another state have not.
bool meta_root_fits(const struct ggml_tensor *root, const meta_state *state, int j);
// A buffer of so many addresses, with memory of so many bytes on each device. NULL: out of memory, without a message.
ggml_backend_buffer_t meta_buffer_make(ggml_backend_buffer_type_t buft, size_t space, size_t size);
// Its parts are no longer where they were: programs that know them are not for it any more.
void meta_buffer_renumber(struct meta_buffer *mb);
// Nothing is noted of these addresses.
void meta_buffer_forget(struct meta_buffer *mb, size_t from, size_t to);

// ---- layout.c ----

// A piece of a graph's memory on one device.
struct meta_slot {
    uint64_t off, size;
    ggml_backend_buffer_t apart; // NULL: in the buffer's part
};

struct meta_layout {
    struct berth_layout head; // first: one is cast to the other
    struct meta_buffer *in;   // NULL: nowhere yet
    struct meta_layout *next; // of the buffer's
    bool is_old;              // it has no plan
    int n;
    size_t n_items, end;     // end of its addresses
    size_t *starts;          // [n_items] addresses, ascending
    struct meta_slot *slots; // [n * n_items] of device j from j * n_items on
    size_t n_apart;          // of them with memory beside the buffer's parts
    uint64_t peak[META_MAX];
};

enum ggml_status meta_layout_new(ggml_backend_buffer_type_t buft, struct record *rec, const struct lifetimes *lives,
    const struct berth_layout_params *params, uint64_t *offsets, struct berth_layout **out);
// Its plan is gone. What lies there can be computed and read until META_OLD_MAX others have gone, or fewer if they are large.
void meta_layout_free(struct berth_layout *layout);
#define META_OLD_MAX 64
// The buffer goes.
void meta_layouts_leave(struct meta_buffer *mb);
ggml_backend_buffer_t meta_layout_buffer(ggml_backend_buffer_type_t buft);
bool meta_layout_ensure_memory(ggml_backend_buffer_t buffer, struct berth_layout *layout, bool is_exact, bool *is_moved);
size_t meta_layout_bytes(ggml_backend_buffer_t buffer);
// For all memory beside the buffer's parts.
void meta_layouts_apart(const struct meta_buffer *mb, void (*call)(ggml_backend_buffer_t apart, uint8_t value), uint8_t value);
// The slots of what lies at an address: that of device j is at [j * step]. NULL: no layout has it.
struct meta_slot *meta_slots_at(const struct meta_buffer *mb, size_t off, size_t *step);
// More room for a root on device j, whose bytes go along. False: out of memory.
bool meta_slot_grow(const struct ggml_tensor *root, int j, size_t size) BERTH_MUST_USE;
