// SPDX-License-Identifier: MIT
// 2023/ggml.h: ggml's API of August 2023 to February 2024, for programs written for it. Put include/2023 before include on the
// include path. ../ggml.h declares today's structs, types and ops; this header adds the functions and types that have changed.
// Changed functions have their own symbols (berth_2023_*), so all generations of the API can be in one process.
//
// BERTH_2023 selects the date (YYYYMM) of the prototypes, from 202308 to 202402. Without it the date is 202312, and calls in the
// form of other dates compile too if the number or the types of their arguments differ. docs/user/allocators.md lists the
// differences from the original headers. A function that is not available fails to compile, and the message names its replacement.
#pragma once

#ifndef BERTH_2023
#    define BERTH_2023 202312
#    define BERTH_2023_ANY // accepts the forms of several dates
#endif
#if BERTH_2023 + 0 < 202308 || BERTH_2023 + 0 > 202402
#    error "BERTH_2023 is a date from 202308 to 202402, for example -D BERTH_2023=202311"
#endif

#if defined(__has_attribute)
#    if __has_attribute(unavailable)
#        define BERTH_2023_REFUSED(hint) __attribute__((unavailable(hint)))
#        define BERTH_2023_REFUSED_FIELD(hint) __attribute__((unavailable(hint)))
#    endif
#endif
#ifndef BERTH_2023_REFUSED
#    ifdef __GNUC__ // gcc before 12: a call is an error, the use of a field is a warning
#        define BERTH_2023_REFUSED(hint) __attribute__((error(hint)))
#        define BERTH_2023_REFUSED_FIELD(hint) __attribute__((deprecated(hint)))
#    else // a call fails to link
#        define BERTH_2023_REFUSED(hint)
#        define BERTH_2023_REFUSED_FIELD(hint)
#    endif
#endif

#ifndef BERTH_2023_IMPLEMENTATION

#    ifdef GGML_MAX_DIMS
#        error "today's ggml.h was included before: put include/2023 before include on the include path"
#    endif

enum ggml_backend_type {
    GGML_BACKEND_CPU = 0,
    GGML_BACKEND_GPU = 10,
    GGML_BACKEND_GPU_SPLIT = 20,
};

// ../ggml.h inserts these into its types: fields in the padding of a tensor, and ops with numbers that no tensor has.
#    define BERTH_2023_TENSOR_BACKEND enum ggml_backend_type backend; // stored but not used: the buffer decides where a tensor is
#    define BERTH_2023_TENSOR_PADDING \
        union { \
            char padding[8]; \
            int n_dims BERTH_2023_REFUSED_FIELD("n_dims is not stored: use ggml_n_dims(tensor)"); \
            bool is_param BERTH_2023_REFUSED_FIELD("is_param is a flag: use tensor->flags & GGML_TENSOR_FLAG_PARAM"); \
            struct ggml_tensor *grad BERTH_2023_REFUSED_FIELD( \
                "grad belongs to the graph: use ggml_graph_get_grad(graph, tensor)"); \
            int perf_runs BERTH_2023_REFUSED_FIELD("perf_runs is not counted: use ggml_time_us() around ggml_graph_compute"); \
            int64_t perf_cycles BERTH_2023_REFUSED_FIELD( \
                "perf_cycles is not counted: use ggml_cycles() around ggml_graph_compute"); \
            int64_t perf_time_us BERTH_2023_REFUSED_FIELD( \
                "perf_time_us is not counted: use ggml_time_us() around ggml_graph_compute"); \
        };
#    define BERTH_2023_OPS \
        GGML_OP_ALIBI = 1000, GGML_OP_FLASH_ATTN, GGML_OP_FLASH_FF, GGML_OP_MAP_UNARY, GGML_OP_MAP_BINARY, \
        GGML_OP_MAP_CUSTOM1_F32, GGML_OP_MAP_CUSTOM2_F32, GGML_OP_MAP_CUSTOM3_F32,
#    define BERTH_2023_UNARY_OPS GGML_UNARY_OP_LEAKY = 1000,

#endif

#include "../ggml.h"

#include "../ggml-cpu.h" // without backends
#include "../gguf.h"

// ---- constants ----

#undef GGML_FILE_VERSION
#define GGML_FILE_VERSION 1
#define GGML_MAX_CONTEXTS 64 // not a limit in Berth
#if BERTH_2023 <= 202310 || defined(BERTH_2023_ANY)
#    define GGML_MAX_NODES 4096
#    define GGML_GRAPH_HASHTABLE_SIZE 8273
#endif
#define GGML_OBJECT_TENSOR GGML_OBJECT_TYPE_TENSOR
#define GGML_OBJECT_GRAPH GGML_OBJECT_TYPE_GRAPH
#define GGML_OBJECT_WORK_BUFFER GGML_OBJECT_TYPE_WORK_BUFFER
#define GGML_SORT_ASC GGML_SORT_ORDER_ASC
#define GGML_SORT_DESC GGML_SORT_ORDER_DESC

