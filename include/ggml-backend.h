// SPDX-License-Identifier: MIT
// ggml-backend.h: devices, buffers, backends, and the scheduler that runs one graph over several of them.
//
// A registry (ggml_backend_reg_t) lists the devices of one kind, such as CUDA. A device (ggml_backend_dev_t) creates backends. A
// backend (ggml_backend_t) is a stream of work on its device. A buffer type is a kind of memory. A buffer is a range of that
// memory.
//
// General rules:
//   - Sizes, offsets and strides are in bytes.
//   - A function that fails returns a status, false or NULL and sets berth_last_error() (berth.h).
//   - A void function that fails changes nothing. If it has a backend, the backend keeps the first such failure, and its next
//     synchronize or compute returns it.
//   - Every function accepts NULL. A query then returns NULL, 0 or false; an action is refused.
//   - Strings that functions return belong to the object they describe. The caller does not free them.
//   - The caller does not free registries, devices and buffer types. The caller frees backends, buffers, events and schedulers.
//   - Functions of registries, devices and buffer types can be called from any thread. Use one backend, one buffer or one
//     scheduler from one thread at a time.
#pragma once

#include "ggml-alloc.h"
#include "ggml.h"

// The largest number of devices that one composite device can combine.
#define GGML_BACKEND_META_MAX_DEVICES 16

