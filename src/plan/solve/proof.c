// SPDX-License-Identifier: MIT
// proof.c: writes the proof of a pool's bound (docs/dev/proofs.md): the live or padded bytes at a step, a fixed item, or
// the log of an exact search.

#include "plan/solve/proof.h"
#include "base/min.h"
#include "plan/solve/blocks.h"
#include "plan/solve/proof_text.h"

#include <inttypes.h>
#include <string.h>

// ---- the log with the highest bound ----

void berth_plan_proof_fini(struct plan_proof *proof) {
    berth_plan_log_fini(&proof->log);
    berth_free(proof->ids);
    proof->ids = NULL;
    proof->bound = 0;
}

// Copies the scope. False: out of memory.
static bool proof_scope(struct plan_proof *proof, const struct plan_log_scope *scope) {
    const size_t size = (size_t) scope->n * sizeof *proof->ids;
    proof->n = scope->n;
    berth_free(proof->ids);
    proof->ids = NULL;
    if (scope->ids != NULL) {
        proof->ids = berth_malloc(size);
        if (proof->ids == NULL) {
            proof->bound = 0; // the stored log has lost its scope
            return false;
        }
        memcpy(proof->ids, scope->ids, size);
    }
    return true;
}

void berth_plan_proof_keep(struct plan_proof *proof, struct plan_log *log, const struct plan_log_scope *scope, int64_t bound) {
    while (atomic_flag_test_and_set(&proof->lock)) {
    }
    if (bound > proof->bound && !log->has_failed && proof_scope(proof, scope)) {
        const struct plan_log swap = proof->log;
        proof->log = *log;
        *log = swap;
        proof->bound = bound;
    }
    atomic_flag_clear(&proof->lock);
}

// ---- output ----

// Copies the log. False: the temporary file cannot be read.
static bool output_log(struct plan_text *o, struct plan_log *log) {
    char part[4096];
    if (log->file != NULL && (fflush(log->file) != 0 || fseeko(log->file, 0, SEEK_SET) != 0)) {
        return false;
    }
    for (uint64_t left = log->file_size; left > 0;) {
        const size_t n = (size_t) min_u64(left, sizeof part);
        if (fread(part, 1, n, log->file) != n) {
            return false;
        }
        berth_plan_text_bytes(o, part, n);
        left -= n;
    }
    berth_plan_text_bytes(o, log->text, log->n);
    return true;
}

// ---- items at a step, and fixed items ----

// The items that are alive at a step, of each alias group the largest. Items are numbered within the pool.
struct live_set {
    const struct plan_pool *pool;
    int32_t *group;  // [n_ids] the first item of the alias group; the item itself if it has none
    int32_t *pick;   // [n_ids] of each group, the largest live item; -1: none
    uint64_t *align; // [n_ids] of each group, the common alignment
    uint64_t sum;
    struct berth_arrays mem;
};

static const struct berth_plan_item *pool_item(const struct plan_pool *pool, int32_t k) {
    return &pool->items[pool->ids[k]];
}

static bool live_set_init(struct live_set *l, const struct plan_pool *pool) {
    const size_t n = (size_t) pool->n_ids;
    *l = (struct live_set){.pool = pool};
    l->group = berth_arrays_new(&l->mem, n, sizeof *l->group);
    l->pick = berth_arrays_new(&l->mem, n, sizeof *l->pick);
    l->align = berth_arrays_new(&l->mem, n, sizeof *l->align);
    uint64_t *key = berth_arrays_new(&l->mem, 2 * n, sizeof *key);
    int32_t *idx = berth_arrays_new(&l->mem, 2 * n, sizeof *idx);
    if (l->mem.has_failed) {
        return false;
    }
    bool has_alias = false;
    for (int32_t k = 0; k < pool->n_ids; k++) {
        const struct berth_plan_item *item = pool_item(pool, k);
        l->group[k] = k;
        l->align[k] = max_u64(item->align, 1);
        idx[k] = k;
        key[k] = (uint64_t) item->alias;
        has_alias |= item->alias > 0;
    }
    if (has_alias) {
        berth_plan_sort(key, idx, key + n, idx + n, pool->n_ids);
    }
    for (int32_t k = 1; k < pool->n_ids && has_alias; k++) {
        if (key[k] > 0 && key[k] == key[k - 1]) {
            const int32_t first = l->group[idx[k - 1]];
            l->group[idx[k]] = first;
            // berth_plan_blocks has checked that the multiple is below 2^63.
            if (!berth_lcm_ok(l->align[first], l->align[idx[k]], &l->align[first])) {
                return false;
            }
        }
    }
    return true;
}