#ifdef __cplusplus
extern "C" {
#endif

// ---- types ----

typedef void (*ggml_unary_op_f32_t)(const int, float *, const float *);
typedef void (*ggml_binary_op_f32_t)(const int, float *, const float *, const float *);
typedef void (*ggml_custom1_op_f32_t)(struct ggml_tensor *, const struct ggml_tensor *);
typedef void (*ggml_custom2_op_f32_t)(struct ggml_tensor *, const struct ggml_tensor *, const struct ggml_tensor *);
typedef void (*ggml_custom3_op_f32_t)(
    struct ggml_tensor *, const struct ggml_tensor *, const struct ggml_tensor *, const struct ggml_tensor *);

typedef void (*berth_2023_to_float_t)(const void *GGML_RESTRICT x, float *GGML_RESTRICT y, int k);
typedef void (*berth_2023_from_float_t)(const float *GGML_RESTRICT x, void *GGML_RESTRICT y, int k);
typedef void (*berth_2023_vec_dot_t)(
    const int n, float *GGML_RESTRICT s, const void *GGML_RESTRICT x, const void *GGML_RESTRICT y);

typedef struct {
    const char *type_name;
    int blck_size;
    size_t type_size;
    bool is_quantized;
    berth_2023_to_float_t to_float;
    berth_2023_from_float_t from_float;
    berth_2023_from_float_t from_float_reference;
    berth_2023_vec_dot_t vec_dot;
    enum ggml_type vec_dot_type;
} ggml_type_traits_t;

// An argument of ggml_gallocr_alloc_graph_n (ggml-alloc.h). A slot is free if its key is NULL. The search for a key starts at the
// slot (address of the tensor) modulo size.
struct ggml_hash_set {
    size_t size;
    struct ggml_tensor **keys;
};

// ---- functions that had another form ----

GGML_API void berth_2023_ggml_fp16_to_fp32_row(const ggml_fp16_t *x, float *y, int n);
GGML_API void berth_2023_ggml_fp32_to_fp16_row(const float *x, ggml_fp16_t *y, int n);
GGML_API void berth_2023_ggml_print_backtrace(void);
GGML_API size_t berth_2023_ggml_nbytes_split(const struct ggml_tensor *tensor, int nrows_split);
GGML_API int berth_2023_ggml_blck_size(enum ggml_type type);
GGML_API float berth_2023_ggml_type_sizef(enum ggml_type type);
GGML_API struct ggml_tensor *berth_2023_ggml_get_first_tensor(struct ggml_context *ctx);
GGML_API struct ggml_tensor *berth_2023_ggml_get_next_tensor(struct ggml_context *ctx, struct ggml_tensor *tensor);
GGML_API void berth_2023_ggml_set_param(struct ggml_context *ctx, struct ggml_tensor *tensor);
// Combines the traits of libggml-base with the traits of the CPU library.
GGML_API ggml_type_traits_t berth_2023_ggml_type_traits(
    enum ggml_type type, const struct ggml_type_traits_cpu *(*get_type_traits_cpu)(enum ggml_type type));

// Ops. The factor of a scale by a tensor is read when the graph runs.
GGML_API struct ggml_tensor *berth_2023_ggml_concat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
GGML_API struct ggml_tensor *berth_2023_ggml_leaky(struct ggml_context *ctx, struct ggml_tensor *a);
GGML_API struct ggml_tensor *berth_2023_ggml_group_norm(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups);
GGML_API struct ggml_tensor *berth_2023_ggml_group_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups);
GGML_API struct ggml_tensor *berth_2023_ggml_scale(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
GGML_API struct ggml_tensor *berth_2023_ggml_scale_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
GGML_API struct ggml_tensor *berth_2023_ggml_cpy_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
GGML_API struct ggml_tensor *berth_2023_ggml_cont_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
GGML_API struct ggml_tensor *berth_2023_ggml_mul_mat_id(
    struct ggml_context *ctx, struct ggml_tensor *const as[], int n_as, struct ggml_tensor *ids, int id, struct ggml_tensor *b);
GGML_API struct ggml_tensor *berth_2023_ggml_soft_max_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale);
GGML_API struct ggml_tensor *berth_2023_ggml_soft_max_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
GGML_API struct ggml_tensor *berth_2023_ggml_soft_max_back_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
GGML_API struct ggml_tensor *berth_2023_ggml_rope(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode, int n_ctx);
GGML_API struct ggml_tensor *berth_2023_ggml_rope_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode, int n_ctx);
GGML_API struct ggml_tensor *berth_2023_ggml_rope_custom(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int n_dims, int mode, int n_ctx, int n_orig_ctx, float freq_base, float freq_scale, float ext_factor, float attn_factor,
    float beta_fast, float beta_slow);
GGML_API struct ggml_tensor *berth_2023_ggml_rope_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a,
    struct ggml_tensor *b, int n_dims, int mode, int n_ctx, int n_orig_ctx, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow);
GGML_API struct ggml_tensor *berth_2023_ggml_rope_xpos_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, float base, bool down);
GGML_API struct ggml_tensor *berth_2023_ggml_rope_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int n_dims, int mode, int n_ctx, int n_orig_ctx, float freq_base, float freq_scale, float ext_factor, float attn_factor,
    float beta_fast, float beta_slow, float xpos_base, bool xpos_down);
// RoPE until September 2023: the positions are n_past, n_past + 1, ...
GGML_API struct ggml_tensor *berth_2023_ggml_rope_past(
    struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_dims, int mode, int n_ctx);
GGML_API struct ggml_tensor *berth_2023_ggml_rope_past_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_dims, int mode, int n_ctx);
GGML_API struct ggml_tensor *berth_2023_ggml_rope_custom_past(struct ggml_context *ctx, struct ggml_tensor *a, int n_past,
    int n_dims, int mode, int n_ctx, float freq_base, float freq_scale);
GGML_API struct ggml_tensor *berth_2023_ggml_rope_custom_past_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_past,
    int n_dims, int mode, int n_ctx, float freq_base, float freq_scale);
GGML_API struct ggml_tensor *berth_2023_ggml_alibi(
    struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_head, float bias_max);
GGML_API struct ggml_tensor *berth_2023_ggml_im2col(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int s0, int s1, int p0, int p1, int d0, int d1, bool is_2D);
GGML_API struct ggml_tensor *berth_2023_ggml_conv_depthwise_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1);
GGML_API struct ggml_tensor *berth_2023_ggml_upscale(struct ggml_context *ctx, struct ggml_tensor *a, int scale_factor);
GGML_API struct ggml_tensor *berth_2023_ggml_flash_attn(
    struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v, bool masked);
