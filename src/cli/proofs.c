// SPDX-License-Identifier: MIT
// proofs.c: the functions of proofs.h.

#include "cli/proofs.h"

#include "base/min.h"
#include "cli/cli.h"
#include "proof/proof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef BERTH_ZLIB
#    include <zlib.h>
#endif

// ---- writing ----

int cli_proof_open(struct cli_proof_out *o, const char *path) {
    *o = (struct cli_proof_out){.path = path};
    const bool is_gz = berth_ends_with(path, ".gz");
#ifndef BERTH_ZLIB
    if (is_gz) {
        return cli_fail(CLI_FAILURE, "%s: this build has no zlib; choose a name without .gz", path);
    }
#endif
    o->file = cli_open(path);
    if (o->file == NULL) {
        return CLI_FAILURE;
    }
#ifdef BERTH_ZLIB
    if (is_gz) {
        const int fd = dup(fileno(o->file));
        o->gz = fd >= 0 ? gzdopen(fd, "wb1") : NULL;
        if (o->gz == NULL) {
            if (fd >= 0) {
                close(fd);
            }
            cli_close(o->file, path, false);
            return cli_fail(CLI_FAILURE, "%s: out of memory for the compression", path);
        }
    }
#endif
    return CLI_OK;
}

bool cli_proof_write(const char *text, size_t size, void *user) {
    struct cli_proof_out *o = user;
#ifdef BERTH_ZLIB
    if (o->gz != NULL) {
        return gzwrite(o->gz, text, (unsigned) size) == (int) size;
    }
#endif
    return fwrite(text, 1, size, o->file) == size;
}

int cli_proof_close(struct cli_proof_out *o, bool ok) {
#ifdef BERTH_ZLIB
    if (o->gz != NULL) {
        if (gzclose(o->gz) != Z_OK) {
            ok = false;
        }
    }
#endif
    return cli_close(o->file, o->path, ok);
}

// ---- checking ----

// The file of a proof. gzip files are recognised by their content.
struct proof_in {
    void *file; // FILE, or gzFile if zlib is there
    bool has_failed;
};

static bool proof_in_open(struct proof_in *in, const char *path) {
    in->has_failed = false;
#ifdef BERTH_ZLIB
    in->file = gzopen(path, "rb");
#else
    in->file = fopen(path, "rb");
#endif
    return in->file != NULL;
}

static size_t proof_in_read(char *to, size_t size, void *user) {
    struct proof_in *in = user;
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

static void proof_in_close(struct proof_in *in) {
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
static size_t pools_find(const struct berth_plan_set *set, bool has_plan, struct pool *pools) {
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

int cli_proof_check(const char *path, const struct berth_plan_set *set, bool has_plan, struct cli_proof_sum *sum) {
    struct proof_in in;
    *sum = (struct cli_proof_sum){.is_valid = true, .is_optimal = has_plan};
    if (!proof_in_open(&in, path)) {
        return cli_fail(CLI_FAILURE, "%s: cannot be opened: %s", path, strerror(errno));
    }
    struct pool *pools = berth_malloc(((size_t) set->n_items + 1) * sizeof *pools);
    struct proof_reader *reader = berth_malloc(sizeof *reader);
    enum proof_answer answer = PROOF_OUT_OF_MEMORY;
    const size_t n_pools = pools != NULL ? pools_find(set, has_plan, pools) : 0;
    if (pools != NULL && reader != NULL) {
        proof_reader_init(reader, proof_in_read, &in);
        answer = PROOF_VALID;
    }
    while (answer == PROOF_VALID) {
        struct proof_claim claim;
        answer = proof_check(reader, set->items, set->n_items, &claim);
        const struct pool key = {.pool = claim.pool};
        struct pool *pool = answer == PROOF_VALID ? bsearch(&key, pools, n_pools, sizeof *pools, by_pool) : NULL;
        if (pool != NULL) {
            pool->bound = max_u64(claim.bound, pool->bound);
            sum->n_steps += claim.n_steps;
        }
    }
    for (size_t k = 0; k < n_pools; k++) {
        sum->bound += pools[k].bound;
        if (pools[k].peak != pools[k].bound) {
            sum->is_optimal = false;
        }
    }
    sum->is_valid = answer == PROOF_ENDED;
    if (answer == PROOF_REFUSED) {
        snprintf(sum->why, sizeof sum->why, "%s", reader->why);
    }
    proof_in_close(&in);
    berth_free(pools);
    berth_free(reader);
    if (in.has_failed) {
        return cli_fail(CLI_FAILURE, "%s: cannot be read", path);
    }
    return answer == PROOF_OUT_OF_MEMORY ? cli_fail(CLI_FAILURE, "%s: out of memory", path) : CLI_OK;
}
