// SPDX-License-Identifier: MIT
// meta.h: composite devices: declarations that the files of this folder share.
//
//   device.c   devices, buffer types                      state.c    which elements each device has; views of split tensors
//   buffer.c   memory; access from the host               rule.c     how an op splits
//   layout.c   memory of graphs: a plan per device        version.c  a tensor in another state
//   sizing.c   sizes of a graph on each device            build.c    a graph as steps for each device
//   backend.c  the backend and its cached programs        program.c  programs (the work of a graph per device), their memory
//   reserve.c  memory for later computations              run.c      a thread per device; sums and moves between devices
//
// The address of a tensor is META_BASE + offset. Such an address cannot be dereferenced.
// The offset leads to the tensor's memory on each device:
// - If the tensor is in graph memory that was planned per device, the layout maps the offset to memory (layout.c).
// - If the tensor has its own memory, as a weight has, a struct meta_entry maps the offset to memory.
// - Otherwise the tensor is at the same offset of a buffer on each device.
//
// Terms:
// - A root is a tensor that is not a view.
// - The state of a root says which elements each device has. There are three kinds of states. Mirrored: every device has the
//   complete tensor. Partial: every device has a term, and the sum of the terms is the value. Split: the elements along one axis
//   are divided among the devices.
// - The state of a view follows from its strides and the state of its root.
// - A part is the share of a tensor on one device. A part of a composite device is one of the devices that it combines.
// Everywhere in this folder, n is the number of combined devices, and j is the index of one of them.
#pragma once

#include "backend/backend.h"
#include "record/record.h"

#define META_MAX GGML_BACKEND_META_MAX_DEVICES

static inline const struct ggml_tensor *meta_root(const struct ggml_tensor *t) {
    return t->view_src != NULL ? t->view_src : t;
}
#define META_MAX_SEGMENTS 16
#define META_BASE ((uintptr_t) 0x1000000000000000u) // outside the address space of the process

typedef struct ggml_backend_meta_split_state meta_state;

// ---- device.c ----

struct meta_device {
    struct ggml_backend_device dev; // first field: pointers to it are cast to struct meta_device
    struct ggml_backend_buffer_type buft;
    ggml_backend_dev_t *parts; // [n] the combined devices
    int n;
    ggml_backend_meta_get_split_state_t get_state;
    void *user;
    char *name;
    struct meta_device *next; // next composite device of the process
};

struct meta_device *meta_device_of(ggml_backend_buffer_type_t buft); // NULL: not a composite device
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
bool meta_same(const meta_state *a, const meta_state *b, int n);
int64_t meta_len(const meta_state *s, int n, int j); // number of elements along the split axis on device j
// Returns true if each device has one contiguous range along the axis, in device order.
// The part of a device is then a view of the complete tensor.
bool meta_is_plain(const meta_state *s);
int64_t meta_start(const meta_state *s, int n, int j); // s is plain: start of the range of device j
// Returns NULL, or the reason why a state from a callback does not fit the tensor.
const char *meta_state_fault(const meta_state *s, const struct ggml_tensor *t, int n);
// Multiplies every count of s by num / den. Returns false if a result is not an integer.
bool meta_scaled(const meta_state *s, int n, int axis, int64_t num, int64_t den, meta_state *out);
// Appends a segment with ne[j] elements on device j. If the last segment is equal, its number of repetitions grows instead.
// Returns false if the state already has META_MAX_SEGMENTS segments.
bool meta_segment_add(meta_state *s, int n, const int64_t *ne);

// Computes the state of t, which is a view of a root with state s. Returns false if no state describes t.
bool meta_view_state(const struct ggml_tensor *root, const meta_state *s, const struct ggml_tensor *t, int n, meta_state *out);
// Computes the part of t on device j. s: state of the root. t: the root or a view of it. t_state: state of t. Writes the extents
// and strides to part. Returns the byte offset of t's part in the root's part.
size_t meta_view_part(const struct ggml_tensor *root, const meta_state *s, const struct ggml_tensor *t, const meta_state *t_state,
    int n, int j, struct ggml_tensor *part);

// A range of `size` bytes of a root that is on device j, with n_outer repetitions. Repetition i starts at byte whole + i *
// whole_step of the complete tensor, and at byte part + i * part_step of the part.
struct meta_piece {
    int j;
    size_t whole, part, size;
    size_t whole_step, part_step, n_outer;
};
// Calls do_piece for each piece of the root on device j; j = -1: on all devices. Stops when do_piece returns false.
bool meta_pieces(const struct ggml_tensor *root, const meta_state *s, int n, int j,
    bool (*do_piece)(const struct meta_piece *p, void *user), void *user);

// ---- buffer.c ----

struct meta_entry {
    size_t off, size;           // offset and bytes of the complete tensor
    size_t state;               // index in the buffer's states
    struct ggml_tensor **parts; // [n] parts of a tensor with its own memory; NULL: memory of graphs
};