GGML_API struct ggml_tensor *berth_2023_ggml_flash_ff(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b0,
    struct ggml_tensor *b1, struct ggml_tensor *c0, struct ggml_tensor *c1);
GGML_API struct ggml_tensor *berth_2023_ggml_map_unary_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_unary_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_unary_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_unary_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_binary_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_binary_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_binary_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_binary_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_custom1_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_custom1_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_custom2_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_custom2_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_custom2_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_custom2_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_custom3_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c, ggml_custom3_op_f32_t fun);
GGML_API struct ggml_tensor *berth_2023_ggml_map_custom3_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c, ggml_custom3_op_f32_t fun);

// Graphs.
GGML_API struct ggml_cgraph *berth_2023_ggml_graph_dup(struct ggml_context *ctx, struct ggml_cgraph *cgraph);
GGML_API struct ggml_cgraph *berth_2023_ggml_graph_view_in(struct ggml_context *ctx, struct ggml_cgraph *cgraph, int i0, int i1);
GGML_API struct ggml_cgraph *berth_2023_ggml_build_forward_ctx(struct ggml_context *ctx, struct ggml_tensor *tensor);
GGML_API struct ggml_tensor *berth_2023_ggml_graph_get_tensor(struct ggml_cgraph *cgraph, const char *name);