#ifdef __cplusplus
extern "C" {
#endif

// A mark in the work of one backend. Another backend or the host can wait for it.
typedef struct ggml_backend_event *ggml_backend_event_t;

// A graph that one backend has prepared to compute many times.
typedef void *ggml_backend_graph_plan_t;

// The registry of one kind of backend: a list of its devices.
typedef struct ggml_backend_reg *ggml_backend_reg_t;

// A device that computes, such as the CPU or one GPU.
typedef struct ggml_backend_device *ggml_backend_dev_t;

// The purpose of a buffer.
enum ggml_backend_buffer_usage {
    GGML_BACKEND_BUFFER_USAGE_ANY = 0,     // no particular purpose
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS = 1, // weights: the scheduler runs ops where their weights are
    GGML_BACKEND_BUFFER_USAGE_COMPUTE = 2, // tensors of graphs; graph allocators set it for their buffers
};

// The kind of a device.
enum ggml_backend_dev_type {
    GGML_BACKEND_DEVICE_TYPE_CPU = 0,   // the host's processor, on host memory
    GGML_BACKEND_DEVICE_TYPE_GPU = 1,   // a GPU with its own memory
    GGML_BACKEND_DEVICE_TYPE_IGPU = 2,  // a GPU that uses host memory
    GGML_BACKEND_DEVICE_TYPE_ACCEL = 3, // an accelerator; Berth's own backends have none
    GGML_BACKEND_DEVICE_TYPE_META = 4,  // a composite device (ggml_backend_meta_device)
};

// How the elements of a tensor are distributed over the parts of a composite device.
enum ggml_backend_meta_split_axis {
    GGML_BACKEND_SPLIT_AXIS_0 = 0,         // each part holds some elements of ne[0]
    GGML_BACKEND_SPLIT_AXIS_1 = 1,         // each part holds some elements of ne[1]
    GGML_BACKEND_SPLIT_AXIS_2 = 2,         // each part holds some elements of ne[2]
    GGML_BACKEND_SPLIT_AXIS_3 = 3,         // each part holds some elements of ne[3]
    GGML_BACKEND_SPLIT_AXIS_MIRRORED = 10, // each part holds all elements
    GGML_BACKEND_SPLIT_AXIS_PARTIAL = 11,  // each part holds a summand of every element; f32 only
    GGML_BACKEND_SPLIT_AXIS_NONE = 98,     // no distribution; not a valid answer of a callback
    GGML_BACKEND_SPLIT_AXIS_UNKNOWN = 99,  // unknown; not a valid answer of a callback
};

// Capabilities of a device.
struct ggml_backend_dev_caps {
    bool async;                // graph_compute and copies may return before they are complete
    bool host_buffer;          // the device has a host buffer type (ggml_backend_dev_host_buffer_type)
    bool buffer_from_host_ptr; // weights can be used where they are in host memory, by ggml_backend_dev_buffer_from_host_ptr
    bool events;               // ggml_backend_event_new works
    bool mmap_support;         // weights may be read through a mapping of their file
};

// Properties of a device. The strings belong to the device.
struct ggml_backend_dev_props {
    const char *name;                  // as ggml_backend_dev_name returns it
    const char *description;           // as ggml_backend_dev_description returns it
    size_t memory_free;                // free bytes of the device's memory
    size_t memory_total;               // all bytes of the device's memory
    enum ggml_backend_dev_type type;   // kind of the device
    const char *device_id;             // identifies the hardware, such as a PCI address; NULL: unknown
    struct ggml_backend_dev_caps caps; // capabilities
};

// A feature of a backend, such as an instruction set. Lists of features end with an element whose name is NULL.
struct ggml_backend_feature {
    const char *name;  // such as "AVX2"; NULL ends a list
    const char *value; // such as "1"
};

// The distribution of one tensor over the n parts of a composite device. The axis consists of segments. Segment i is repeated
// nr[i] times. In each repetition, part j holds ne[i * n + j] elements, in the order of the parts. All counts must sum to the
// extent of the axis.
struct ggml_backend_meta_split_state {
    enum ggml_backend_meta_split_axis axis;         // the axis, or one of MIRRORED and PARTIAL, which need no counts
    int64_t ne[16 * GGML_BACKEND_META_MAX_DEVICES]; // elements along the axis, per segment and part
    uint32_t nr[16];                                // repetitions of each segment
    uint32_t n_segments;                            // 1 to 16
};

// A copy of a graph on another backend, made by ggml_backend_graph_copy. All members are NULL after a failure.
struct ggml_backend_graph_copy {
    ggml_backend_buffer_t buffer;         // memory of all tensors that are not views
    struct ggml_context *ctx_allocated;   // tensors with memory of their own, and the graph
    struct ggml_context *ctx_unallocated; // views
    struct ggml_cgraph *graph;            // the copy; node i is the copy of node i of the original
};

struct ggml_backend_sched;

// Type of the procedure "ggml_backend_comm_init": prepares sums over the given backends. Returns a handle, or NULL if this is not
// possible. The arguments are the backends and their number.
typedef void *(*ggml_backend_comm_init_t)(ggml_backend_t *, size_t);

// Type of the procedure "ggml_backend_comm_free": frees a handle of ggml_backend_comm_init.
typedef void (*ggml_backend_comm_free_t)(void *);

// Type of the procedure "ggml_backend_comm_allreduce_tensor": adds up one tensor per backend; each tensor then holds the sum.
// Returns false if it cannot.
typedef bool (*ggml_backend_comm_allreduce_tensor_t)(void *, struct ggml_tensor **);

// Type of a procedure of backends that can split the rows of one matrix over several GPUs. Berth's own backends do not have it.
typedef ggml_backend_buffer_type_t (*ggml_backend_split_buffer_type_t)(int, const float *);

// Type of the procedure "ggml_backend_set_n_threads": sets the number of threads of a backend.
typedef void (*ggml_backend_set_n_threads_t)(ggml_backend_t, int);

// Type of the procedure "ggml_backend_dev_get_extra_bufts": returns further buffer types of a device. The list ends with NULL and
// belongs to the device.
typedef ggml_backend_buffer_type_t *(*ggml_backend_dev_get_extra_bufts_t)(ggml_backend_dev_t);

// Type of the procedure "ggml_backend_set_abort_callback": sets the function that a backend calls while it computes; a true
// answer ends the compute with GGML_STATUS_ABORTED.
typedef void (*ggml_backend_set_abort_callback_t)(ggml_backend_t, ggml_abort_callback, void *);

// Type of the procedure "ggml_backend_get_features": returns the features of a backend. The list ends with a NULL name and
// belongs to the registry.
typedef struct ggml_backend_feature *(*ggml_backend_get_features_t)(ggml_backend_reg_t);

// Runs one graph over several backends.
typedef struct ggml_backend_sched *ggml_backend_sched_t;

// Called while a scheduler computes. The arguments are the node, ask and the user data. With ask = true it is called before the
// node runs and returns whether the caller needs the node's result. With ask = false the result is ready; false then ends the
// graph.
typedef bool (*ggml_backend_sched_eval_callback)(struct ggml_tensor *, bool, void *);

// Returns the distribution of a tensor over the parts of a composite device. The arguments are the tensor and the user data. It
// is called once per tensor, when the tensor gets memory.
typedef struct ggml_backend_meta_split_state (*ggml_backend_meta_get_split_state_t)(const struct ggml_tensor *, void *);

// Receives one node of two graphs that are compared: its index, the first graph's tensor, the second graph's tensor, the user
// data. A false answer ends the comparison.
typedef bool (*ggml_backend_eval_callback)(int, struct ggml_tensor *, struct ggml_tensor *, void *);

// ---- buffer types ----

// Returns the name of the buffer type, such as "CPU".
GGML_API const char *ggml_backend_buft_name(ggml_backend_buffer_type_t buft);

// Allocates a buffer of size bytes. The caller frees it with ggml_backend_buffer_free. Size 0 gives a buffer without memory.
// Returns NULL on failure.
GGML_API ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size);

