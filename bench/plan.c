// SPDX-License-Identifier: MIT
// plan.c: measures the quality and the speed of the planner. Every plan is checked; an invalid plan ends the run with exit code 1.
//
//   bench-plan instances DIR [SECONDS]
//       problems NAME.csv or NAME.CAPACITY.csv: does it fit into the capacity, the minimum, the result within 10 ms
//   bench-plan graphs DIR [BUDGET_US]
//       problems of captured graphs, DIR/index.csv and DIR/GROUP/NAME[.bufI].csv.gz: fast path, and search with a time limit
//   bench-plan scale [N_MAX]
//       generated problems of 10^3 to N_MAX (default 10^6) items: one greedy pass, the fast path, memory
//   bench-plan hard|training [N] [SEED] [SECONDS] [asks|least]
//       N generated problems from SEED on (support/plan_made.h): a plan at the known optimum (asks), the minimum (least), or both
//   bench-plan anytime wide|flat|hard [N] [SEEDS] [SECONDS] [THREADS]
//       the gap after 0.1, 1, 10 and 60 s of random problems of N items. SEEDS: a number (4: seeds 1 to 4) or a range (3-5).
//       hard: problems of 300 to 700 items
//   bench-plan proofs DIR|N [SECONDS] [FOLDER]
//       search times without and with a proof, checking time and size, of all problems in DIR or N hard problems. FOLDER gets the
//       problems and proofs, which `tests/proof/check.py folder FOLDER BERTH` checks too
//   bench-plan make hard|training SEED
//       prints the problem as CSV
//
// Times are processor time of this process, because other processes may use the machine.

#include "plan_anytime.h"
#include "plan_instance.h"
#include "plan_known.h"
#include "plan_proofs.h"
#include "plan_scale.h"

#include <dirent.h>

// ---- instances ----

static int by_name(const void *x, const void *y) {
    return strcmp(*(char *const *) x, *(char *const *) y);
}

