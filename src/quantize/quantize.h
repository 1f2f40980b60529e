// SPDX-License-Identifier: MIT
// quantize.h: converts model files to other types, compares files, splits and joins files, and changes keys.
#pragma once

#include "model/workbench.h"

// ---- recipe.c: the type of each tensor: one type for all, a mix with a name of llama-quantize, or by patterns of names ----

#define RECIPE_MAX_RULES 64

struct recipe_mix;

// --tensor-type: tensors whose names match the pattern get the type.
struct recipe_rule {
    char pattern[128];
    enum ggml_type type;
};

struct recipe {
    enum ggml_type type;          // type of tensors without a rule
    const struct recipe_mix *mix; // NULL: `type` for all tensors
    struct recipe_rule rules[RECIPE_MAX_RULES];
    int n_rules;
    // Set by recipe_set_model:
    const struct gguf_context *meta;
    int64_t n_layer, n_expert;
    int64_t n_share; // query heads per key and value head
    bool is_70b;     // 80 layers with shared key and value heads
    bool has_output, has_imatrix;
};

// Ignores case.
bool recipe_type_parse(const char *name, enum ggml_type *type);
// Parses the name of a mix or a type, ignoring case. is_pure: only types are accepted. False: unknown name.
bool recipe_parse(const char *name, bool is_pure, struct recipe *out);
// Parses "PATTERN=TYPE". False: invalid, or there are too many rules.
bool recipe_rule_parse(const char *text, struct recipe *out);
// Checks that all types of the recipe can be quantised, with or without an importance matrix.
bool recipe_check(const struct recipe *recipe, bool has_imatrix, struct model_error *error);
const char *recipe_name(const struct recipe *recipe);
// Returns the value of general.file_type; -1: there is none.
int recipe_file_type(const struct recipe *recipe);
// meta must outlive the recipe.
void recipe_set_model(struct recipe *recipe, const struct gguf_context *meta, bool has_imatrix);
// Returns the tensor's own type if the tensor is not converted.
enum ggml_type recipe_type(const struct recipe *recipe, const struct ggml_tensor *t);
// Returns the name of mix i; NULL after the last.
const char *recipe_mix_name(int i);

// ---- imatrix.c: the importance of a column of a weight is the mean square of the inputs with which the column was multiplied
// ----

struct imatrix;

// Reads a file of llama.cpp's llama-imatrix: GGUF with in_sum2 and counts, or the older .dat format. NULL on failure.
struct imatrix *imatrix_open(const char *path, struct model_error *error);
void imatrix_free(struct imatrix *m);
// Returns ne[0] values for each matrix of the tensor. NULL: none. If the number of values does not match the tensor, sets
// *has_wrong_size and returns NULL.
const float *imatrix_find(const struct imatrix *m, const struct ggml_tensor *t, bool *has_wrong_size);

// Sums the squares of the inputs of a model's matrices while a scheduler computes.
struct imatrix_collector {
    struct imatrix_sums *sums; // [n] sorted by the address of the weight
    size_t n;
    float *rows;  // temporary copy of the inputs of a product
    int32_t *ids; // temporary copy of the ids of selected experts
    size_t rows_cap, ids_cap;
    bool has_failed;                // out of memory
    ggml_abort_callback is_stopped; // stops the graph when it returns true; NULL: never
};

struct imatrix_source {
    const char *text; // file name
    int64_t n_chunks, n_ctx;
};

bool imatrix_collector_init(struct imatrix_collector *c, const struct model *model, struct model_error *error);
void imatrix_collector_fini(struct imatrix_collector *c);
// Evaluation callback of a scheduler; user is the collector.
bool imatrix_collector_eval(struct ggml_tensor *t, bool ask, void *user);
// Writes a GGUF file in the format of llama-imatrix. Sets *n_tensors to its number of weights.
bool imatrix_collector_write(const struct imatrix_collector *c, const struct imatrix_source *source, FILE *file,
    int64_t *n_tensors, struct model_error *error);