// Returns the alignment of tensors in buffers of this type. It is at least 1.
GGML_API size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t buft);

// Returns the largest size of one buffer. Returns SIZE_MAX if there is no limit.
GGML_API size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t buft);

// Returns the bytes that the tensor takes in a buffer of this type. That is ggml_nbytes or more.
GGML_API size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor);

// Returns whether the host can read and write the addresses of such buffers directly.
GGML_API bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t buft);

// Returns the device of the buffer type. Returns NULL for host memory that belongs to no device.
GGML_API ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft);

// ---- buffers ----

// Returns the name of the buffer's type.
GGML_API const char *ggml_backend_buffer_name(ggml_backend_buffer_t buffer);

// Frees the buffer and its memory. Tensors that are in it must not be used any more.
GGML_API void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);

// Returns the address of the first byte. It is a host address only if ggml_backend_buffer_is_host. Returns NULL for an empty
// buffer and for a buffer that combines several buffers.
GGML_API void *ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer);

// Returns the size of the buffer.
GGML_API size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer);

// Informs the buffer that the tensor, whose address is set, is in it. Programs do not need this call: ggml_backend_tensor_alloc
// and ggml_backend_view_init make it.
GGML_API enum ggml_status ggml_backend_buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);

// Returns the alignment of tensors in the buffer.
GGML_API size_t ggml_backend_buffer_get_alignment(ggml_backend_buffer_t buffer);

// Returns the largest size of one buffer of this buffer's type.
GGML_API size_t ggml_backend_buffer_get_max_size(ggml_backend_buffer_t buffer);

// Returns the bytes that the tensor takes in the buffer. That is ggml_nbytes or more.
GGML_API size_t ggml_backend_buffer_get_alloc_size(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor);

// Sets every byte of the buffer to value. It does nothing, with an error, if the buffer cannot be cleared.
GGML_API void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value);

// Returns whether the host can read and write the buffer's addresses directly.
GGML_API bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer);

// Sets the purpose of the buffer. A buffer that combines several passes it on to them.
GGML_API void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage);

// Returns the purpose of the buffer, GGML_BACKEND_BUFFER_USAGE_ANY by default.
GGML_API enum ggml_backend_buffer_usage ggml_backend_buffer_get_usage(ggml_backend_buffer_t buffer);

// Returns the type of the buffer.
GGML_API ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer);

// Lets the buffer drop the state that its backend keeps for its tensors. Most buffers have none.
GGML_API void ggml_backend_buffer_reset(ggml_backend_buffer_t buffer);

