// SPDX-License-Identifier: MIT
// file.c: the functions of file.h.

#include "proof/file.h"

#include "base/min.h"
#include "proof/budget.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef BERTH_ZLIB
#    include <zlib.h>
#endif

// ---- writing ----

bool proof_writer_init(struct proof_writer *w, FILE *file, bool is_gz, const char **why) {
    *w = (struct proof_writer){.file = file};
    if (!is_gz) {
        return true;
    }
#ifdef BERTH_ZLIB
    const int fd = dup(fileno(file));
    w->gz = fd >= 0 ? gzdopen(fd, "wb1") : NULL;
    if (w->gz == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        *why = "out of memory for the compression";
    }
#else
    *why = "this build has no zlib; choose a name without .gz";
#endif
    return w->gz != NULL;
}

static bool write_check(struct proof_writer *w, bool ok) {
    if (!ok && !w->has_failed) {
        w->has_failed = true;
        w->why = errno;
    }
    return ok;
}

bool proof_writer_write(const char *text, size_t size, void *user) {
    struct proof_writer *w = user;
#ifdef BERTH_ZLIB
    if (w->gz != NULL) {
        return write_check(w, gzwrite(w->gz, text, (unsigned) size) == (int) size);
    }
#endif
    return write_check(w, fwrite(text, 1, size, w->file) == size);
}

bool proof_writer_fini(struct proof_writer *w) {
#ifdef BERTH_ZLIB
    if (w->gz != NULL) {
        (void) write_check(w, gzclose(w->gz) == Z_OK);
    }
#endif
    errno = w->why;
    return !w->has_failed;
}

// ---- checking ----

// The file of a proof. gzip files are recognised by their content.
struct proof_input {
    void *file; // FILE, or gzFile if zlib is there
    bool has_failed;
};

static bool input_open(struct proof_input *in, const char *path) {
    in->has_failed = false;
#ifdef BERTH_ZLIB
    in->file = gzopen(path, "rb");
#else
    in->file = fopen(path, "rb");
#endif
    return in->file != NULL;
}

static size_t input_read(char *to, size_t size, void *user) {
    struct proof_input *in = user;
#ifdef BERTH_ZLIB
    const int n = gzread(in->file, to, (unsigned) size);
    in->has_failed |= n < 0;
    return n > 0 ? (size_t) n : 0;
#else
    const size_t n = fread(to, 1, size, in->file);
    in->has_failed |= n == 0 && ferror((FILE *) in->file);
    return n;
#endif
}

static void input_close(struct proof_input *in) {
#ifdef BERTH_ZLIB
    gzclose(in->file);
#else
    fclose(in->file);
#endif
}

// A pool of the plan.
struct pool {
    int32_t pool;
    uint64_t peak, bound; // bytes
};

static int by_pool(const void *a, const void *b) {
    const struct pool *x = a, *y = b;
    return x->pool < y->pool ? -1 : x->pool > y->pool;
}

// Lists the pools with their peaks. Returns their number.
static size_t pools_list(const struct berth_plan_set *set, bool has_plan, struct pool *pools) {
    size_t n = 0;
    for (size_t i = 0; i < (size_t) set->n_items; i++) {
        const uint64_t end = has_plan && set->items[i].size > 0 ? set->offsets[i] + set->items[i].size : 0;
        pools[i] = (struct pool){set->items[i].pool, end, 0};
    }
    qsort(pools, (size_t) set->n_items, sizeof *pools, by_pool);
    for (size_t i = 0; i < (size_t) set->n_items; i++) {
        if (n == 0 || pools[n - 1].pool != pools[i].pool) {
            pools[n++] = pools[i];
        } else {
            pools[n - 1].peak = max_u64(pools[i].peak, pools[n - 1].peak);
        }
    }
    return n;
}

// Checks the proof of each pool in turn, sets the bounds of the pools, and returns the number of steps.
static int64_t pools_check(struct proof *proof, struct pool *pools, size_t n_pools) {
    int64_t n_steps = 0;
    while (proof_next(proof)) {
        const struct pool key = {.pool = proof->pool};
        struct pool *pool = bsearch(&key, pools, n_pools, sizeof *pools, by_pool);
        if (pool != NULL) {
            pool->bound = max_u64(proof->bound, pool->bound);
            n_steps += (int64_t) proof->n_steps;
        }
    }
    return n_steps;
}

// Opens the file and makes an empty proof. False: a failure; result->why is the reason.
static bool file_begin(struct proof_input *in, const char *path, struct proof **proof, struct proof_result *result) {
    errno = 0; // zlib does not set it if memory is exhausted
    if (!input_open(in, path)) {
        snprintf(result->why, sizeof result->why, "cannot be opened: %s", errno != 0 ? strerror(errno) : "out of memory");
        return false;
    }
    *proof = berth_malloc(sizeof **proof);
    if (*proof == NULL) {
        snprintf(result->why, sizeof result->why, "out of memory");
        input_close(in);
    }
    return *proof != NULL;
}

// Stores why the proof is refused, and frees it. False: the file could not be read, or memory was exhausted.
static bool file_end(struct proof_input *in, struct proof *proof, bool has_memory, struct proof_result *result) {
    has_memory = has_memory && !proof->mem.has_failed;
    result->is_valid = has_memory && !proof->is_refused;
    snprintf(result->why, sizeof result->why, "%s", proof->why);
    if (in->has_failed) {
        snprintf(result->why, sizeof result->why, "cannot be read");
    } else if (!has_memory) {
        snprintf(result->why, sizeof result->why, "out of memory");
    }
    input_close(in);
    berth_arrays_free(&proof->mem);
    berth_free(proof);
    return !in->has_failed && has_memory;
}

bool proof_file_check(const char *path, const struct berth_plan_set *set, bool has_plan, struct proof_result *result) {
    struct proof_input in;
    struct proof *proof;
    *result = (struct proof_result){.is_optimal = has_plan};
    if (!file_begin(&in, path, &proof, result)) {
        return false;
    }
    struct pool *pools = berth_malloc(((size_t) set->n_items + 1) * sizeof *pools);
    proof_init(proof, set->items, set->n_items, input_read, &in);
    if (pools != NULL) {
        const size_t n_pools = pools_list(set, has_plan, pools);
        result->n_steps = pools_check(proof, pools, n_pools);
        for (size_t k = 0; k < n_pools; k++) {
            result->bound += pools[k].bound;
            if (pools[k].peak != pools[k].bound) {
                result->is_optimal = false;
            }
        }
    }
    berth_free(pools);
    return file_end(&in, proof, pools != NULL, result);
}

bool proof_file_check_budget(const char *path, const struct berth_budget_op *ops, int64_t n_ops,
    const struct berth_budget_params *params, struct proof_result *result) {
    struct proof_input in;
    struct proof *proof;
    *result = (struct proof_result){0};
    if (!file_begin(&in, path, &proof, result)) {
        return false;
    }
    proof_init(proof, NULL, 0, input_read, &in);
    proof_budget(proof, ops, n_ops, params); // the proof stores why it is refused
    result->n_steps = (int64_t) proof->n_steps;
    return file_end(&in, proof, true, result);
}
