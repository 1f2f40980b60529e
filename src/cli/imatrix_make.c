// SPDX-License-Identifier: MIT
// imatrix_make.c: `berth imatrix MODEL TEXT -o OUT`: runs a model over a text and writes how much each column of its matrices
// matters: the sum of squares of what they were multiplied with, as llama.cpp's llama-imatrix writes it.

#include "base/json.h"
#include "cli/generate_options.h"
#include "cli/gguf.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct options {
    struct cli_contexts read;
    const char *out;
};

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_CONTEXTS_ROWS,
    CLI_OPTION('o', "out", "OUT", "the file to write (GGUF)", .takes = "*", CLI_TO(struct options, out), .is_required = true),
    CLI_PLACE_ROWS,
    CLI_OPT_JSON(CLI_TO(struct options, read.json), "print one JSON object: tensors, chunks, tokens"),
    {0},
};

const struct cli_help cli_imatrix_help = {
    .command = "imatrix",
    .what = "which columns of a model's matrices matter, for quantising",
    .operands = "-o OUT MODEL TEXT",
    .takes = ".gguf .txt",
    .n_operands = {2, 2, 2},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, read.model), [CLI_IN_CONTEXTS] = offsetof(struct options, read)},
    .about = "Runs MODEL over the file TEXT, a context at a time, and writes the importance matrix to OUT, which 'berth gguf "
             "quantize --imatrix' takes. Ctrl-C ends reading; what was read by then is written.",
    .options = option_rows,
    .examples = {{"Over a text", "imatrix -o im.gguf model.gguf text.txt"},
        {"The first ten contexts of it", "imatrix --chunks 10 -o im.gguf -m model.gguf -f text.txt"}},
};

// What one weight has seen.
struct seen {
    const struct ggml_tensor *weight; // as the graph has it
    double *sums;                     // [ne[0], matrices]
    double *counts;                   // [matrices] rows; a float would stop counting at 2^24
};

struct collector {
    struct seen *seen; // by the address of the weight
    size_t n;
    float *rows;  // scratch
    int32_t *ids; // scratch
    size_t rows_cap, ids_cap;
    bool has_failed; // out of memory
};

// ---- collecting ----

static int by_weight(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) ((const struct seen *) a)->weight, y = (uintptr_t) ((const struct seen *) b)->weight;
    return x < y ? -1 : x > y;
}

static struct seen *seen_find(const struct collector *c, const struct ggml_tensor *weight) {
    const struct seen key = {.weight = weight};
    return bsearch(&key, c->seen, c->n, sizeof key, by_weight);
}

// A place for every matrix of the model; one that is there twice for the graph (a tied output) has one.
static bool collector_init(struct collector *c, const struct model *m) {
    c->seen = calloc(m->n_weights + 1, sizeof *c->seen);
    for (size_t i = 0; c->seen != NULL && i < m->n_weights; i++) {
        const struct ggml_tensor *w = *m->weights[i].slot;
        if (w->ne[1] > 1) {
            const size_t n_mats = (size_t) (w->ne[2] * w->ne[3]);
            c->seen[c->n++] =
                (struct seen){w, calloc((size_t) w->ne[0] * n_mats, sizeof(double)), calloc(n_mats, sizeof(double))};
            if (c->seen[c->n - 1].sums == NULL || c->seen[c->n - 1].counts == NULL) {
                return false;
            }
        }
    }
    if (c->seen != NULL) {
        qsort(c->seen, c->n, sizeof *c->seen, by_weight);
    }
    return c->seen != NULL;
}

static void collector_fini(struct collector *c) {
    for (size_t i = 0; i < c->n; i++) {
        free(c->seen[i].sums);
        free(c->seen[i].counts);
    }
    free(c->seen);
    free(c->rows);
    free(c->ids);
}

static bool fetch(const struct ggml_tensor *t, void **to, size_t *cap) {
    const size_t size = ggml_nbytes(t);
    if (*cap < size) {
        void *p = realloc(*to, size);
        if (p == NULL) {
            return false;
        }
        *to = p;
        *cap = size;
    }
    ggml_backend_tensor_get(t, *to, 0, size);
    return true;
}

