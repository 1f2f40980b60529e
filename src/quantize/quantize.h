// SPDX-License-Identifier: MIT
// quantize.h: model files in other types: which type each tensor gets, importance matrices, rows quantised by threads; and files
// compared, or rewritten with their tensors as they are: split, joined, with other keys.
#pragma once

#include "model/workbench.h"

// ---- recipe.c: which type each tensor gets: one for all, a mix as llama-quantize names it, or by patterns of names ----

#define RECIPE_MAX_RULES 64

struct recipe_mix;

// One --tensor-type: names that match the pattern get the type.
struct recipe_rule {
    char pattern[128];
    enum ggml_type type;
};

struct recipe {
    enum ggml_type type;          // of what no rule says otherwise
    const struct recipe_mix *mix; // NULL: the type for all
    struct recipe_rule rules[RECIPE_MAX_RULES];
    int n_rules;
    // of the model
    const struct gguf_context *meta;
    int64_t n_layer, n_expert;
    int64_t n_share; // heads that share keys and values
    bool is_70b;     // 80 layers with shared keys and values
    bool has_output, has_imatrix;
};

// A type by its name, in any case.
bool recipe_type_parse(const char *name, enum ggml_type *type);
// The mix of that name, or the type, in any case; is_pure: the type only. False: there is none.
bool recipe_parse(const char *name, bool is_pure, struct recipe *out);
// "PATTERN=TYPE"; false: it is not, or there are too many.
bool recipe_rule_parse(const char *text, struct recipe *out);
// Whether all of its types can be made, with or without an importance matrix.
bool recipe_check(const struct recipe *recipe, bool has_imatrix, struct model_error *error);
// Its name, as it was given.
const char *recipe_name(const struct recipe *recipe);
// Of general.file_type; -1: there is none.
int recipe_file_type(const struct recipe *recipe);
// Reads what it needs of the model, which outlives it.
void recipe_set_model(struct recipe *recipe, const struct gguf_context *meta, bool has_imatrix);
// The type that a tensor gets; its own: it stays as it is.
enum ggml_type recipe_type(const struct recipe *recipe, const struct ggml_tensor *t);
// Names of mixes, NULL after the last.
const char *recipe_mix_name(int i);

// ---- imatrix.c: how much each column of a weight matters: the mean square of what it was multiplied with ----

struct imatrix;

// Reads what llama.cpp's llama-imatrix writes: GGUF with in_sum2 and counts, or the older .dat. NULL on failure.
struct imatrix *imatrix_open(const char *path, struct model_error *error);
void imatrix_free(struct imatrix *m);
// The values of a tensor: ne[0] for each of its matrices. NULL if there are none; *is_wrong if there are, but of another size.
const float *imatrix_find(const struct imatrix *m, const struct ggml_tensor *t, bool *is_wrong);

// Sums up what the matrices of a model are multiplied with while a scheduler computes.
struct imatrix_collector {
    struct imatrix_sums *sums; // [n] by the address of the weight
    size_t n;
    float *rows;  // scratch
    int32_t *ids; // scratch
    size_t rows_cap, ids_cap;
    bool has_failed;                // out of memory
    ggml_abort_callback is_stopped; // NULL: never; ends the graph early
};

// Where it comes from.
struct imatrix_source {
    const char *text; // file
    int64_t n_chunks, n_ctx;
};

bool imatrix_collector_init(struct imatrix_collector *c, const struct model *model, struct model_error *error);
void imatrix_collector_fini(struct imatrix_collector *c);
// A scheduler's callback; user: the collector.
bool imatrix_collector_eval(struct ggml_tensor *t, bool ask, void *user);
// Writes GGUF as llama-imatrix does; *n_tensors: how many weights it has.
bool imatrix_collector_write(const struct imatrix_collector *c, const struct imatrix_source *source, FILE *file,
    int64_t *n_tensors, struct model_error *error);

// ---- rows.c ----

struct quantize_rows {
    const struct ggml_tensor *tensor;
    enum ggml_type type;
    const float *weights; // NULL, or ne[0] for each matrix of the tensor
    int n_threads;
    void (*progress)(double part, void *user); // NULL, or called on the caller's thread with the part that is done
    void *user;
};

// Fills out, ggml_row_size(type) bytes per row, and adds the squared errors to *squares: the same bytes and the same sum with any
// number of threads. False: out of memory, or the type cannot be made. Takes some MiB per thread, whatever the tensor.
bool quantize_rows_run(const struct quantize_rows *params, void *out, double *squares);
// Quantises one block: some types need an importance matrix, some do not hold real numbers.
bool quantize_can_make(enum ggml_type type, bool has_imatrix);

// ---- file.c: one tensor of the result at a time is in memory, whatever the model's size ----

struct quantize_job {
    const struct berth_gguf_map *map;
    const struct recipe *recipe;   // with the model of the map
    const struct imatrix *imatrix; // NULL: none
    int n_threads;
    struct work_watch watch; // progress counts bytes of the input
};

struct quantize_totals {
    int64_t n_converted, n_elements;
    size_t before, after; // bytes
    double squares;       // sum of squared errors
};

// The header of the result, to be freed, and the totals as far as it gives them; NULL on failure.
struct gguf_context *quantize_header(const struct quantize_job *job, struct quantize_totals *totals, struct model_error *error);
// Writes the header and all tensors; adds the elements and the squared errors.
bool quantize_write(const struct quantize_job *job, const struct gguf_context *header, FILE *file, struct quantize_totals *totals,
    struct model_error *error);

// ---- compare.c ----

// Called with each difference: "key" or "tensor", its name, and how it differs.
typedef void (*compare_report_t)(const char *kind, const char *name, const char *how, void *user);
void files_compare(const struct berth_gguf_map *a, const struct berth_gguf_map *b, compare_report_t report, void *user);

// ---- rewrite.c: files whose tensors stay as they are ----

// One KEY=VALUE. A key keeps its type; a new one is bool, u32, i32, f32 or a text, as its value looks.
bool rewrite_key_set(struct gguf_context *g, const char *word, struct model_error *error);

// The name of file no, from 0, of n: "OUT-00001-of-00003.gguf". False: it is too long.
bool rewrite_part_path(char path[4096], const char *out, int64_t no, int64_t n, struct model_error *error);

// A model in several files, each with at most so many bytes of tensors and so many tensors, or one tensor.
struct rewrite_split {
    const struct berth_gguf_map *map;
    uint64_t max_size;
    int64_t max_tensors;
    const struct ggml_tensor **tensors; // [n_tensors] in the order of the file
    int64_t n_tensors, n_parts;
    int64_t part, first, end; // the current file, its first tensor and the one after its last
};

bool rewrite_split_init(struct rewrite_split *s, struct model_error *error); // with map, max_size and max_tensors set
void rewrite_split_fini(struct rewrite_split *s);
// The header of the next file, to be freed; NULL on failure. Then rewrite_split_bytes returns its tensors, for model_write.
struct gguf_context *rewrite_split_next(struct rewrite_split *s, struct model_error *error);
const void *rewrite_split_bytes(int64_t i, void *split, struct model_error *error);

// A model of several files as one: the header of all, to be freed; NULL on failure, or if the files are no parts of one. Then
// rewrite_join_bytes returns the tensors of the model. path: of the first file, for errors.
struct gguf_context *rewrite_join_header(const struct model *model, const char *path, struct model_error *error);
const void *rewrite_join_bytes(int64_t i, void *model, struct model_error *error);