// ---- copies between tensors ----

// Copies the data of src to dst and waits until the copy is complete. Both must have memory, and the same type, extents and
// strides. The buffers can be of different types; if neither can copy from the other, the data pass through host memory.
GGML_API void ggml_backend_tensor_copy(const struct ggml_tensor *src, struct ggml_tensor *dst);

// ---- backends ----

// Returns the 16-byte identifier of the kind of backend. It belongs to the backend library.
GGML_API ggml_guid_t ggml_backend_guid(ggml_backend_t backend);

// Returns the name of the backend, such as "CUDA0". Returns "NULL" for NULL.
GGML_API const char *ggml_backend_name(ggml_backend_t backend);

// Frees the backend. It does not free buffers. A scheduler that uses the backend refuses further graphs and can still be freed.
GGML_API void ggml_backend_free(ggml_backend_t backend);

// Returns the buffer type of the backend's device.
GGML_API ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend);

// Allocates a buffer of the default type. See ggml_backend_buft_alloc_buffer.
GGML_API ggml_backend_buffer_t ggml_backend_alloc_buffer(ggml_backend_t backend, size_t size);

// Returns the alignment of the default buffer type.
GGML_API size_t ggml_backend_get_alignment(ggml_backend_t backend);

// Returns the largest buffer size of the default buffer type.
GGML_API size_t ggml_backend_get_max_size(ggml_backend_t backend);

// Writes size bytes from data to the tensor at offset, in the backend's order of work. data must stay valid until the backend is
// synchronized. A backend without asynchronous writes waits for its work and writes at once.
GGML_API void ggml_backend_tensor_set_async(
    ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);

// Reads size bytes of the tensor from offset into data, in the backend's order of work. The bytes are valid after the backend is
// synchronized. A backend without asynchronous reads waits for its work and reads at once.
GGML_API void ggml_backend_tensor_get_async(
    ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);

// Like ggml_backend_tensor_set_2d, in the backend's order of work.
GGML_API void ggml_backend_tensor_set_2d_async(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data,
    size_t offset, size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data);

// Like ggml_backend_tensor_get_2d, in the backend's order of work.
GGML_API void ggml_backend_tensor_get_2d_async(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data,
    size_t offset, size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data);

// Writes size bytes from data to the tensor at offset. The range must be inside the tensor. First synchronize a backend
// that uses the tensor.
GGML_API void ggml_backend_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);

// Reads size bytes of the tensor from offset into data. The range must be inside the tensor. First synchronize a
// backend that writes the tensor.
GGML_API void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);

// Writes n_copies pieces of size bytes each. Piece i goes from data + i * stride_data to offset + i * stride_tensor of the
// tensor. Every piece must be inside the tensor.
GGML_API void ggml_backend_tensor_set_2d(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size,
    size_t n_copies, size_t stride_tensor, size_t stride_data);

// Reads n_copies pieces of size bytes each. Piece i goes from offset + i * stride_tensor of the tensor to data + i * stride_data.
// Every piece must be inside the tensor.
GGML_API void ggml_backend_tensor_get_2d(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size,
    size_t n_copies, size_t stride_tensor, size_t stride_data);

// Sets size bytes of the tensor from offset to value. It is refused if the buffer has no such function.
GGML_API void ggml_backend_tensor_memset(struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size);

// Waits until the backend has completed all its work. A failure of an earlier void call, or of that work, is in
// berth_last_error() afterwards; berth_sched_synchronize returns it as a status.
GGML_API void ggml_backend_synchronize(ggml_backend_t backend);

// Prepares the graph to be computed many times. The graph and its tensors must have memory and must outlive the plan. Free the
// plan with ggml_backend_graph_plan_free. Returns NULL on failure, and for backends that have no plans.
GGML_API ggml_backend_graph_plan_t ggml_backend_graph_plan_create(ggml_backend_t backend, struct ggml_cgraph *cgraph);