struct meta_state_used {
    meta_state state;
    size_t n_uses; // 0: free
};

struct meta_buffer {
    struct meta_device *device;
    uint64_t id;                  // unique in the process, also among buffers that were freed
    ggml_backend_buffer_t *parts; // [n] NULL: no memory there
    struct ggml_context **ctxs;   // [n] contexts of tensor parts; NULL: graph memory
    struct meta_entry *entries;   // sorted by off; they do not overlap
    size_t n_entries, entries_cap;
    struct meta_state_used *states;
    size_t n_states, states_cap;
    uint64_t recorded_by; // id of the last program that recorded states here; 0: none, or entries were removed since
    bool has_layouts;     // the buffer was made for layouts: every tensor is in one of them
    struct meta_layout *layouts;
    struct meta_layout *old; // layouts whose plan was dropped, newest first
};

struct meta_buffer *meta_buffer_of(ggml_backend_buffer_t buffer); // NULL: another kind of buffer
static inline size_t meta_offset(const void *data) {
    return (uintptr_t) data - META_BASE;
}
// Returns the state of the root. If the root has its own memory, the callback get_state decided the state. In graph memory, the
// last computation decided the state.
const meta_state *meta_root_state(const struct ggml_tensor *root);
// Stores the state of a root in graph memory. Entries that overlap the root are removed. Returns false if out of memory.
bool meta_root_record(const struct ggml_tensor *root, const meta_state *state) BERTH_MUST_USE;
// Returns false if out of memory.
bool meta_buffer_reserve(struct meta_buffer *mb, size_t n_entries, size_t n_states) BERTH_MUST_USE;
// Sets buffer, data, extents and strides of the root's part on device j. Returns false if the root is not on a composite device,
// or has no memory there.
bool meta_root_part(const struct ggml_tensor *root, const meta_state *state, int j, struct ggml_tensor *part);
// Returns NULL, or the reason why the buffer has no memory at the root's address.
const char *meta_root_fault(const struct ggml_tensor *root, char *text, size_t size);
// Returns false if the memory of the root on device j is too small for the state, because it was planned for another state.
bool meta_root_fits(const struct ggml_tensor *root, const meta_state *state, int j);
// Returns a buffer with `space` addresses and `size` bytes on each device. Returns NULL if out of memory, and logs no error.
ggml_backend_buffer_t meta_buffer_make(ggml_backend_buffer_type_t buft, size_t space, size_t size);
// Call after parts have moved: programs that refer to the old id become invalid.
void meta_buffer_renumber(struct meta_buffer *mb);
// Removes the entries at offsets [from, to).
void meta_buffer_forget(struct meta_buffer *mb, size_t from, size_t to);

// ---- layout.c ----

// The memory of an item on one device.
struct meta_slot {
    uint64_t off, size;
    ggml_backend_buffer_t separate; // memory of this slot only; NULL: the slot is in meta_buffer.parts
};

struct meta_layout {
    struct berth_layout head; // first field: pointers to it are cast to struct meta_layout
    struct meta_buffer *in;   // buffer that has memory for this layout, NULL: none yet
    struct meta_layout *next; // next layout of the buffer
    bool is_old;              // its plan was dropped
    int n;
    size_t n_items, end;     // end: offset after its last address
    size_t *starts;          // [n_items] offsets of the items' addresses, ascending
    struct meta_slot *slots; // [n * n_items] the slots of device j start at index j * n_items
    size_t n_separate;       // number of slots with separate memory
    uint64_t peak[META_MAX]; // bytes on each device
};

enum ggml_status meta_layout_new(ggml_backend_buffer_type_t buft, struct record *rec, const struct lifetimes *lives,
    const struct berth_layout_params *params, uint64_t *offsets, struct berth_layout **out);
// Called when the plan of the layout is dropped.
// The layout's tensors stay valid until META_OLD_MAX later plans have been dropped, or fewer if layouts are large.
void meta_layout_free(struct berth_layout *layout);
#define META_OLD_MAX 64
// Called when the buffer is freed.
void meta_layouts_leave(struct meta_buffer *mb);
ggml_backend_buffer_t meta_layout_buffer(ggml_backend_buffer_type_t buft);
bool meta_layout_ensure_memory(ggml_backend_buffer_t buffer, struct berth_layout *layout, bool is_exact, bool *is_moved);
size_t meta_layout_bytes(ggml_backend_buffer_t buffer);
void meta_layouts_each_separate(
    const struct meta_buffer *mb, void (*call)(ggml_backend_buffer_t separate, uint8_t value), uint8_t value);
// Returns the slots of the item that starts at offset off. The slot of device j is at index j * step of the result. Returns NULL
// if no item starts at off.
struct meta_slot *meta_slots_at(const struct meta_buffer *mb, size_t off, size_t *step);
// Gives the root separate memory of `size` bytes on device j and copies its bytes there. Returns false if out of memory.
bool meta_slot_grow(const struct ggml_tensor *root, int j, size_t size) BERTH_MUST_USE;
