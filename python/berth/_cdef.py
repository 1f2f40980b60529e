# SPDX-License-Identifier: MIT
"""The C declarations that the package uses, in cffi's form. tests/test_cdef.py compares them with the headers."""

from __future__ import annotations

# Parameters of the constructors of ops, one letter each: t tensor, f float, i int, n int64_t, z size_t, b bool, y type.
OPS = {
    "dup": "t", "add": "tt", "sub": "tt", "mul": "tt", "div": "tt", "sqr": "t", "sqrt": "t", "log": "t", "sin": "t", "cos": "t",
    "sum": "t", "sum_rows": "t", "cumsum": "t", "mean": "t", "argmax": "t", "repeat": "tt", "concat": "tti", "abs": "t", "sgn": "t",
    "neg": "t", "tanh": "t", "elu": "t", "relu": "t", "leaky_relu": "tfb", "sigmoid": "t", "gelu": "t", "gelu_erf": "t",
    "gelu_quick": "t", "silu": "t", "hardswish": "t", "hardsigmoid": "t", "exp": "t", "floor": "t", "ceil": "t", "round": "t",
    "reglu": "t", "geglu": "t", "swiglu": "t", "swiglu_split": "tt", "norm": "tf", "rms_norm": "tf", "group_norm": "tif",
    "l2_norm": "tf", "mul_mat": "tt", "mul_mat_id": "ttt", "out_prod": "tt", "scale": "tf", "cpy": "tt", "cast": "ty", "cont": "t",
    "reshape_1d": "tn", "reshape_2d": "tnn", "reshape_3d": "tnnn", "reshape_4d": "tnnnn", "view_1d": "tnz", "view_2d": "tnnzz",
    "view_3d": "tnnnzzz", "view_4d": "tnnnnzzzz", "permute": "tiiii", "transpose": "t", "get_rows": "tt", "set_rows": "ttt",
    "diag": "t", "diag_mask_inf": "ti", "soft_max": "t", "soft_max_ext": "ttff", "clamp": "tff", "im2col": "ttiiiiiiby",
    "conv_1d": "ttiii", "conv_2d": "ttiiiiii", "argsort": "ti", "top_k": "ti", "arange": "fff", "flash_attn_ext": "ttttfff",
    "cross_entropy_loss": "tt",
}  # fmt: skip

_C_TYPES = {
    "t": "struct ggml_tensor *", "f": "float", "i": "int", "n": "int64_t", "z": "size_t", "b": "bool", "y": "enum ggml_type",
}  # fmt: skip

ENUMS = """
enum ggml_type { GGML_TYPE_F32 };
enum ggml_status { GGML_STATUS_ALLOC_FAILED = -2, GGML_STATUS_FAILED = -1, GGML_STATUS_SUCCESS = 0, GGML_STATUS_ABORTED = 1 };
enum ggml_sort_order { GGML_SORT_ORDER_ASC, GGML_SORT_ORDER_DESC };
enum ggml_log_level { GGML_LOG_LEVEL_NONE, GGML_LOG_LEVEL_DEBUG, GGML_LOG_LEVEL_INFO, GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR,
    GGML_LOG_LEVEL_CONT };
enum gguf_type { GGUF_TYPE_UINT8, GGUF_TYPE_INT8, GGUF_TYPE_UINT16, GGUF_TYPE_INT16, GGUF_TYPE_UINT32, GGUF_TYPE_INT32,
    GGUF_TYPE_FLOAT32, GGUF_TYPE_BOOL, GGUF_TYPE_STRING, GGUF_TYPE_ARRAY, GGUF_TYPE_UINT64, GGUF_TYPE_INT64, GGUF_TYPE_FLOAT64 };
enum berth_plan_fault_kind { BERTH_PLAN_SOUND };
enum berth_budget_kind { BERTH_BUDGET_RUN, BERTH_BUDGET_SPILL, BERTH_BUDGET_RESTORE };
enum berth_end { BERTH_END_MODEL, BERTH_END_TOKENS, BERTH_END_CONTEXT, BERTH_END_STOP, BERTH_END_ABORTED };
enum berth_map_format { BERTH_MAP_SVG, BERTH_MAP_HTML };
"""