static void row_add(struct seen *s, int64_t mat, const float *row) {
    const int64_t n = s->weight->ne[0];
    for (int64_t i = 0; i < n; i++) {
        s->sums[mat * n + i] += (double) row[i] * (double) row[i];
    }
    s->counts[mat]++;
}

// Rows of a product: all go through the matrix, or each through the experts that were chosen for its token.
static bool product_add(struct collector *c, struct seen *s, const struct ggml_tensor *t) {
    const struct ggml_tensor *x = t->src[1], *ids = t->src[2];
    const int64_t n_rows = x->ne[1] * x->ne[2] * x->ne[3];
    if (!fetch(x, (void **) &c->rows, &c->rows_cap) ||
        (t->op == GGML_OP_MUL_MAT_ID && !fetch(ids, (void **) &c->ids, &c->ids_cap))) {
        return false;
    }
    if (t->op == GGML_OP_MUL_MAT) {
        for (int64_t i = 0; i < n_rows; i++) {
            row_add(s, 0, c->rows + i * x->ne[0]);
        }
        return true;
    }
    for (int64_t token = 0; token < ids->ne[1]; token++) {
        for (int64_t k = 0; k < ids->ne[0]; k++) {
            const int32_t mat =
                *(const int32_t *) (const void *) ((const char *) c->ids + (size_t) token * ids->nb[1] + (size_t) k * ids->nb[0]);
            if (mat >= 0 && mat < s->weight->ne[2]) {
                row_add(s, mat, c->rows + (token * x->ne[1] + k % x->ne[1]) * x->ne[0]);
            }
        }
    }
    return true;
}

static bool on_node(struct ggml_tensor *t, bool ask, void *user_data) {
    struct collector *c = user_data;
    const bool is_product = (t->op == GGML_OP_MUL_MAT || t->op == GGML_OP_MUL_MAT_ID) && t->src[1]->type == GGML_TYPE_F32 &&
                            ggml_is_contiguous(t->src[1]);
    struct seen *s = is_product ? seen_find(c, t->src[0]) : NULL;
    if (ask) {
        return s != NULL;
    }
    c->has_failed = c->has_failed || (s != NULL && !product_add(c, s, t));
    return !c->has_failed && !cli_is_interrupted(NULL);
}

// ---- writing ----

static bool tensor_put(struct gguf_context *g, struct ggml_context *ctx, const char *name, const char *end, int64_t n0,
    int64_t n1, const double *data) {
    struct ggml_tensor *t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n0, n1);
    if (berth_is_poison(t)) {
        return false;
    }
    ggml_format_name(t, "%s%s", name, end);
    for (int64_t i = 0; i < n0 * n1; i++) {
        ((float *) t->data)[i] = (float) data[i];
    }
    gguf_add_tensor(g, t);
    return true;
}