// Frees a plan of the same backend.
GGML_API void ggml_backend_graph_plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan);

// Computes a plan of the same backend. Returns GGML_STATUS_SUCCESS, or the status of the failure.
GGML_API enum ggml_status ggml_backend_graph_plan_compute(ggml_backend_t backend, ggml_backend_graph_plan_t plan);

// Computes the graph and waits for the result. All tensors must have memory that the backend can use. A failure that an earlier
// void call left is returned first, and nothing is computed then. GGML_STATUS_ABORTED: an abort callback ended the compute.
GGML_API enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *cgraph);

// Like ggml_backend_graph_compute, but may return before the result is ready. Call ggml_backend_synchronize before reading it.
GGML_API enum ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, struct ggml_cgraph *cgraph);

// Returns whether the backend can compute this node with the types, extents and strides that it has.
GGML_API bool ggml_backend_supports_op(ggml_backend_t backend, const struct ggml_tensor *op);

// Returns whether the backend can use tensors in buffers of this type without a copy.
GGML_API bool ggml_backend_supports_buft(ggml_backend_t backend, ggml_backend_buffer_type_t buft);

// Returns whether the backend prefers to run this node even though its weight must first be copied to the device.
GGML_API bool ggml_backend_offload_op(ggml_backend_t backend, const struct ggml_tensor *op);

// Copies src to dst after the work that backend_src has now and before the next work of backend_dst. Layouts must be the same. If
// the backends cannot do this asynchronously, the call waits for both and copies at once.
GGML_API void ggml_backend_tensor_copy_async(
    ggml_backend_t backend_src, ggml_backend_t backend_dst, const struct ggml_tensor *src, struct ggml_tensor *dst);

// Returns the device of the backend.
GGML_API ggml_backend_dev_t ggml_backend_get_device(ggml_backend_t backend);

// ---- events ----

// Creates an event of the device. Free it with ggml_backend_event_free. Returns NULL, without an error, if the device has no
// events: synchronize the backend instead.
GGML_API ggml_backend_event_t ggml_backend_event_new(ggml_backend_dev_t device);

// Frees the event.
GGML_API void ggml_backend_event_free(ggml_backend_event_t event);

// Puts the event after the work that the backend has now. It replaces an earlier record.
GGML_API void ggml_backend_event_record(ggml_backend_event_t event, ggml_backend_t backend);

// Blocks the calling thread until the recorded work is complete.
GGML_API void ggml_backend_event_synchronize(ggml_backend_event_t event);

// Lets the backend wait for the event before its next work. The calling thread does not wait.
GGML_API void ggml_backend_event_wait(ggml_backend_t backend, ggml_backend_event_t event);

// ---- devices ----

// Returns the name of the device, such as "CUDA0".
GGML_API const char *ggml_backend_dev_name(ggml_backend_dev_t device);

// Returns a text for users, such as the model of the processor.
GGML_API const char *ggml_backend_dev_description(ggml_backend_dev_t device);

// Stores the free and the total bytes of the device's memory. Either pointer may be NULL. Both are 0 if unknown.
GGML_API void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total);

// Returns the kind of the device.
GGML_API enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t device);

// Fills props with all properties of the device. Fields that an older backend library does not know are 0.
GGML_API void ggml_backend_dev_get_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props);

// Returns the registry of the device. Returns NULL for a device that belongs to none.
GGML_API ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t device);

// Creates a backend on the device. params is text for the backend and may be NULL; Berth's backends ignore it. Free the backend
// with ggml_backend_free. Returns NULL on failure.
GGML_API ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char *params);

// Returns the buffer type that the device computes on.
GGML_API ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t device);

// Returns a buffer type of host memory that the device copies fast, such as pinned memory. Returns NULL if it has none.
GGML_API ggml_backend_buffer_type_t ggml_backend_dev_host_buffer_type(ggml_backend_dev_t device);

