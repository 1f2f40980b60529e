// SPDX-License-Identifier: MIT
// report.h: compares two outcomes, knows what may differ, counts and prints.
#pragma once

#include "gen.h"
#include "machine.h"

struct counts {
    int64_t sets;       // tried
    int64_t same;       // succeeded in both, with equal results
    int64_t poison;     // aborts of constructors that became poison
    int64_t survived;   // aborts of other functions, after which Berth went on
    int64_t purposeful; // differences that docs/user/differences.md explains
    int64_t different;
    int64_t missing; // Berth lacks the function
    int64_t ref_ok;  // sets that the reference accepts
};

#define MAX_PURPOSES 16

// How often each purposeful difference was met.
struct purposes {
    const char *text[MAX_PURPOSES];
    int64_t n[MAX_PURPOSES];
};

struct verdict {
    bool ok;
    const char *purpose; // not NULL: differs, and this is why it may
    char reason[160];
};

struct verdict compare(const struct recipe *r, const struct outcome *mine, const struct outcome *ref);
// The difference for a reader: recipe, both outcomes, the lines that differ.
void print_difference(const struct recipe *r, const struct verdict *v, const struct outcome *mine, const struct outcome *ref);
void count(
    struct counts *c, const struct recipe *r, const struct verdict *v, const struct outcome *mine, const struct outcome *ref);
void counts_add(struct counts *to, const struct counts *from);

void purposes_add(struct purposes *p, const char *purpose);
void purposes_print(const struct purposes *p);

// Functions that the reference never completes; NULL for all others.
const char *never_succeeds(enum call_id id);

// symbols.c: every function that ggml.h declares and clients import is exported. Returns how many are not; -1 if skipped.
int check_symbols(const char *data_dir);
