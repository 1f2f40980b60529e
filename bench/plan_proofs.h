// SPDX-License-Identifier: MIT
// plan_proofs.h: bench-plan proofs: solves each problem without and with a proof, and checks the proof (docs/dev/proofs.md).
#pragma once

#include "plan_known.h"
#include "proof/proof.h"

#include <ftw.h>
#include <unistd.h>
#include <zlib.h>

#define PROOFS_LONG 0.01         // seconds; the shares of writing and checking are counted for longer searches
#define PROOFS_STEPS_MAX 1000000 // longer proofs are not written for the second checker

static struct proofs_tally {
    double seconds;     // time limit of a search
    const char *folder; // gets NUMBER.csv and NUMBER.proof for check.py; NULL: none
    int n, n_proven, n_optimal, n_refused, n_lost, n_search, n_long, n_slow_write, n_slow_check;
    int64_t n_steps;
    uint64_t text_size, gz_size;
    double search_s, both_s, check_s; // sums
} proofs;

struct proofs_file {
    FILE *file;
    gzFile gz;
    uint64_t size; // bytes of text
};

static bool proofs_write(const char *text, size_t size, void *user) {
    struct proofs_file *f = user;
    f->size += size;
    return gzwrite(f->gz, text, (unsigned) size) == (int) size;
}

static size_t proofs_read(char *to, size_t size, void *user) {
    const int n = gzread(((struct proofs_file *) user)->gz, to, (unsigned) size);
    return n > 0 ? (size_t) n : 0;
}

static gzFile proofs_open(const struct proofs_file *f, const char *mode) {
    rewind(f->file);
    return gzdopen(dup(fileno(f->file)), mode);
}

// Writes the problem with its plan and its proof, for tests/proof/check.py.
static void proofs_export(const struct instance *in, struct proofs_file *f) {
    char path[1000], text[4096];
    snprintf(path, sizeof path, "%s/%d.csv", proofs.folder, proofs.n);
    FILE *out = fopen(path, "w");
    for (int64_t i = -1; out != NULL && i < in->n; i++) {
        if (i < 0) {
            fprintf(out, "id,lower,upper,size,offset\n");
            continue;
        }
        const struct berth_plan_item *item = &in->items[i];
        fprintf(out, "%lld,%lld,%lld,%llu,%llu\n", (long long) i, (long long) item->first, (long long) item->last + 1,
            (unsigned long long) item->size, (unsigned long long) in->offsets[i]);
    }
    if (out != NULL) {
        fclose(out);
    }
    snprintf(path, sizeof path, "%s/%d.proof", proofs.folder, proofs.n);
    out = fopen(path, "w");
    f->gz = proofs_open(f, "rb");
    for (size_t n; out != NULL && (n = proofs_read(text, sizeof text, f)) > 0;) {
        fwrite(text, 1, n, out);
    }
    gzclose(f->gz);
    if (out != NULL) {
        fclose(out);
    }
}