STRUCTS = """
typedef struct _IO_FILE FILE;
typedef bool (*ggml_abort_callback)(void *);
typedef void (*ggml_log_callback)(enum ggml_log_level, const char *, void *);
typedef void (*ggml_to_float_t)(const void *, float *, int64_t);
typedef struct ggml_backend *ggml_backend_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_backend_device *ggml_backend_dev_t;
typedef struct ggml_backend_reg *ggml_backend_reg_t;
typedef struct ggml_gallocr *ggml_gallocr_t;
struct ggml_init_params { size_t mem_size; void *mem_buffer; bool no_alloc; };
struct ggml_tensor {
    int type; struct ggml_backend_buffer *buffer; int64_t ne[4]; size_t nb[4]; int op; int32_t op_params[16]; int32_t flags;
    struct ggml_tensor *src[10]; struct ggml_tensor *view_src; size_t view_offs; void *data; char name[64]; void *extra;
    char padding[8];
};
struct ggml_type_traits {
    const char *type_name; int64_t blck_size; int64_t blck_size_interleave; size_t type_size; bool is_quantized;
    ggml_to_float_t to_float; void *from_float_ref;
};
struct gguf_init_params { bool no_alloc; struct ggml_context **ctx; };
struct berth_gguf_map_params { bool (*progress)(size_t, size_t, void *); void *user_data; bool prefetch; bool read; };
struct berth_plan_item {
    int64_t first; int64_t last; uint64_t size; uint64_t align; uint64_t fixed; int32_t alias; int32_t pool; bool is_fixed;
};
struct berth_plan_params {
    uint64_t memory_limit; uint64_t chunk_limit; int64_t time_limit_us; uint64_t seed; int n_threads; const uint64_t *start;
    bool is_brief; bool is_counted; bool (*proof)(const char *, size_t, void *); void *proof_data;
};
struct berth_plan_report {
    uint64_t peak; uint64_t bound; bool proven; bool fits; const char *method; double gap; int64_t bound_step; int64_t n_peak;
    int64_t time_us; int64_t n_nodes;
};
struct berth_plan_fault { enum berth_plan_fault_kind kind; int64_t i; int64_t j; };
typedef bool (*berth_plan_watch_t)(uint64_t, uint64_t, void *);
struct berth_plan_tensor {
    int64_t item; const char *name; const char *op; const char *type; int64_t ne[4]; int64_t node; const char *uses;
};
struct berth_plan_pool { int32_t pool; const char *name; uint64_t chunk_limit; };
struct berth_plan_set {
    int64_t n_items; struct berth_plan_item *items; char **ids; uint64_t *offsets; bool has_offsets; bool has_report; bool proven;
    uint64_t peak; uint64_t bound; int64_t n_tensors; struct berth_plan_tensor *tensors; int64_t n_pools;
    struct berth_plan_pool *pools; uint64_t *costs; const char **reads; char *text;
};
struct berth_budget_op {
    const int32_t *srcs; int64_t n_srcs; int32_t pool; uint64_t size; uint64_t align; uint64_t inplace; uint64_t cost;
    uint32_t flags; int32_t group; int32_t until;
};
struct berth_budget_pool {
    int32_t pool; int32_t spill_to; bool may_spill; uint64_t limit; double spill_cost_per_byte; uint64_t spill_cost_per_copy;
};
struct berth_budget_step { int32_t op; enum berth_budget_kind kind; };
struct berth_budget_params {
    const struct berth_budget_pool *pools; int64_t n_pools; int64_t time_limit_us; int64_t max_nodes; uint64_t seed; bool live_only;
    bool (*proof)(const char *, size_t, void *); void *proof_data;
};
struct berth_budget_use { int32_t pool; uint64_t limit; uint64_t live; uint64_t peak; uint64_t live_bound; };
struct berth_budget_result {
    struct berth_budget_step *steps; int64_t n_steps; bool fits; bool proven; uint64_t cost; uint64_t cost_once;
    uint64_t cost_bound; int64_t n_recomputed; int64_t n_spilled; int64_t n_restored; struct berth_budget_use *uses; int64_t n_uses;
    int32_t tight_op; int32_t *alive; int64_t n_alive; const char *method; int64_t n_nodes; int64_t time_us;
};
struct berth_model_params {
    const char *device; int n_threads; bool no_mmap; const char *const *loras; int64_t n_loras;
    bool (*progress)(size_t, size_t, void *); void *user_data;
};
struct berth_model_info {
    const char *path; const char *arch; int64_t n_layer; int64_t n_embd; int64_t n_vocab; int64_t n_ctx_train; int32_t bos;
    int32_t eos;
};
struct berth_session_params { int64_t n_ctx; int64_t n_batch; const char *cache_type; bool is_embedding; };
struct berth_session_memory {
    const char *device; uint64_t weights; uint64_t cache; uint64_t compute; uint64_t bound; uint64_t work;
};
struct berth_token_bias { int32_t token; float bias; };
struct berth_generate_params {
    int64_t max_tokens; int64_t seed; float temperature; int64_t top_k; float typical; float top_p; float min_p;
    float repeat_penalty; float frequency_penalty; float presence_penalty; int64_t repeat_last_n; float mirostat_tau;
    float mirostat_eta; const struct berth_token_bias *biases; int64_t n_biases; const char *const *stops; int n_stops;
    const char *grammar; const char *json_schema; bool (*on_text)(const char *, size_t, void *); void *user_data;
};
struct berth_generate_result {
    enum berth_end end; int64_t n_prompt; int64_t n_generated; int64_t prompt_us; int64_t generate_us; int64_t n_decoded;
    int64_t seed;
};
struct berth_plan_input_params { int64_t n_ctx; int64_t n_batch; const char *cache_type; };
"""