// Picks the items alive at `step` whose common alignment is a multiple of align. sum: the bytes that they require.
static void live_set_pick(struct live_set *l, int64_t step, uint64_t align) {
    uint64_t most_pad = 0;
    l->sum = 0;
    memset(l->pick, -1, (size_t) l->pool->n_ids * sizeof *l->pick);
    for (int32_t k = 0; k < l->pool->n_ids; k++) {
        const struct berth_plan_item *item = pool_item(l->pool, k);
        int32_t *pick = &l->pick[l->group[k]];
        if (item->first <= step && step <= item->last && item->size > 0 && l->align[l->group[k]] % align == 0 &&
            (*pick < 0 || pool_item(l->pool, *pick)->size < item->size)) {
            *pick = k;
        }
    }
    for (int32_t k = 0; k < l->pool->n_ids; k++) {
        if (l->pick[k] >= 0) {
            const uint64_t size = pool_item(l->pool, l->pick[k])->size;
            const uint64_t pad = berth_padding(size, align);
            most_pad = max_u64(pad, most_pad);
            l->sum += size + pad; // the bound of the pool is below 2^63
        }
    }
    l->sum -= most_pad;
}

static void live_set_write(const struct live_set *l, struct plan_text *o, uint64_t align) {
    berth_plan_text_print(o, "live %" PRIu64, align);
    for (int32_t k = 0; k < l->pool->n_ids; k++) {
        if (l->pick[k] >= 0) {
            berth_plan_text_print(o, " %" PRId32, l->pick[k]);
        }
    }
    berth_plan_text_print(o, "\n");
}

#define N_ALIGNS 16 // the number of different alignments that bound.c tries

// Finds the step and the alignment with the largest sum of bytes; ends at the first sum of at least `enough`. Returns the sum, at most
// `enough`.
static uint64_t live_set_best(struct live_set *l, uint64_t enough, int64_t *step, uint64_t *align) {
    uint64_t aligns[N_ALIGNS + 1] = {1}, best = 0;
    int n_aligns = 1;
    for (int32_t k = 0; k < l->pool->n_ids && n_aligns <= N_ALIGNS; k++) {
        int a = 0;
        while (a < n_aligns && aligns[a] != l->align[l->group[k]]) {
            a++;
        }
        if (a == n_aligns) {
            aligns[n_aligns++] = l->align[l->group[k]];
        }
    }
    *step = l->pool->bound_step;
    *align = 1;
    // bound_step is nearly always the step. In a pool with alias groups or alignments, it may be another.
    for (int32_t k = 0; k <= l->pool->n_ids && best < enough; k++) {
        const int64_t at = k == 0 ? l->pool->bound_step : pool_item(l->pool, k - 1)->first;
        for (int a = 0; a < n_aligns && best < enough; a++) {
            live_set_pick(l, at, aligns[a]);
            if (l->sum > best) {
                best = l->sum;
                *step = at;
                *align = aligns[a];
            }
        }
    }
    return min_u64(best, enough);
}

// Returns the fixed item that ends highest; -1: there is none.
static int32_t highest_fixed(const struct plan_pool *pool, uint64_t *end) {
    int32_t best = -1;
    *end = 0;
    for (int32_t k = 0; k < pool->n_ids; k++) {
        const struct berth_plan_item *item = pool_item(pool, k);
        if (item->is_fixed && item->size > 0 && item->fixed + item->size > *end) {
            *end = item->fixed + item->size;
            best = k;
        }
    }
    return best;
}

// Writes the highest bound up to `most` for which the items alive at a step, or a fixed item, are the reason. Returns this bound.
static uint64_t simple_write(struct live_set *l, struct plan_text *o, uint64_t most) {
    int64_t step;
    uint64_t align, end;
    const int32_t fixed = highest_fixed(l->pool, &end);
    const uint64_t bound = fixed >= 0 && end >= most ? most : live_set_best(l, most, &step, &align);
    if (fixed >= 0 && end >= bound) {
        berth_plan_text_print(o, "bound %" PRIu64 "\nlive 1 %" PRId32 "\n", min_u64(end, most), fixed);
        return min_u64(end, most);
    }
    berth_plan_text_print(o, "bound %" PRIu64 "\n", bound);
    live_set_pick(l, step, align);
    live_set_write(l, o, align);
    return bound;
}

// ---- a search ----

// The items of each block.
struct members {
    int32_t *at;  // [n + 2] end of the items of block b in ids; they begin at the end of block b - 1
    int32_t *ids; // [n_ids]
    struct berth_arrays mem;
};