static void proofs_problem(struct instance *in, const char *name) {
    static struct proof proof;
    struct proofs_file f = {.file = tmpfile()};
    // The limit is counted work, so other processes do not change the result.
    struct berth_plan_params params = {.time_limit_us = (int64_t) (proofs.seconds * 1e6), .is_counted = true};
    double search_s, both_s;
    const struct berth_plan_report before = solve(in, &params, name, &search_s);
    const double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    f.gz = proofs_open(&f, "wb1");
    params.proof = proofs_write;
    params.proof_data = &f;
    const struct berth_plan_report report = solve(in, &params, name, &both_s);
    gzclose(f.gz);
    both_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
    f.gz = proofs_open(&f, "rb");
    proof_init(&proof, in->items, in->n, proofs_read, &f);
    uint64_t bound = 0;
    int64_t n_steps = 0;
    while (proof_next(&proof)) {
        bound += proof.bound;
        n_steps += proof.n_steps;
    }
    berth_arrays_free(&proof.mem);
    gzclose(f.gz);
    const double check_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - start - both_s;
    fseek(f.file, 0, SEEK_END);
    const uint64_t gz_size = (uint64_t) ftell(f.file);
    const bool is_wrong = proof.is_refused || bound != report.bound, is_long = search_s >= PROOFS_LONG;
    if (n_steps > 0 || is_wrong || !before.proven || !report.proven || is_long) {
        printf("%-34.34s %6lld items  search %8.4f s%s  with proof %8.4f s%s %+7.1f%%  check %8.4f s  %9lld steps %11llu bytes "
               "%10llu "
               "compressed%s%s\n",
            name, (long long) in->n, search_s, before.proven ? "" : " (open)", both_s, report.proven ? "" : " (open)",
            100 * (both_s / search_s - 1), check_s, (long long) n_steps, (unsigned long long) f.size,
            (unsigned long long) gz_size, is_wrong ? "  REFUSED: " : "", is_wrong ? proof.why : "");
        fflush(stdout);
    }
    if (proofs.folder != NULL && n_steps <= PROOFS_STEPS_MAX) {
        proofs_export(in, &f);
    }
    fclose(f.file);
    proofs.n++;
    proofs.n_proven += before.proven;
    proofs.n_optimal += report.proven && !is_wrong;
    proofs.n_refused += is_wrong;
    proofs.n_lost += before.proven && !report.proven;
    proofs.n_search += n_steps > 0;
    proofs.n_steps += n_steps;
    proofs.text_size += f.size;
    proofs.gz_size += gz_size;
    if (before.proven && report.proven) {
        proofs.n_long += is_long;
        proofs.n_slow_write += is_long && both_s > 1.15 * search_s;
        proofs.n_slow_check += is_long && check_s > search_s;
        proofs.search_s += search_s;
        proofs.both_s += both_s;
        proofs.check_s += check_s;
    }
}

static int proofs_visit(const char *path, const struct stat *st, int flag, struct FTW *at) {
    struct instance in;
    (void) st;
    const char *name = path + at->base;
    const bool is_problem = strstr(name, ".csv") != NULL && strcmp(name, "index.csv") != 0;
    if (flag == FTW_F && is_problem && instance_open(&in, path)) {
        proofs_problem(&in, name);
        instance_free(&in);
    }
    return 0;
}

// what: a folder of problems, a file, or the number N of hard problems. folder: see struct proofs_tally.
static int run_proofs(const char *what, double seconds, const char *folder) {
    proofs.seconds = seconds;
    proofs.folder = folder;
    uint64_t seed = 1;
    for (int n = atoi(what); n > 0; n--) {
        struct plan_made m;
        char name[32];
        seed = made_next(&m, false, seed);
        snprintf(name, sizeof name, "seed %llu", (unsigned long long) seed++);
        struct instance in = {m.items, calloc((size_t) m.n, sizeof(uint64_t)), m.n};
        proofs_problem(&in, name);
        free(in.offsets);
        made_free(&m);
    }
    if (atoi(what) == 0 && nftw(what, proofs_visit, 16, FTW_PHYS) != 0) {
        fprintf(stderr, "%s: cannot be read\n", what);
        return 1;
    }
    printf("%d problems: %d solved without a proof, %d solved with a proof that is valid (%d by a search), %d not solved because "
           "of the "
           "proof, %d proofs refused; %lld steps, %llu bytes, %llu compressed\n",
        proofs.n, proofs.n_proven, proofs.n_optimal, proofs.n_search, proofs.n_lost, proofs.n_refused, (long long) proofs.n_steps,
        (unsigned long long) proofs.text_size, (unsigned long long) proofs.gz_size);
    printf("solved problems: search %.3f s, with proof %.3f s (%+.1f%%), check %.3f s; of %d that take %g s or more, writing "
           "costs more "
           "than 15%% for %d, checking takes longer than the search for %d\n",
        proofs.search_s, proofs.both_s, 100 * (proofs.both_s / proofs.search_s - 1), proofs.check_s, proofs.n_long, PROOFS_LONG,
        proofs.n_slow_write, proofs.n_slow_check);
    return proofs.n_refused > 0;
}