static int write_out(const struct collector *c, const struct options *o, int64_t n_chunks) {
    size_t size = 4096;
    for (size_t i = 0; i < c->n; i++) {
        const struct ggml_tensor *w = c->seen[i].weight;
        size += 2 * ggml_tensor_overhead() + (size_t) ((w->ne[0] + 1) * w->ne[2] * w->ne[3]) * sizeof(float) + 256;
    }
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = size});
    struct gguf_context *g = gguf_init_empty();
    bool ok = ctx != NULL && g != NULL;
    berth_clear_error();
    if (ok) {
        gguf_set_val_str(g, "general.type", "imatrix");
        gguf_set_arr_str(g, "imatrix.datasets", (const char *[]){o->read.text}, 1);
        gguf_set_val_u32(g, "imatrix.chunk_count", (uint32_t) n_chunks);
        gguf_set_val_u32(g, "imatrix.chunk_size", (uint32_t) o->read.model.n_ctx);
    }
    for (size_t i = 0; ok && i < c->n; i++) {
        const struct seen *s = &c->seen[i];
        const int64_t n_mats = s->weight->ne[2] * s->weight->ne[3];
        bool is_used = false;
        for (int64_t k = 0; k < n_mats; k++) {
            is_used = is_used || s->counts[k] > 0;
        }
        ok = !is_used || (tensor_put(g, ctx, s->weight->name, ".in_sum2", s->weight->ne[0], n_mats, s->sums) &&
                             tensor_put(g, ctx, s->weight->name, ".counts", 1, n_mats, s->counts));
    }
    int code = CLI_FAILURE;
    if (!ok || *berth_last_error() != '\0') {
        cli_fail(CLI_FAILURE, "%s: %s", o->out, *berth_last_error() != '\0' ? berth_last_error() : "out of memory");
    } else {
        FILE *file = cli_open(o->out);
        code = file == NULL ? CLI_FAILURE : cli_close(file, o->out, gguf_write_to_file_ptr(g, file, false));
    }
    const int64_t n_tensors = gguf_get_n_tensors(g) / 2;
    gguf_free(g);
    ggml_free(ctx);
    FILE *told = cli_is_stdout(o->out) ? stderr : stdout;
    if (code == CLI_OK && o->read.json) {
        berth_json_printf(&(struct berth_json_writer){.file = told},
            "{'tensors': %" PRId64 ", 'chunks': %" PRId64 ", 'tokens': %" PRId64 "}\n", n_tensors, n_chunks,
            n_chunks * o->read.model.n_ctx);
    } else if (code == CLI_OK) {
        cli_text(told, 0, o->out);
        fprintf(told, ": %" PRId64 " matrices, seen over %" PRId64 " context%s of %" PRId64 " tokens\n", n_tensors, n_chunks,
            n_chunks == 1 ? "" : "s", o->read.model.n_ctx);
    }
    return code;
}

// ---- the command ----

// A context that Ctrl-C cut short is not counted, though what it has shown by then is in the sums: a callback that says no ends
// the graph early, which is no failure of the session.
static bool is_whole(void *user, const int32_t *ids, int64_t i, int64_t n, struct model_error *error) {
    const struct collector *c = user;
    (void) ids;
    if (cli_is_interrupted(NULL)) {
        return false;
    }
    if (c->has_failed) {
        return model_fail(error, "out of memory for what a matrix is multiplied with");
    }
    cli_progress("reading the text", (uint64_t) i + 1, (uint64_t) n, "context %" PRId64 " of %" PRId64, i + 1, n);
    return true;
}

static int collect(struct workbench *m, const struct options *o, const struct vocab *vocab) {
    struct collector c = {0};
    int64_t n = 0;
    int code = CLI_OK;
    if (collector_init(&c, m->model)) {
        ggml_backend_sched_set_eval_callback(m->session->sched, on_node, &c);
        struct context_reader reader = {.vocab = vocab, .each = is_whole, .user = &c};
        code = cli_contexts_read(m, &o->read, &reader, &n);
    } else {
        code = cli_fail(CLI_FAILURE, "out of memory for the sums of %zu weights", m->model->n_weights);
    }
    code = code == CLI_OK ? write_out(&c, o, n) : code;
    collector_fini(&c);
    return code;
}

int cli_imatrix(int argc, char **argv) {
    struct options o = {0};
    struct model_error error = {""};
    struct workbench m;
    int code = cli_options_parse(&cli_imatrix_help, argc, argv, &o);
    if (code >= 0) {
        return code;
    }
    o.read.model.n_batch = o.read.model.n_ctx;
    o.read.model.all_outputs = true;
    cli_catch_interrupt();
    code = cli_model_open(&m, &o.read.model);
    if (code != CLI_OK) {
        return code;
    }
    struct vocab *vocab = vocab_new(berth_gguf_map_meta(m.model->file), m.model->params.n_vocab, &error);
    code = vocab == NULL ? cli_fail(CLI_FAILURE, "%s: %s", m.path, error.text) : cli_output_check(o.out);
    code = code == CLI_OK ? cli_model_session(&m, &o.read.model) : code;
    if (code == CLI_OK) {
        code = collect(&m, &o, vocab);
    }
    vocab_free(vocab);
    workbench_close(&m);
    return code;
}