// Lists for each block of the pool its largest items, by rising first step. Together they are alive as long as the block. False: out
// of memory.
static bool members_find(const struct plan_pool *pool, struct members *m) {
    const size_t n = (size_t) pool->n_ids;
    *m = (struct members){0};
    m->at = berth_arrays_new(&m->mem, (size_t) pool->prob.n + 2, sizeof *m->at);
    m->ids = berth_arrays_new(&m->mem, n, sizeof *m->ids);
    uint64_t *most = berth_arrays_new(&m->mem, (size_t) pool->prob.n, sizeof *most);
    uint64_t *key = berth_arrays_new(&m->mem, 2 * n, sizeof *key);
    int32_t *idx = berth_arrays_new(&m->mem, 2 * n, sizeof *idx);
    if (m->mem.has_failed) {
        return false;
    }
    for (int32_t k = 0; k < pool->n_ids; k++) {
        idx[k] = k;
        key[k] = plan_time_key(pool_item(pool, k)->first);
        if (pool->block_of[k] >= 0) {
            most[pool->block_of[k]] = max_u64(pool_item(pool, k)->size, most[pool->block_of[k]]);
        }
    }
    berth_plan_sort(key, idx, key + n, idx + n, pool->n_ids);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t k = 0; k < pool->n_ids; k++) {
            const int32_t b = pool->block_of[idx[k]];
            if (b < 0 || pool_item(pool, idx[k])->size < most[b]) {
                continue;
            }
            if (pass == 0) {
                m->at[b + 1]++;
            } else {
                m->ids[m->at[b]++] = idx[k];
            }
        }
        for (int32_t b = 1; b < pool->prob.n && pass == 0; b++) {
            m->at[b + 1] += m->at[b];
        }
    }
    return true;
}

// False: a failure; the text is then incomplete.
static bool search_write(struct plan_proof *proof, const struct plan_pool *pool, uint64_t align, struct plan_text *o) {
    struct members m;
    if (!members_find(pool, &m)) {
        berth_arrays_free(&m.mem);
        return false;
    }
    berth_plan_text_print(
        o, "search %" PRId64 " %" PRIu64 " %" PRIu64 "\nblocks %" PRId32 "\n", proof->bound - 1, pool->unit, align, proof->n);
    for (int32_t i = 0; i < proof->n; i++) {
        const int32_t b = proof->ids != NULL ? proof->ids[i] : i;
        const int32_t from = b > 0 ? m.at[b - 1] : 0;
        for (int32_t k = from; k < m.at[b]; k++) {
            berth_plan_text_print(o, k + 1 < m.at[b] ? "%" PRId32 " " : "%" PRId32 "\n", m.ids[k]);
        }
    }
    berth_arrays_free(&m.mem);
    berth_plan_text_print(o, "steps\n");
    return output_log(o, &proof->log);
}

// ---- the proof of a pool ----

// Writes the bound and the reason for it. If it is not known why the bound holds, lowers the bound.
static bool statement_write(struct plan_proof *proof, const struct plan_pool *pool, uint64_t *bound, struct plan_text *o) {
    struct live_set live;
    bool ok = live_set_init(&live, pool);
    const bool is_higher = *bound > pool->bound;
    if (ok && is_higher && proof->bound > 0 && (uint64_t) proof->bound * pool->unit - pool->pad_max >= *bound) {
        berth_plan_text_print(o, "bound %" PRIu64 "\n", *bound);
        int32_t k = 0; // an item with a block; if sizes are rounded, all blocks have one alignment
        while (pool->block_of[k] < 0) {
            k++;
        }
        ok = search_write(proof, pool, pool->pad_max > 0 ? live.align[live.group[k]] : 1, o);
    } else if (ok) {
        // Some bounds have no certificate: those of the exhaustive search of a constrained problem, and of items above fixed items.
        *bound = simple_write(&live, o, min_u64(*bound, pool->bound));
    }
    berth_arrays_free(&live.mem);
    return ok;
}

enum ggml_status berth_plan_proof_write(struct plan_proof *proof, const struct plan_pool *pool, uint64_t *bound) {
    struct plan_text text;
    if (!berth_plan_text_begin(&text, proof->write, proof->user)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the proof of %d items", pool->n_ids);
    }
    berth_plan_text_print(&text, "pool %" PRIu32 "\n", (uint32_t) pool_item(pool, 0)->pool);
    const bool ok = statement_write(proof, pool, bound, &text);
    if (berth_plan_text_end(&text) && ok) {
        return GGML_STATUS_SUCCESS;
    }
    return berth_fail(GGML_STATUS_FAILED, "plan: cannot write the proof of %d items: %s", pool->n_ids,
        ok ? "the output failed" : "out of memory, or the temporary file is full");
}