// Quantisation. hist has 16 counters of the values of 4-bit, 5-bit and 8-bit formats; NULL: they are not counted.
GGML_API size_t berth_2023_ggml_quantize_q4_0(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q4_1(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q5_0(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q5_1(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q8_0(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q2_K(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q3_K(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q4_K(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q5_K(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_q6_K(const float *src, void *dst, int n, int k, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_chunk(enum ggml_type type, const float *src, void *dst, int start, int n, int64_t *hist);
GGML_API size_t berth_2023_ggml_quantize_chunk_rows(
    enum ggml_type type, const float *src, void *dst, int start, int nrows, int n_per_row, int64_t *hist, const float *imatrix);

// Files. An index of -1 means that there is no such key or tensor. A count that exceeds int is an error, and the result is 0.
GGML_API int berth_2023_gguf_get_version(const struct gguf_context *ctx);
GGML_API void *berth_2023_gguf_get_data(const struct gguf_context *ctx);
GGML_API int berth_2023_gguf_get_n_kv(const struct gguf_context *ctx);
GGML_API int berth_2023_gguf_find_key(const struct gguf_context *ctx, const char *key);
GGML_API const char *berth_2023_gguf_get_key(const struct gguf_context *ctx, int key_id);
GGML_API enum gguf_type berth_2023_gguf_get_kv_type(const struct gguf_context *ctx, int key_id);
GGML_API enum gguf_type berth_2023_gguf_get_arr_type(const struct gguf_context *ctx, int key_id);
GGML_API uint8_t berth_2023_gguf_get_val_u8(const struct gguf_context *ctx, int key_id);
GGML_API int8_t berth_2023_gguf_get_val_i8(const struct gguf_context *ctx, int key_id);
GGML_API uint16_t berth_2023_gguf_get_val_u16(const struct gguf_context *ctx, int key_id);
GGML_API int16_t berth_2023_gguf_get_val_i16(const struct gguf_context *ctx, int key_id);
GGML_API uint32_t berth_2023_gguf_get_val_u32(const struct gguf_context *ctx, int key_id);
GGML_API int32_t berth_2023_gguf_get_val_i32(const struct gguf_context *ctx, int key_id);
GGML_API float berth_2023_gguf_get_val_f32(const struct gguf_context *ctx, int key_id);
GGML_API uint64_t berth_2023_gguf_get_val_u64(const struct gguf_context *ctx, int key_id);
GGML_API int64_t berth_2023_gguf_get_val_i64(const struct gguf_context *ctx, int key_id);
GGML_API double berth_2023_gguf_get_val_f64(const struct gguf_context *ctx, int key_id);
GGML_API bool berth_2023_gguf_get_val_bool(const struct gguf_context *ctx, int key_id);
GGML_API const char *berth_2023_gguf_get_val_str(const struct gguf_context *ctx, int key_id);
GGML_API const void *berth_2023_gguf_get_val_data(const struct gguf_context *ctx, int key_id);
GGML_API int berth_2023_gguf_get_arr_n(const struct gguf_context *ctx, int key_id);
GGML_API const void *berth_2023_gguf_get_arr_data(const struct gguf_context *ctx, int key_id);
GGML_API const char *berth_2023_gguf_get_arr_str(const struct gguf_context *ctx, int key_id, int i);
GGML_API int berth_2023_gguf_get_n_tensors(const struct gguf_context *ctx);
GGML_API int berth_2023_gguf_find_tensor(const struct gguf_context *ctx, const char *name);
GGML_API size_t berth_2023_gguf_get_tensor_offset(const struct gguf_context *ctx, int i);
GGML_API char *berth_2023_gguf_get_tensor_name(const struct gguf_context *ctx, int i);
GGML_API enum ggml_type berth_2023_gguf_get_tensor_type(const struct gguf_context *ctx, int i);
GGML_API void berth_2023_gguf_set_arr_data(
    struct gguf_context *ctx, const char *key, enum gguf_type type, const void *data, int n);
GGML_API void berth_2023_gguf_set_arr_str(struct gguf_context *ctx, const char *key, const char **data, int n);
GGML_API void berth_2023_gguf_set_kv(struct gguf_context *ctx, struct gguf_context *src);
GGML_API void berth_2023_gguf_set_tensor_data(struct gguf_context *ctx, const char *name, const void *data, size_t size);
GGML_API void berth_2023_gguf_write_to_file(const struct gguf_context *ctx, const char *fname, bool only_meta);

#ifndef BERTH_2023_IMPLEMENTATION

// ---- structs whose fields programs read ----

struct ggml_object {
    size_t offs;
    size_t size;
    struct ggml_object *next;
    enum ggml_object_type type;
    char padding[4];
};

static const size_t GGML_OBJECT_SIZE = sizeof(struct ggml_object);

enum ggml_task_type {
    GGML_TASK_INIT = 0,
    GGML_TASK_COMPUTE = 1,
    GGML_TASK_FINALIZE = 2,
};

struct ggml_compute_params {
    enum ggml_task_type type;
    int ith, nth;
    size_t wsize;
    void *wdata;
};

struct ggml_scratch {
    size_t offs;
    size_t size;
    void *data;
};

// The tensors of a graph. keys[i] is valid only if bit i of used is set.
struct berth_2023_visited {
    size_t size;
    uint32_t *used;
    struct ggml_tensor **keys;
};

enum ggml_cgraph_eval_order {
    GGML_CGRAPH_EVAL_ORDER_LEFT_TO_RIGHT = 0,
    GGML_CGRAPH_EVAL_ORDER_RIGHT_TO_LEFT = 1,
    GGML_CGRAPH_EVAL_ORDER_COUNT = 2,
};

#    if BERTH_2023 <= 202310 || (defined(BERTH_2023_ANY) && defined(__cplusplus))
#        define BERTH_2023_GRAPH_ROOM // a graph can be a variable
// Arrays of a graph that is a variable.
struct berth_2023_graph_room {
    struct ggml_tensor *nodes[GGML_MAX_NODES], *leafs[GGML_MAX_NODES], *keys[GGML_GRAPH_HASHTABLE_SIZE];
    int32_t use_counts[GGML_GRAPH_HASHTABLE_SIZE];
    uint32_t used[(GGML_GRAPH_HASHTABLE_SIZE + 31) / 32];
};
#    endif

struct ggml_cgraph {
    int size;
    int n_nodes;
    int n_leafs;
    struct ggml_tensor **nodes;
    struct ggml_tensor **grads; // indexed by the slots of visited_hash_table
    struct ggml_tensor **grad_accs;
    struct ggml_tensor **leafs;
    int32_t *use_counts;
    struct berth_2023_visited visited_hash_table;
    enum ggml_cgraph_eval_order order;
    union {
        uint64_t uid;
        int perf_runs BERTH_2023_REFUSED_FIELD("perf_runs is not counted: use ggml_time_us() around ggml_graph_compute");
        int64_t perf_cycles BERTH_2023_REFUSED_FIELD("perf_cycles is not counted: use ggml_cycles() around ggml_graph_compute");
        int64_t perf_time_us BERTH_2023_REFUSED_FIELD(
            "perf_time_us is not counted: use ggml_time_us() around ggml_graph_compute");
    };
#    ifdef BERTH_2023_GRAPH_ROOM
    // Graphs of ggml_new_graph do not have this member: it is past the end of their memory.
    struct berth_2023_graph_room room;
#        ifdef __cplusplus
    ggml_cgraph() : size(0) {
        berth_2023_seat();
    }
    ggml_cgraph(const ggml_cgraph &other) : size(0) {
        berth_2023_assign(other);
    }
    ggml_cgraph &operator=(const ggml_cgraph &other) {
        if (this != &other) {
            berth_2023_assign(other);
        }
        return *this;
    }

    void berth_2023_seat();
    void berth_2023_assign(const ggml_cgraph &other);
#        endif
#    endif
};

#    ifdef BERTH_2023_GRAPH_ROOM
// Makes a variable an empty graph that uses its own arrays.
static inline void berth_2023_graph_init(struct ggml_cgraph *graph) {
    struct berth_2023_graph_room *room = &graph->room;
    graph->size = GGML_MAX_NODES;
    graph->n_nodes = 0;
    graph->n_leafs = 0;
    graph->nodes = room->nodes;
    graph->grads = NULL;
    graph->grad_accs = NULL;
    graph->leafs = room->leafs;
    graph->use_counts = room->use_counts;
    graph->visited_hash_table.size = GGML_GRAPH_HASHTABLE_SIZE;
    graph->visited_hash_table.used = room->used;
    graph->visited_hash_table.keys = room->keys;
    graph->order = GGML_CGRAPH_EVAL_ORDER_LEFT_TO_RIGHT;
    graph->uid = 0;
    for (size_t i = 0; i < sizeof room->used / sizeof room->used[0]; i++) {
        room->used[i] = 0;
    }
}

#        ifdef __cplusplus
inline void ggml_cgraph::berth_2023_seat() {
    berth_2023_graph_init(this);
}

// Copies all arrays of a graph that is a variable, and only the pointers of another graph.
inline void ggml_cgraph::berth_2023_assign(const ggml_cgraph &other) {
    if (other.nodes == const_cast<ggml_cgraph &>(other).room.nodes) {
        berth_2023_graph_init(this);
        n_nodes = other.n_nodes;
        n_leafs = other.n_leafs;
        order = other.order;
        room = other.room;
    } else {
        size = other.size;
        n_nodes = other.n_nodes;
        n_leafs = other.n_leafs;
        nodes = other.nodes;
        grads = other.grads;
        grad_accs = other.grad_accs;
        leafs = other.leafs;
        use_counts = other.use_counts;
        visited_hash_table = other.visited_hash_table;
        order = other.order;
    }
    uid = other.uid;
}
#        else
// A variable with all bytes 0 becomes a graph when the first tensor is added. A copy is valid as long as the original.
static inline void berth_2023_ggml_build_forward_expand(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor) {
    if (cgraph->size == 0 && cgraph->nodes == NULL) {
        berth_2023_graph_init(cgraph);
    }
    ggml_build_forward_expand(cgraph, tensor);
}
#        endif
#    endif

// ---- functions of the CPU library ----

static inline void berth_2023_ggml_numa_init(void) {
    ggml_numa_init(GGML_NUMA_STRATEGY_DISTRIBUTE);
}

static inline ggml_type_traits_t berth_2023_ggml_internal_get_type_traits(enum ggml_type type) {
    return berth_2023_ggml_type_traits(type, ggml_get_type_traits_cpu);
}

#    if BERTH_2023 <= 202312
static inline struct ggml_cplan berth_2023_ggml_graph_plan(struct ggml_cgraph *cgraph, int n_threads) {
    return ggml_graph_plan(cgraph, n_threads, NULL);
}
#    else
static inline struct ggml_cplan berth_2023_ggml_graph_plan(const struct ggml_cgraph *cgraph, int n_threads) {
    return ggml_graph_plan(cgraph, n_threads, NULL);
}
#    endif

static inline int berth_2023_ggml_graph_compute(struct ggml_cgraph *cgraph, struct ggml_cplan *cplan) {
    return ggml_graph_compute(cgraph, cplan);
}

static inline void berth_2023_ggml_graph_compute_with_ctx(struct ggml_context *ctx, struct ggml_cgraph *cgraph, int n_threads) {
    ggml_graph_compute_with_ctx(ctx, cgraph, n_threads);
}

// For libraries that Berth's CPU backend does not use: returns 0.
static inline int berth_2023_has_no(void) {
    return 0;
}

// ---- functions that are not available ----

enum ggml_opt_type {
    GGML_OPT_ADAM = 0,
    GGML_OPT_LBFGS = 1,
};

enum ggml_linesearch {
    GGML_LINESEARCH_DEFAULT = 1,
    GGML_LINESEARCH_BACKTRACKING_ARMIJO = 0,
    GGML_LINESEARCH_BACKTRACKING_WOLFE = 1,
    GGML_LINESEARCH_BACKTRACKING_STRONG_WOLFE = 2,
};

enum ggml_opt_result {
    GGML_OPT_OK = 0,
    GGML_OPT_DID_NOT_CONVERGE = 1,
    GGML_OPT_NO_CONTEXT = 2,
    GGML_OPT_INVALID_WOLFE = 3,
    GGML_OPT_FAIL = 4,
    GGML_OPT_CANCEL = 5,
    GGML_LINESEARCH_FAIL = -128,
    GGML_LINESEARCH_MINIMUM_STEP = -127,
    GGML_LINESEARCH_MAXIMUM_STEP = -126,
    GGML_LINESEARCH_MAXIMUM_ITERATIONS = -125,
    GGML_LINESEARCH_INVALID_PARAMETERS = -124,
};

struct ggml_opt_params;
struct ggml_opt_context;
typedef void (*ggml_opt_callback)(void *data, int accum_step, float *sched, bool *cancel);

size_t ggml_set_scratch(struct ggml_context *ctx, struct ggml_scratch scratch)
    BERTH_2023_REFUSED("ggml_set_scratch: use a graph allocator (ggml_allocr_alloc_graph), which shares memory");
void ggml_graph_export(const struct ggml_cgraph *cgraph, const char *fname)
    BERTH_2023_REFUSED("ggml_graph_export: use gguf_write_to_file for weights, and build the graph in code");
struct ggml_cgraph *ggml_graph_import(const char *fname, struct ggml_context **ctx_data, struct ggml_context **ctx_eval)
    BERTH_2023_REFUSED("ggml_graph_import: use gguf_init_from_file for weights, and build the graph in code");
void berth_2023_ggml_build_backward_expand(struct ggml_context *ctx, struct ggml_cgraph *gf, struct ggml_cgraph *gb, bool keep)
    BERTH_2023_REFUSED("ggml_build_backward_expand: use ggml_build_backward_expand of today's ggml.h");
void ggml_build_backward_gradient_checkpointing(struct ggml_context *ctx, struct ggml_cgraph *gf, struct ggml_cgraph *gb,
    struct ggml_cgraph *gb_tmp, struct ggml_tensor **checkpoints, int n_checkpoints)
    BERTH_2023_REFUSED("ggml_build_backward_gradient_checkpointing: use ggml_build_backward_expand of today's ggml.h");
enum ggml_opt_result ggml_opt(struct ggml_context *ctx, struct ggml_opt_params params, struct ggml_tensor *f)
    BERTH_2023_REFUSED("ggml_opt: use ggml_opt_fit of today's ggml-opt.h");
void ggml_opt_init(struct ggml_context *ctx, struct ggml_opt_context *opt, struct ggml_opt_params params, int64_t nx)
    BERTH_2023_REFUSED("ggml_opt_init: use ggml_opt_init of today's ggml-opt.h");
enum ggml_opt_result ggml_opt_resume(struct ggml_context *ctx, struct ggml_opt_context *opt, struct ggml_tensor *f)
    BERTH_2023_REFUSED("ggml_opt_resume: use ggml_opt_epoch of today's ggml-opt.h");
enum ggml_opt_result ggml_opt_resume_g(struct ggml_context *ctx, struct ggml_opt_context *opt, struct ggml_tensor *f,
    struct ggml_cgraph *gf, struct ggml_cgraph *gb, ggml_opt_callback callback, void *callback_data)
    BERTH_2023_REFUSED("ggml_opt_resume_g: use ggml_opt_epoch of today's ggml-opt.h");
struct ggml_cgraph *ggml_build_backward(struct ggml_context *ctx, struct ggml_cgraph *gf, bool keep)
    BERTH_2023_REFUSED("ggml_build_backward: use ggml_build_backward_expand of today's ggml.h");

#    ifdef __cplusplus
}
#    endif

struct ggml_opt_params ggml_opt_default_params(enum ggml_opt_type type)
    BERTH_2023_REFUSED("ggml_opt_default_params: use ggml_opt_default_params of today's ggml-opt.h");

// ---- forms of several dates ----

// Today's forms, under names that are not macros.
static inline struct ggml_tensor *berth_2023_ggml_scale_by(struct ggml_context *ctx, struct ggml_tensor *a, float s) {
    return ggml_scale(ctx, a, s);
}

static inline struct ggml_tensor *berth_2023_ggml_scale_by_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float s) {
    return ggml_scale_inplace(ctx, a, s);
}

static inline struct ggml_tensor *berth_2023_ggml_im2col_to(struct ggml_context *ctx, struct ggml_tensor *a,
    struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1, bool is_2D, enum ggml_type dst_type) {
    return ggml_im2col(ctx, a, b, s0, s1, p0, p1, d0, d1, is_2D, dst_type);
}

// The nodes i0 to i1 - 1. The view shares all memory with the graph.
static inline struct ggml_cgraph berth_2023_ggml_graph_view(struct ggml_cgraph *cgraph, int i0, int i1) {
    struct ggml_cgraph view = *cgraph;
    const bool is_part = i0 >= 0 && i0 <= i1 && i1 <= cgraph->n_nodes;
    view.size = 0;
    view.n_nodes = is_part ? i1 - i0 : 0;
    view.n_leafs = 0;
    view.nodes = is_part ? cgraph->nodes + i0 : NULL;
    view.leafs = NULL;
    view.grads = NULL;
    view.grad_accs = NULL;
    view.use_counts = cgraph->use_counts;
    view.visited_hash_table = cgraph->visited_hash_table;
    view.uid = 0;
    return view;
}

#    if defined(BERTH_2023_GRAPH_ROOM) && defined(__cplusplus)
static inline struct ggml_cgraph berth_2023_ggml_build_forward(struct ggml_tensor *tensor) {
    struct ggml_cgraph graph;
    ggml_build_forward_expand(&graph, tensor);
    return graph;
}
#    elif defined(BERTH_2023_GRAPH_ROOM)
static inline struct ggml_cgraph *berth_2023_graph_of(struct ggml_cgraph *graph, struct ggml_tensor *tensor) {
    berth_2023_graph_init(graph);
    ggml_build_forward_expand(graph, tensor);
    return graph;
}
// The arrays are in an unnamed variable that exists until the end of the enclosing block.
#        define berth_2023_ggml_build_forward(tensor) (*berth_2023_graph_of(&(struct ggml_cgraph){0}, tensor))
#    else
struct ggml_cgraph *berth_2023_ggml_build_forward(struct ggml_tensor *tensor)
    BERTH_2023_REFUSED("ggml_build_forward: use ggml_build_forward_ctx(ctx, tensor), or set BERTH_2023 to 202310");
#    endif

#    ifdef BERTH_2023_ANY
#        ifdef __cplusplus
static inline struct ggml_tensor *berth_2023_ggml_scale(struct ggml_context *ctx, struct ggml_tensor *a, float s) {
    return berth_2023_ggml_scale_by(ctx, a, s);
}
static inline struct ggml_tensor *berth_2023_ggml_scale_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float s) {
    return berth_2023_ggml_scale_by_inplace(ctx, a, s);
}
static inline struct ggml_tensor *berth_2023_ggml_im2col(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int s0, int s1, int p0, int p1, int d0, int d1, bool is_2D, enum ggml_type dst_type) {
    return berth_2023_ggml_im2col_to(ctx, a, b, s0, s1, p0, p1, d0, d1, is_2D, dst_type);
}
static inline struct ggml_cgraph *berth_2023_ggml_graph_view(
    struct ggml_context *ctx, struct ggml_cgraph *cgraph, int i0, int i1) {
    return berth_2023_ggml_graph_view_in(ctx, cgraph, i0, i1);
}
static inline size_t berth_2023_ggml_quantize_chunk(
    enum ggml_type type, const float *src, void *dst, int start, int nrows, int n_per_row, int64_t *hist, const float *imatrix) {
    return berth_2023_ggml_quantize_chunk_rows(type, src, dst, start, nrows, n_per_row, hist, imatrix);
}
static inline struct ggml_tensor *berth_2023_ggml_rope(
    struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_dims, int mode, int n_ctx) {
    return berth_2023_ggml_rope_past(ctx, a, n_past, n_dims, mode, n_ctx);
}
static inline struct ggml_tensor *berth_2023_ggml_rope_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_dims, int mode, int n_ctx) {
    return berth_2023_ggml_rope_past_inplace(ctx, a, n_past, n_dims, mode, n_ctx);
}
static inline struct ggml_tensor *berth_2023_ggml_rope_custom(struct ggml_context *ctx, struct ggml_tensor *a, int n_past,
    int n_dims, int mode, int n_ctx, float freq_base, float freq_scale) {
    return berth_2023_ggml_rope_custom_past(ctx, a, n_past, n_dims, mode, n_ctx, freq_base, freq_scale);
}
static inline struct ggml_tensor *berth_2023_ggml_rope_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_past,
    int n_dims, int mode, int n_ctx, float freq_base, float freq_scale) {
    return berth_2023_ggml_rope_custom_past_inplace(ctx, a, n_past, n_dims, mode, n_ctx, freq_base, freq_scale);
}
#        else
// A call selects the form by its arguments. A name without arguments is the function of the selected date.
#            define BERTH_2023_IS_TENSOR(x, yes, no) \
                _Generic((x), struct ggml_tensor * : yes, const struct ggml_tensor * : yes, void * : yes, default : no)
#            define BERTH_2023_PICK_12(a, b, c, d, e, f, g, h, i, j, k, l, name, ...) name
#            define berth_2023_ggml_scale(ctx, a, s) \
                BERTH_2023_IS_TENSOR(s, berth_2023_ggml_scale, berth_2023_ggml_scale_by)(ctx, a, s)
#            define berth_2023_ggml_scale_inplace(ctx, a, s) \
                BERTH_2023_IS_TENSOR(s, berth_2023_ggml_scale_inplace, berth_2023_ggml_scale_by_inplace)(ctx, a, s)
#            define berth_2023_ggml_rope(ctx, a, b, n_dims, mode, n_ctx) \
                BERTH_2023_IS_TENSOR(b, berth_2023_ggml_rope, berth_2023_ggml_rope_past)(ctx, a, b, n_dims, mode, n_ctx)
#            define berth_2023_ggml_rope_inplace(ctx, a, b, n_dims, mode, n_ctx) \
                BERTH_2023_IS_TENSOR(b, berth_2023_ggml_rope_inplace, berth_2023_ggml_rope_past_inplace) \
                (ctx, a, b, n_dims, mode, n_ctx)
#            define berth_2023_ggml_im2col(...) \
                BERTH_2023_PICK_12( \
                    __VA_ARGS__, 12, berth_2023_ggml_im2col_to, berth_2023_ggml_im2col, 9, 8, 7, 6, 5, 4, 3, 2, 1) \
                (__VA_ARGS__)
#            define berth_2023_ggml_graph_view(...) \
                BERTH_2023_PICK_12( \
                    __VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, berth_2023_ggml_graph_view_in, berth_2023_ggml_graph_view, 2, 1) \
                (__VA_ARGS__)
#            define berth_2023_ggml_quantize_chunk(...) \
                BERTH_2023_PICK_12(__VA_ARGS__, 12, 11, 10, 9, berth_2023_ggml_quantize_chunk_rows, 7, \
                    berth_2023_ggml_quantize_chunk, 5, 4, 3, 2, 1) \
                (__VA_ARGS__)
#        endif
#    endif

// ---- names of ggml's API ----

#    define ggml_to_float_t berth_2023_to_float_t
#    define ggml_from_float_t berth_2023_from_float_t
#    define ggml_vec_dot_t berth_2023_vec_dot_t
#    define ggml_fp16_to_fp32_row berth_2023_ggml_fp16_to_fp32_row
#    define ggml_fp32_to_fp16_row berth_2023_ggml_fp32_to_fp16_row
#    define ggml_print_backtrace berth_2023_ggml_print_backtrace
#    define ggml_numa_init berth_2023_ggml_numa_init
#    define ggml_nbytes_split berth_2023_ggml_nbytes_split
#    define ggml_blck_size berth_2023_ggml_blck_size
#    define ggml_set_param berth_2023_ggml_set_param
#    define ggml_concat berth_2023_ggml_concat
#    define ggml_leaky berth_2023_ggml_leaky
#    define ggml_group_norm berth_2023_ggml_group_norm
#    define ggml_group_norm_inplace berth_2023_ggml_group_norm_inplace
#    define ggml_cpy_inplace berth_2023_ggml_cpy_inplace
#    define ggml_cont_inplace berth_2023_ggml_cont_inplace
#    define ggml_mul_mat_id berth_2023_ggml_mul_mat_id
#    define ggml_soft_max_ext berth_2023_ggml_soft_max_ext
#    define ggml_soft_max_back berth_2023_ggml_soft_max_back
#    define ggml_soft_max_back_inplace berth_2023_ggml_soft_max_back_inplace
#    define ggml_rope_xpos_inplace berth_2023_ggml_rope_xpos_inplace
#    define ggml_rope_back berth_2023_ggml_rope_back
#    define ggml_alibi berth_2023_ggml_alibi
#    define ggml_conv_depthwise_2d berth_2023_ggml_conv_depthwise_2d
#    define ggml_upscale berth_2023_ggml_upscale
#    define ggml_flash_attn berth_2023_ggml_flash_attn
#    define ggml_flash_ff berth_2023_ggml_flash_ff
#    define ggml_map_unary_f32 berth_2023_ggml_map_unary_f32
#    define ggml_map_unary_inplace_f32 berth_2023_ggml_map_unary_inplace_f32
#    define ggml_map_binary_f32 berth_2023_ggml_map_binary_f32
#    define ggml_map_binary_inplace_f32 berth_2023_ggml_map_binary_inplace_f32
#    define ggml_map_custom1_f32 berth_2023_ggml_map_custom1_f32
#    define ggml_map_custom1_inplace_f32 berth_2023_ggml_map_custom1_inplace_f32
#    define ggml_map_custom2_f32 berth_2023_ggml_map_custom2_f32
#    define ggml_map_custom2_inplace_f32 berth_2023_ggml_map_custom2_inplace_f32
#    define ggml_map_custom3_f32 berth_2023_ggml_map_custom3_f32
#    define ggml_map_custom3_inplace_f32 berth_2023_ggml_map_custom3_inplace_f32
#    define ggml_build_backward_expand berth_2023_ggml_build_backward_expand
#    define ggml_build_forward berth_2023_ggml_build_forward
#    if defined(BERTH_2023_GRAPH_ROOM) && !defined(__cplusplus)
#        define ggml_build_forward_expand berth_2023_ggml_build_forward_expand
#    endif
#    define ggml_build_forward_ctx berth_2023_ggml_build_forward_ctx
#    define ggml_graph_dup berth_2023_ggml_graph_dup
#    define ggml_graph_get_tensor berth_2023_ggml_graph_get_tensor
#    define ggml_graph_plan berth_2023_ggml_graph_plan
#    define ggml_graph_compute berth_2023_ggml_graph_compute
#    define ggml_graph_compute_with_ctx berth_2023_ggml_graph_compute_with_ctx
#    define ggml_internal_get_type_traits berth_2023_ggml_internal_get_type_traits
#    define ggml_quantize_q4_0 berth_2023_ggml_quantize_q4_0
#    define ggml_quantize_q4_1 berth_2023_ggml_quantize_q4_1
#    define ggml_quantize_q5_0 berth_2023_ggml_quantize_q5_0
#    define ggml_quantize_q5_1 berth_2023_ggml_quantize_q5_1
#    define ggml_quantize_q8_0 berth_2023_ggml_quantize_q8_0
#    define ggml_quantize_q2_K berth_2023_ggml_quantize_q2_K
#    define ggml_quantize_q3_K berth_2023_ggml_quantize_q3_K
#    define ggml_quantize_q4_K berth_2023_ggml_quantize_q4_K
#    define ggml_quantize_q5_K berth_2023_ggml_quantize_q5_K
#    define ggml_quantize_q6_K berth_2023_ggml_quantize_q6_K
#    define gguf_get_version berth_2023_gguf_get_version
#    define gguf_get_data berth_2023_gguf_get_data
#    define gguf_get_n_kv berth_2023_gguf_get_n_kv
#    define gguf_find_key berth_2023_gguf_find_key
#    define gguf_get_key berth_2023_gguf_get_key
#    define gguf_get_kv_type berth_2023_gguf_get_kv_type
#    define gguf_get_arr_type berth_2023_gguf_get_arr_type
#    define gguf_get_val_u8 berth_2023_gguf_get_val_u8
#    define gguf_get_val_i8 berth_2023_gguf_get_val_i8
#    define gguf_get_val_u16 berth_2023_gguf_get_val_u16
#    define gguf_get_val_i16 berth_2023_gguf_get_val_i16
#    define gguf_get_val_u32 berth_2023_gguf_get_val_u32
#    define gguf_get_val_i32 berth_2023_gguf_get_val_i32
#    define gguf_get_val_f32 berth_2023_gguf_get_val_f32
#    define gguf_get_val_u64 berth_2023_gguf_get_val_u64
#    define gguf_get_val_i64 berth_2023_gguf_get_val_i64
#    define gguf_get_val_f64 berth_2023_gguf_get_val_f64
#    define gguf_get_val_bool berth_2023_gguf_get_val_bool
#    define gguf_get_val_str berth_2023_gguf_get_val_str
#    define gguf_get_val_data berth_2023_gguf_get_val_data
#    define gguf_get_arr_n berth_2023_gguf_get_arr_n
#    define gguf_get_arr_data berth_2023_gguf_get_arr_data
#    define gguf_get_arr_str berth_2023_gguf_get_arr_str
#    define gguf_get_n_tensors berth_2023_gguf_get_n_tensors
#    define gguf_find_tensor berth_2023_gguf_find_tensor
#    define gguf_get_tensor_offset berth_2023_gguf_get_tensor_offset
#    define gguf_get_tensor_name berth_2023_gguf_get_tensor_name
#    define gguf_get_tensor_type berth_2023_gguf_get_tensor_type
#    define gguf_set_arr_data berth_2023_gguf_set_arr_data
#    define gguf_set_arr_str berth_2023_gguf_set_arr_str
#    define gguf_set_kv berth_2023_gguf_set_kv
#    define gguf_set_tensor_data berth_2023_gguf_set_tensor_data
#    define gguf_write_to_file berth_2023_gguf_write_to_file
#    define ggml_cpu_has_metal berth_2023_has_no
#    define ggml_cpu_has_blas berth_2023_has_no
#    define ggml_cpu_has_cublas berth_2023_has_no
#    define ggml_cpu_has_clblast berth_2023_has_no
#    define ggml_cpu_has_vulkan berth_2023_has_no
#    define ggml_cpu_has_kompute berth_2023_has_no
#    define ggml_cpu_has_gpublas berth_2023_has_no
#    define ggml_cpu_has_sycl berth_2023_has_no

// Names whose meaning depends on the date.
#    if BERTH_2023 <= 202312
#        define ggml_type_sizef berth_2023_ggml_type_sizef
#        define ggml_get_first_tensor berth_2023_ggml_get_first_tensor
#        define ggml_get_next_tensor berth_2023_ggml_get_next_tensor
#        define ggml_scale berth_2023_ggml_scale
#        define ggml_scale_inplace berth_2023_ggml_scale_inplace
#        define ggml_im2col berth_2023_ggml_im2col
#        define ggml_quantize_chunk berth_2023_ggml_quantize_chunk
#    else
#        define ggml_quantize_chunk berth_2023_ggml_quantize_chunk_rows
#    endif
#    if BERTH_2023 <= 202311
#        define ggml_graph_view berth_2023_ggml_graph_view_in
#    else
#        define ggml_graph_view berth_2023_ggml_graph_view
#    endif
#    if BERTH_2023 <= 202309
#        define ggml_rope berth_2023_ggml_rope_past
#        define ggml_rope_inplace berth_2023_ggml_rope_past_inplace
#        define ggml_rope_custom berth_2023_ggml_rope_custom_past
#        define ggml_rope_custom_inplace berth_2023_ggml_rope_custom_past_inplace
#    else
#        define ggml_rope berth_2023_ggml_rope
#        define ggml_rope_inplace berth_2023_ggml_rope_inplace
#        define ggml_rope_custom berth_2023_ggml_rope_custom
#        define ggml_rope_custom_inplace berth_2023_ggml_rope_custom_inplace
#    endif

#    ifdef __cplusplus
extern "C" {
#    endif

#endif // BERTH_2023_IMPLEMENTATION

#ifdef __cplusplus
}
#endif