// Creates a buffer over size bytes of the caller's host memory, without a copy. max_tensor_size is the size of the largest tensor
// in it. The memory stays the caller's and must outlive the buffer. Returns NULL if the device cannot use host memory.
GGML_API ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(
    ggml_backend_dev_t device, void *ptr, size_t size, size_t max_tensor_size);

// Returns whether the device can compute this node with the types, extents and strides that it has.
GGML_API bool ggml_backend_dev_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op);

// Returns whether the device can use tensors in buffers of this type without a copy.
GGML_API bool ggml_backend_dev_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t buft);

// Returns whether the device prefers to run this node even though its weight must first be copied to it.
GGML_API bool ggml_backend_dev_offload_op(ggml_backend_dev_t device, const struct ggml_tensor *op);

// ---- registry ----

// The first query to the registry loads the backends that are installed, as ggml_backend_load_all does.

// Returns the name of the registry, such as "CUDA".
GGML_API const char *ggml_backend_reg_name(ggml_backend_reg_t reg);

// Returns the number of devices of the registry.
GGML_API size_t ggml_backend_reg_dev_count(ggml_backend_reg_t reg);

// Returns a device of the registry. Returns NULL, with an error, if index is not below the count.
GGML_API ggml_backend_dev_t ggml_backend_reg_dev_get(ggml_backend_reg_t reg, size_t index);

// Returns the address of a function that the backend offers beyond this header, such as "ggml_backend_set_n_threads" (types
// above). Returns NULL if the backend does not have it.
GGML_API void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char *name);

// Adds a registry and its devices to the process. A registry that is present already is not added a second time.
GGML_API void ggml_backend_register(ggml_backend_reg_t reg);

// Adds one device to the process. A device that is present already is not added a second time.
GGML_API void ggml_backend_device_register(ggml_backend_dev_t device);

// Returns the number of registries.
GGML_API size_t ggml_backend_reg_count(void);

// Returns a registry. Returns NULL, with an error, if index is not below the count.
GGML_API ggml_backend_reg_t ggml_backend_reg_get(size_t index);

// Returns the first registry with this name, upper and lower case alike. Returns NULL if there is none.
GGML_API ggml_backend_reg_t ggml_backend_reg_by_name(const char *name);

// Returns the number of devices of all registries.
GGML_API size_t ggml_backend_dev_count(void);

// Returns a device. Returns NULL, with an error, if index is not below the count.
GGML_API ggml_backend_dev_t ggml_backend_dev_get(size_t index);

// Returns the first device with this name, upper and lower case alike. Returns NULL if there is none.
GGML_API ggml_backend_dev_t ggml_backend_dev_by_name(const char *name);

// Returns the first device of this kind. Returns NULL if there is none.
GGML_API ggml_backend_dev_t ggml_backend_dev_by_type(enum ggml_backend_dev_type type);

// Creates a backend on the device with this name. Free it with ggml_backend_free. Returns NULL on failure.
GGML_API ggml_backend_t ggml_backend_init_by_name(const char *name, const char *params);

// Creates a backend on the first device of this kind. Free it with ggml_backend_free. Returns NULL on failure.
GGML_API ggml_backend_t ggml_backend_init_by_type(enum ggml_backend_dev_type type, const char *params);

// Creates a backend on the first GPU, else on the first integrated GPU, else on the CPU. Free it with ggml_backend_free. Returns
// NULL on failure.
GGML_API ggml_backend_t ggml_backend_init_best(void);

// ---- loading ----

// Loads a backend library from a file and registers its backend. Returns the registry. Returns NULL if the file is not a backend
// library of this API version for this machine; the error names the file and the reason.
GGML_API ggml_backend_reg_t ggml_backend_load(const char *path);

// Removes the registry and its devices from the process and closes its library. Free its backends, buffers, events and schedulers
// first.
GGML_API void ggml_backend_unload(ggml_backend_reg_t reg);

// Loads all backend libraries in the folders of the program and of libggml, and the file that GGML_BACKEND_PATH names. Backends
// that are registered already are not loaded a second time.
GGML_API void ggml_backend_load_all(void);