static int run_instances(const char *dir, double seconds) {
    DIR *d = opendir(dir);
    char *names[1024];
    size_t n = 0;
    for (struct dirent *e; d != NULL && n < 1024 && (e = readdir(d)) != NULL;) {
        if (strlen(e->d_name) > 4 && strcmp(e->d_name + strlen(e->d_name) - 4, ".csv") == 0) {
            names[n++] = strdup(e->d_name);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    qsort(names, n, sizeof *names, by_name);
    printf("%-18s %6s | %8s %6s %8s | %11s %7s | %7s | %12s %12s %7s %8s %8s %s\n", "instance", "items", "capacity", "fits", "s",
        "fast/bound", "us", "10ms", "peak", "bound", "proven", "s", "nodes", "method");
    double sum_capacity = 0, sum_fast = 0, sum_10ms = 0, sum_min = 0;
    int n_capacity = 0, n_yes = 0, n_million = 0;
    for (size_t i = 0; i < n; i++) {
        char path[1100];
        struct instance in;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (!instance_open(&in, path)) {
            continue;
        }
        const char *dot = strchr(names[i], '.');
        char *end = NULL;
        uint64_t capacity = dot != NULL ? strtoull(dot + 1, &end, 10) : 0;
        capacity = end != NULL && strcmp(end, ".csv") == 0 ? capacity : 0;
        printf("%-18.18s %6lld | ", names[i], (long long) in.n);
        double s;
        if (capacity > 0) {
            struct berth_plan_params params = {.memory_limit = capacity, .time_limit_us = (int64_t) (seconds * 1e6)};
            struct berth_plan_report r = solve(&in, &params, names[i], &s);
            printf("%8llu %3s%3s %8.4f | ", (unsigned long long) capacity, r.fits ? "yes" : "no", r.proven ? "!" : "?", s);
            sum_capacity += s;
            n_yes += r.fits;
            n_capacity++;
        } else {
            printf("%8s %6s %8s | ", "-", "-", "-");
        }
        struct berth_plan_params params = {0};
        struct berth_plan_report fast = solve(&in, &params, names[i], &s);
        printf("%11.4f %7.0f | ", 1 + fast.gap, s * 1e6);
        params.time_limit_us = 10000;
        struct berth_plan_report ms = solve(&in, &params, names[i], &s);
        double ms_peak = (double) ms.peak / (double) fast.bound;
        printf("%7.4f | ", ms_peak);
        params.time_limit_us = (int64_t) (seconds * 1e6);
        struct berth_plan_report r = solve(&in, &params, names[i], &s);
        printf("%12llu %12llu %7s %8.4f %8lld %s\n", (unsigned long long) r.peak, (unsigned long long) r.bound,
            r.proven ? "proven" : "open", s, (long long) r.n_nodes, r.method);
        fflush(stdout);
        if (capacity == 1048576) {
            n_million++;
            sum_fast += 1 + fast.gap;
            sum_10ms += ms_peak;
            sum_min += (double) r.peak / (double) fast.bound;
        }
        instance_free(&in);
        free(names[i]);
    }
    if (n_capacity > 0) {
        int m = n_million > 0 ? n_million : 1;
        printf("capacity questions: %d of %d yes, %.4f s user; mean peak / live bytes of the 1048576 ones: fast %.4f, 10 ms "
               "%.4f, full %.4f\n",
            n_yes, n_capacity, sum_capacity, sum_fast / m, sum_10ms / m, sum_min / m);
    }
    return 0;
}

// ---- graphs ----

struct row {
    char group[64], name[200];
    long long nodes, bufs, merged;
    unsigned long long lb, ggml, best;
};

// Reads a line of index.csv. at: the number of each needed column.
static bool row_read(struct row *r, char *line, const int *at) {
    char *fields[64];
    int n = 0;
    for (char *p = line; p != NULL && n < 64; n++) {
        fields[n] = p;
        p = strchr(p, ',');
        if (p != NULL) {
            *p++ = '\0';
        }
    }
    for (int k = 0; k < 8; k++) {
        if (at[k] < 0 || at[k] >= n) {
            return false;
        }
    }
    snprintf(r->group, sizeof r->group, "%s", fields[at[0]]);
    snprintf(r->name, sizeof r->name, "%s", fields[at[1]]);
    r->nodes = atoll(fields[at[2]]);
    r->bufs = atoll(fields[at[3]]);
    r->merged = atoll(fields[at[4]]);
    r->lb = strtoull(fields[at[5]], NULL, 10);
    r->ggml = strtoull(fields[at[6]], NULL, 10);
    r->best = strtoull(fields[at[7]], NULL, 10);
    return true;
}

struct tally {
    int n, n_files, n_bound_fast, n_bound, n_above_ggml, n_above_best, n_proven;
    double fast_s, worst_budget_s;
};

static void graph_run(const char *dir, const struct row *r, int64_t time_limit_us, struct tally *t) {
    uint64_t peak_fast = 0, peak = 0, bound = 0;
    double s_fast = 0, s_budget = 0;
    bool proven = true;
    const char *method = "";
    for (long long buf = -1; buf < (r->bufs > 1 ? r->bufs : 0); buf++) {
        char path[600];
        struct instance in;
        if (buf < 0) {
            snprintf(path, sizeof path, "%s/%s/%s.csv.gz", dir, r->group, r->name);
        } else {
            snprintf(path, sizeof path, "%s/%s/%s.buf%lld.csv.gz", dir, r->group, r->name, buf);
        }
        FILE *exists = fopen(path, "r");
        if (exists == NULL) {
            continue;
        }
        fclose(exists);
        if (!instance_open(&in, path)) {
            continue;
        }
        t->n_files++;
        struct berth_plan_params params = {0};
        struct berth_plan_report fast = {0};
        double least = 1e9;
        for (int k = 0; k < 5; k++) {
            double s;
            fast = solve(&in, &params, path, &s);
            least = s < least ? s : least;
        }
        double s = 0;
        params.time_limit_us = time_limit_us / (r->bufs > 0 ? r->bufs : 1);
        struct berth_plan_report b = time_limit_us > 0 ? solve(&in, &params, path, &s) : fast;
        s_fast += least;
        s_budget += s;
        peak_fast += fast.peak;
        peak += b.peak;
        bound += b.bound;
        proven &= b.proven;
        method = b.method;
        instance_free(&in);
    }
    t->n++;
    t->fast_s += s_fast;
    t->worst_budget_s = s_budget > t->worst_budget_s ? s_budget : t->worst_budget_s;
    t->n_bound_fast += peak_fast == r->lb;
    t->n_bound += peak == r->lb;
    t->n_proven += proven;
    t->n_above_ggml += peak_fast > r->ggml;
    t->n_above_best += peak > r->best;
    // The time of ggml's reserve in microseconds, estimated from the number of nodes.
    double ggml_us = 0.143 * (double) r->nodes;
    bool is_slow = peak_fast == r->lb && s_fast * 1e6 > ggml_us;
    if (peak_fast != r->lb || peak != r->lb || bound != r->lb || is_slow) {
        printf("%-34s %5lld items %8.0f us%s fast %.5f ggml %.5f best %.5f budget %.5f bound %.5f %6.1f ms %s%s\n", r->name,
            r->merged, s_fast * 1e6, is_slow ? " slower than ggml" : "", (double) peak_fast / (double) r->lb,
            (double) r->ggml / (double) r->lb, (double) r->best / (double) r->lb, (double) peak / (double) r->lb,
            (double) bound / (double) r->lb, s_budget * 1e3, method,
            peak > r->best   ? "  ABOVE BEST"
            : peak < r->best ? "  below best"
                             : "");
        fflush(stdout);
    }
}

static int run_graphs(const char *dir, int64_t time_limit_us) {
    static const char *const columns[8] = {"group", "name", "nodes", "bufs", "merged", "lb", "ggml_reported", "best_pack"};
    int at[8];
    char path[1100];
    char line[4096];
    snprintf(path, sizeof path, "%s/index.csv", dir);
    FILE *f = fopen(path, "r");
    if (f == NULL || fgets(line, sizeof line, f) == NULL) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return 1;
    }
    for (int k = 0; k < 8; k++) {
        at[k] = -1;
        int field = 0;
        for (char *p = line; p != NULL; field++) {
            size_t len = strcspn(p, ",\r\n");
            if (len == strlen(columns[k]) && strncmp(p, columns[k], len) == 0) {
                at[k] = field;
            }
            p = strchr(p, ',');
            p = p != NULL ? p + 1 : NULL;
        }
    }
    struct tally t = {0};
    struct row r;
    while (fgets(line, sizeof line, f) != NULL) {
        if (row_read(&r, line, at)) {
            graph_run(dir, &r, time_limit_us, &t);
        }
    }
    fclose(f);
    printf("%d graphs, %d files: at the bound %d (%.1f%%) on the fast path, %d (%.1f%%) with %lld us; above ggml on the fast "
           "path %d, "
           "above the best known %d, proven %d; fast path %.1f ms in all, longest with the budget %.1f ms\n",
        t.n, t.n_files, t.n_bound_fast, 100.0 * t.n_bound_fast / t.n, t.n_bound, 100.0 * t.n_bound / t.n,
        (long long) time_limit_us, t.n_above_ggml, t.n_above_best, t.n_proven, t.fast_s * 1e3, t.worst_budget_s * 1e3);
    return t.n_above_ggml > 0 || (time_limit_us > 0 && t.n_above_best > 0);
}

int main(int argc, char **argv) {
    if (argc >= 3 && strcmp(argv[1], "instances") == 0) {
        return run_instances(argv[2], argc > 3 ? atof(argv[3]) : 2);
    }
    if (argc >= 3 && strcmp(argv[1], "graphs") == 0) {
        return run_graphs(argv[2], argc > 3 ? atoll(argv[3]) : 20000);
    }
    if (argc >= 2 && strcmp(argv[1], "scale") == 0) {
        return run_scale(argc > 2 ? atoll(argv[2]) : 1000000);
    }
    if (argc >= 2 && (strcmp(argv[1], "hard") == 0 || strcmp(argv[1], "training") == 0)) {
        const bool training = argv[1][0] == 't';
        return run_made(training, argc > 2 ? atoi(argv[2]) : (training ? 50 : 200), argc > 3 ? strtoull(argv[3], NULL, 10) : 1,
            argc > 4 ? atof(argv[4]) : 10, argc > 5 ? argv[5] : "both");
    }
    if (argc >= 3 && strcmp(argv[1], "anytime") == 0) {
        return run_anytime(argv[2], argc > 3 ? atoll(argv[3]) : 20000, argc > 4 ? argv[4] : "3", argc > 5 ? atof(argv[5]) : 10,
            argc > 6 ? atoi(argv[6]) : 1);
    }
    if (argc >= 3 && strcmp(argv[1], "proofs") == 0) {
        return run_proofs(argv[2], argc > 3 ? atof(argv[3]) : 10, argc > 4 ? argv[4] : NULL);
    }
    if (argc >= 4 && strcmp(argv[1], "make") == 0) {
        return make_csv(argv[2][0] == 't', strtoull(argv[3], NULL, 10));
    }
    fprintf(stderr, "usage: bench-plan instances DIR [SECONDS] | graphs DIR [BUDGET_US] | scale [N_MAX]\n"
                    "       bench-plan hard|training [N] [SEED] [SECONDS] [asks|least] | make hard|training SEED\n"
                    "       bench-plan anytime wide|flat|hard [N] [SEEDS] [SECONDS] [THREADS]\n"
                    "       bench-plan proofs DIR|N [SECONDS] [FOLDER]\n");
    return 2;
}