// ---- rows.c ----

struct quantize_rows {
    const struct ggml_tensor *tensor;
    enum ggml_type type;
    const float *weights; // ne[0] importances per matrix; or NULL
    int n_threads;
    void (*progress)(double part, void *user); // called on the caller's thread with the fraction; or NULL
    void *user;
};

// Writes ggml_row_size(type) bytes per row to out and adds the squared errors to *squares. Neither result depends on the number
// of threads. Uses some MiB per thread, whatever the size of the tensor. False: out of memory, or the type cannot be quantised.
bool quantize_rows_run(const struct quantize_rows *params, void *out, double *squares);
// Quantises one block to find out whether the type can be quantised. Some types require an importance matrix; some do not hold
// numbers.
bool quantize_can_make(enum ggml_type type, bool has_imatrix);

// ---- file.c: only one tensor of the result is in memory at a time ----

struct quantize_job {
    const struct berth_gguf_map *map;
    const struct recipe *recipe;   // with the properties of the map's model
    const struct imatrix *imatrix; // NULL: none
    int n_threads;
    struct work_watch watch; // progress in bytes of the input
};

struct quantize_totals {
    int64_t n_converted, n_elements;
    size_t before, after; // bytes of all tensors
    double squares;       // sum of squared errors
};

// Returns the header of the result, which the caller frees. Sets all totals except n_elements and squares. NULL on failure.
struct gguf_context *quantize_header(const struct quantize_job *job, struct quantize_totals *totals, struct model_error *error);
// Writes the header and all tensors. Adds to totals->n_elements and totals->squares.
bool quantize_write(const struct quantize_job *job, const struct gguf_context *header, FILE *file, struct quantize_totals *totals,
    struct model_error *error);

// ---- compare.c ----

// Called for each difference: "key" or "tensor", its name, and the kind of difference.
typedef void (*compare_report_t)(const char *kind, const char *name, const char *how, void *user);
void files_compare(const struct berth_gguf_map *a, const struct berth_gguf_map *b, compare_report_t report, void *user);

// ---- rewrite.c: rewrites files without changing their tensors ----

// Sets one KEY=VALUE. An existing key keeps its type. A new key gets the first type that can represent the value: bool, u32, i32,
// f32, string.
bool rewrite_key_set(struct gguf_context *g, const char *word, struct model_error *error);

// Returns the name of file `no` (from 0) of n: "OUT-00001-of-00003.gguf". False: the name is too long.
bool rewrite_part_path(char path[4096], const char *out, int64_t no, int64_t n, struct model_error *error);

// Splits a model into several files. A file holds at most max_tensors tensors and max_size bytes, but at least one tensor.
struct rewrite_split {
    const struct berth_gguf_map *map;
    uint64_t max_size;
    int64_t max_tensors;
    const struct ggml_tensor **tensors; // [n_tensors] in file order
    int64_t n_tensors, n_parts;
    int64_t part, first, end; // current file; its first tensor; end of its tensors
};

bool rewrite_split_init(struct rewrite_split *s, struct model_error *error); // requires map, max_size and max_tensors
void rewrite_split_fini(struct rewrite_split *s);
// Returns the header of the next file, which the caller frees. NULL on failure. After this call, rewrite_split_bytes returns the
// tensors of this file, for model_write.
struct gguf_context *rewrite_split_next(struct rewrite_split *s, struct model_error *error);
const void *rewrite_split_bytes(int64_t i, void *split, struct model_error *error);

// Returns the header of the joined file, which the caller frees. NULL: failed, or the files are not parts of one model.
// rewrite_join_bytes then returns the tensors. path: the first file, for error messages.
struct gguf_context *rewrite_join_header(const struct model *model, const char *path, struct model_error *error);
const void *rewrite_join_bytes(int64_t i, void *model, struct model_error *error);