// Loads all backend libraries of one folder, and the file that GGML_BACKEND_PATH names. Queries then do not search the default
// folders any more. NULL means the same as ggml_backend_load_all.
GGML_API void ggml_backend_load_all_from_path(const char *dir_path);

// ---- scheduler ----

// While a scheduler computes a graph, its callback and the graph's ops may query it but not change it. After a failure the
// scheduler holds no graph and can be given the next one.

// Creates a scheduler over n_backends backends. Earlier backends have priority; the last one must be the host's. bufts[i] is the
// memory that backend i computes on; bufts or bufts[i] NULL means the default type. The arrays are copied; the backends stay the
// caller's. parallel: up to four graphs can be in flight. op_offload: devices may run ops whose weights are in host memory.
// graph_size is ignored. Free the scheduler with ggml_backend_sched_free. Returns NULL on failure.
GGML_API ggml_backend_sched_t ggml_backend_sched_new(ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, int n_backends,
    size_t graph_size, bool parallel, bool op_offload);

// Waits for the work that the scheduler has given out, then frees it and its buffers.
GGML_API void ggml_backend_sched_free(ggml_backend_sched_t sched);

// Computes the bytes of compute buffers that each backend needs for the graph. sizes has one element per backend. Allocates no
// buffers. On failure all sizes are 0.
GGML_API void ggml_backend_sched_reserve_size(ggml_backend_sched_t sched, struct ggml_cgraph *measure_graph, size_t *sizes);

// Plans the graph and allocates all memory that it needs. Afterwards, computing this graph, or one of the same form in which no
// extent is larger, allocates no memory (berth-sched.h states the exact promise). Returns false on failure.
GGML_API bool ggml_backend_sched_reserve(ggml_backend_sched_t sched, struct ggml_cgraph *measure_graph);

// Returns the number of backends.
GGML_API int ggml_backend_sched_get_n_backends(ggml_backend_sched_t sched);

// Returns backend i. Returns NULL if there is none, or if the program has freed it.
GGML_API ggml_backend_t ggml_backend_sched_get_backend(ggml_backend_sched_t sched, int i);

// Returns the number of splits of the graph that was split last. A split is a run of nodes on one backend.
GGML_API int ggml_backend_sched_get_n_splits(ggml_backend_sched_t sched);

// Returns the number of graphs that can be in flight. It can shrink when memory is short.
GGML_API int ggml_backend_sched_get_n_copies(ggml_backend_sched_t sched);

// Returns the buffer type that the scheduler uses for this backend. Returns NULL for other backends.
GGML_API ggml_backend_buffer_type_t ggml_backend_sched_get_buffer_type(ggml_backend_sched_t sched, ggml_backend_t backend);

// Returns the bytes of compute buffers that the scheduler holds for this backend. Backends with one buffer type share their
// buffers: the first of them returns the bytes, the others return 0.
GGML_API size_t ggml_backend_sched_get_buffer_size(ggml_backend_sched_t sched, ggml_backend_t backend);

// Makes the tensor run on this backend in the next graph that is split. The choice holds until the next reset or reserve. It is
// refused while a graph is computed.
GGML_API void ggml_backend_sched_set_tensor_backend(ggml_backend_sched_t sched, struct ggml_tensor *node, ggml_backend_t backend);

// Returns the backend of a tensor in the graph that was split last. For other tensors it returns the caller's choice, or NULL if
// there is none.
GGML_API ggml_backend_t ggml_backend_sched_get_tensor_backend(ggml_backend_sched_t sched, struct ggml_tensor *node);

// Assigns a backend to every node and cuts the graph into splits. Allocates no buffers. berth_sched_split does the same and
// returns a status.
GGML_API void ggml_backend_sched_split_graph(ggml_backend_sched_t sched, struct ggml_cgraph *graph);

// Splits the graph, plans its memory and sets the address of every tensor that has none. Write the inputs after this call and
// before the compute. Returns false on failure.
GGML_API bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, struct ggml_cgraph *graph);