FUNCTIONS = """
const char *berth_version(void);
const char *berth_last_error(void);
bool berth_is_poison(const struct ggml_tensor *tensor);
const char *berth_poison_error(const struct ggml_tensor *tensor);
void ggml_log_set(ggml_log_callback callback, void *user_data);

enum ggml_status berth_plan_solve_watched(const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params,
    berth_plan_watch_t watch, void *user_data, uint64_t *offsets, struct berth_plan_report *report);
enum ggml_status berth_plan_check(const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params,
    const uint64_t *offsets, struct berth_plan_fault *fault);
enum ggml_status berth_plan_bound(const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params,
    uint64_t *bound, int64_t *step);
enum ggml_status berth_plan_write_csv(const struct berth_plan_set *set, const uint64_t *offsets, FILE *file);
enum ggml_status berth_plan_write_json(const struct berth_plan_set *set, const uint64_t *offsets,
    const struct berth_plan_report *report, FILE *file);
void berth_plan_set_free(struct berth_plan_set *set);
enum ggml_status berth_plan_input_read(
    const char *path, const struct berth_plan_input_params *params, struct berth_plan_set **set);
enum ggml_status berth_plan_map(struct berth_plan_set *set, const uint64_t *offsets, const char *title,
    enum berth_map_format format, FILE *file);
enum ggml_status berth_budget_solve(const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params,
    struct berth_budget_result **result);
void berth_budget_free(struct berth_budget_result *result);

int64_t ggml_blck_size(enum ggml_type type);
size_t ggml_row_size(enum ggml_type type, int64_t ne);
size_t ggml_nbytes(const struct ggml_tensor *tensor);
const char *ggml_type_name(enum ggml_type type);
const char *ggml_op_desc(const struct ggml_tensor *tensor);
const struct ggml_type_traits *ggml_get_type_traits(enum ggml_type type);
size_t ggml_quantize_chunk(enum ggml_type type, const float *src, void *dst, int64_t start, int64_t nrows, int64_t n_per_row,
    const float *imatrix);
size_t ggml_tensor_overhead(void);
size_t ggml_graph_overhead_custom(size_t size, bool grads);
struct ggml_context *ggml_init(struct ggml_init_params params);
void ggml_free(struct ggml_context *ctx);
struct ggml_tensor *ggml_new_tensor(struct ggml_context *ctx, enum ggml_type type, int n_dims, const int64_t *ne);
struct ggml_tensor *ggml_set_name(struct ggml_tensor *tensor, const char *name);
void ggml_set_output(struct ggml_tensor *tensor);
bool ggml_is_contiguous(const struct ggml_tensor *tensor);
struct ggml_cgraph *ggml_new_graph_custom(struct ggml_context *ctx, size_t size, bool grads);
void ggml_build_forward_expand(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor);
int ggml_graph_n_nodes(struct ggml_cgraph *cgraph);
struct ggml_tensor *ggml_graph_node(struct ggml_cgraph *cgraph, int i);
enum ggml_status berth_graph_check(const struct ggml_cgraph *graph);

void ggml_backend_load_all(void);
size_t ggml_backend_dev_count(void);
ggml_backend_dev_t ggml_backend_dev_get(size_t index);
ggml_backend_dev_t ggml_backend_dev_by_name(const char *name);
const char *ggml_backend_dev_name(ggml_backend_dev_t device);
const char *ggml_backend_dev_description(ggml_backend_dev_t device);
void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total);
ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t device);
ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char *params);
void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char *name);
void ggml_backend_free(ggml_backend_t backend);
const char *ggml_backend_name(ggml_backend_t backend);
ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend);
enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *cgraph);
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors(struct ggml_context *ctx, ggml_backend_t backend);
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);
size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer);
bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer);
void ggml_backend_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft);
void ggml_gallocr_free(ggml_gallocr_t galloc);
bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph *graph);
enum ggml_status berth_gallocr_report(ggml_gallocr_t galloc, int buffer_id, struct berth_plan_report *report);

struct gguf_context *gguf_init_empty(void);
void gguf_free(struct gguf_context *ctx);
uint32_t gguf_get_version(const struct gguf_context *ctx);
size_t gguf_get_alignment(const struct gguf_context *ctx);
int64_t gguf_get_n_kv(const struct gguf_context *ctx);
int64_t gguf_find_key(const struct gguf_context *ctx, const char *key);
const char *gguf_get_key(const struct gguf_context *ctx, int64_t key_id);
enum gguf_type gguf_get_kv_type(const struct gguf_context *ctx, int64_t key_id);
enum gguf_type gguf_get_arr_type(const struct gguf_context *ctx, int64_t key_id);
const char *gguf_get_val_str(const struct gguf_context *ctx, int64_t key_id);
const void *gguf_get_val_data(const struct gguf_context *ctx, int64_t key_id);
size_t gguf_get_arr_n(const struct gguf_context *ctx, int64_t key_id);
const void *gguf_get_arr_data(const struct gguf_context *ctx, int64_t key_id);
const char *gguf_get_arr_str(const struct gguf_context *ctx, int64_t key_id, size_t i);
int64_t gguf_get_n_tensors(const struct gguf_context *ctx);
int64_t gguf_find_tensor(const struct gguf_context *ctx, const char *name);
const char *gguf_get_tensor_name(const struct gguf_context *ctx, int64_t tensor_id);
const int64_t *gguf_get_tensor_ne(const struct gguf_context *ctx, int64_t tensor_id);
enum ggml_type gguf_get_tensor_type(const struct gguf_context *ctx, int64_t tensor_id);
size_t gguf_get_tensor_size(const struct gguf_context *ctx, int64_t tensor_id);
void gguf_set_val_i32(struct gguf_context *ctx, const char *key, int32_t val);
void gguf_set_val_u32(struct gguf_context *ctx, const char *key, uint32_t val);
void gguf_set_val_i64(struct gguf_context *ctx, const char *key, int64_t val);
void gguf_set_val_u64(struct gguf_context *ctx, const char *key, uint64_t val);
void gguf_set_val_f32(struct gguf_context *ctx, const char *key, float val);
void gguf_set_val_f64(struct gguf_context *ctx, const char *key, double val);
void gguf_set_val_bool(struct gguf_context *ctx, const char *key, bool val);
void gguf_set_val_str(struct gguf_context *ctx, const char *key, const char *val);
void gguf_set_val_u8(struct gguf_context *ctx, const char *key, uint8_t val);
void gguf_set_val_i8(struct gguf_context *ctx, const char *key, int8_t val);
void gguf_set_val_u16(struct gguf_context *ctx, const char *key, uint16_t val);
void gguf_set_val_i16(struct gguf_context *ctx, const char *key, int16_t val);
void gguf_set_arr_data(struct gguf_context *ctx, const char *key, enum gguf_type type, const void *data, size_t n);
void gguf_set_arr_str(struct gguf_context *ctx, const char *key, const char **data, size_t n);
void gguf_add_tensor(struct gguf_context *ctx, const struct ggml_tensor *tensor);
void gguf_set_tensor_data(struct gguf_context *ctx, const char *name, const void *data);
bool gguf_write_to_file(const struct gguf_context *ctx, const char *fname, bool only_meta);
struct berth_gguf_map *berth_gguf_map_open(const char *path, const struct berth_gguf_map_params *params);
void berth_gguf_map_close(struct berth_gguf_map *map);
const struct gguf_context *berth_gguf_map_meta(const struct berth_gguf_map *map);
const void *berth_gguf_map_data(const struct berth_gguf_map *map, int64_t tensor_id);

struct berth_model *berth_model_open(const char *path, const struct berth_model_params *params);
void berth_model_free(struct berth_model *model);
void berth_model_info(const struct berth_model *model, struct berth_model_info *info);
const struct gguf_context *berth_model_keys(const struct berth_model *model);
void berth_model_set_stop(struct berth_model *model, ggml_abort_callback stop, void *user_data);
bool berth_flag_is_set(void *flag);
int64_t berth_model_tokenize(const struct berth_model *model, const char *text, size_t size, unsigned flags, int32_t *tokens,
    int64_t max_tokens);
int64_t berth_model_detokenize(
    const struct berth_model *model, const int32_t *tokens, int64_t n, char *text, size_t max_size);
bool berth_model_is_end(const struct berth_model *model, int32_t token);
struct berth_session *berth_session_new(struct berth_model *model, const struct berth_session_params *params);
void berth_session_free(struct berth_session *session);
bool berth_session_memory(const struct berth_session *session, int i, struct berth_session_memory *memory);
int64_t berth_session_n_ctx(const struct berth_session *session);
int64_t berth_session_n_past(const struct berth_session *session);
void berth_session_reset(struct berth_session *session);
enum ggml_status berth_session_decode(struct berth_session *session, const int32_t *tokens, int64_t n);
const float *berth_session_logits(const struct berth_session *session);
enum ggml_status berth_session_embed(
    struct berth_session *session, const char *text, size_t size, bool is_last, bool is_raw, float *embedding);
void berth_generate_params_init(struct berth_generate_params *params);
enum ggml_status berth_session_generate(struct berth_session *session, const char *prompt, size_t size,
    const struct berth_generate_params *params, struct berth_generate_result *result);
struct berth_chat *berth_chat_new(struct berth_session *session, const char *template_name);
void berth_chat_free(struct berth_chat *chat);
enum ggml_status berth_chat_add(struct berth_chat *chat, const char *role, const char *text, size_t size);
enum ggml_status berth_chat_answer(
    struct berth_chat *chat, const struct berth_generate_params *params, struct berth_generate_result *result);
int64_t berth_chat_n_messages(const struct berth_chat *chat);
bool berth_chat_message(const struct berth_chat *chat, int64_t i, const char **role, const char **text);
"""

# Functions of the C library that the package uses for streams.
LIBC = """
FILE *open_memstream(char **text, size_t *size);
int fclose(FILE *file);
void free(void *p);
"""


def op_functions() -> str:
    """Returns the declarations of the constructors in OPS."""
    lines = []
    for name, letters in OPS.items():
        kinds = ["enum ggml_sort_order" if name == "argsort" and c == "i" else _C_TYPES[c] for c in letters]
        lines.append(f"struct ggml_tensor *ggml_{name}(struct ggml_context *ctx, {', '.join(kinds)});")
    return "\n".join(lines)


def functions() -> str:
    """Returns the declarations of all functions of Berth that the package calls."""
    return FUNCTIONS + op_functions()