// Computes the graph and waits for the result. A graph that is not allocated is split and allocated first; inputs keep the values
// that the program wrote.
GGML_API enum ggml_status ggml_backend_sched_graph_compute(ggml_backend_sched_t sched, struct ggml_cgraph *graph);

// Like ggml_backend_sched_graph_compute, but may return before the result is ready. Call ggml_backend_sched_synchronize before
// reading it.
GGML_API enum ggml_status ggml_backend_sched_graph_compute_async(ggml_backend_sched_t sched, struct ggml_cgraph *graph);

// Waits until all backends have completed their work. berth_sched_synchronize does the same and returns a status.
GGML_API void ggml_backend_sched_synchronize(ggml_backend_sched_t sched);

// Forgets the current graph and the choices of ggml_backend_sched_set_tensor_backend. Buffers, plans and the graph cache stay.
GGML_API void ggml_backend_sched_reset(ggml_backend_sched_t sched);

// Sets the function that observes nodes while graphs are computed. NULL removes it. The callback may query the scheduler but must
// not change it.
GGML_API void ggml_backend_sched_set_eval_callback(
    ggml_backend_sched_t sched, ggml_backend_sched_eval_callback callback, void *user_data);

// ---- composite devices ----

// Returns the name of a split axis, such as "0" or "MIRRORED". Returns "UNKNOWN", with an error, for other values.
GGML_API const char *ggml_backend_meta_split_axis_name(enum ggml_backend_meta_split_axis split_axis);

// Returns one composite device over 1 to 16 devices, for tensor parallelism in one process (docs/user/meta.md).
// get_split_state states the distribution of each weight and cache; NULL means that every tensor is mirrored. The same
// arguments give the same device. It lives as long as the process. Returns NULL on failure, and if a device is itself a composite
// device.
GGML_API ggml_backend_dev_t ggml_backend_meta_device(
    ggml_backend_dev_t *devs, size_t n_devs, ggml_backend_meta_get_split_state_t get_split_state, void *get_split_state_ud);

// ---- helpers ----

// Copies a graph, its tensors and their data to another backend. All tensors of the graph must have memory. Free the result with
// ggml_backend_graph_copy_free. On failure all members are NULL.
GGML_API struct ggml_backend_graph_copy ggml_backend_graph_copy(ggml_backend_t backend, struct ggml_cgraph *graph);

// Frees the buffer and the contexts of the copy, and with them its graph.
GGML_API void ggml_backend_graph_copy_free(struct ggml_backend_graph_copy copy);

// Computes the graph on backend1 and a copy of it on backend2 and passes both results to the callback. Without test nodes this
// happens node by node, for every node that computes; with test nodes the graphs run as a whole and only these nodes are passed.
// Returns false if a copy or a compute failed. A callback that ends the comparison is not a failure.
GGML_API bool ggml_backend_compare_graph_backend(ggml_backend_t backend1, ggml_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data, const struct ggml_tensor *const *test_nodes, size_t num_test_nodes);

// Gives the tensor the address addr in the buffer. The tensor must not have memory or be a view, and must fit into the buffer. A
// failure changes nothing.
GGML_API enum ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, void *addr);

// Gives a view the address that follows from its source, which must have memory in a buffer. The view must not have a buffer. A
// failure changes nothing.
GGML_API enum ggml_status ggml_backend_view_init(struct ggml_tensor *tensor);

// Creates a buffer over size bytes of the caller's memory, without a copy. ptr must be aligned to 32 bytes. The memory stays the
// caller's and must outlive the buffer. Free the buffer with ggml_backend_buffer_free. Returns NULL on failure.
GGML_API ggml_backend_buffer_t ggml_backend_cpu_buffer_from_ptr(void *ptr, size_t size);

// Returns the buffer type of plain host memory, named "CPU". It needs no CPU backend.
GGML_API ggml_backend_buffer_type_t ggml_backend_cpu_buffer_type(void);

#ifdef __cplusplus
}
#endif
