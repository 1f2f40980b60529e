// SPDX-License-Identifier: MIT
// report.h: compares two outcomes, recognises intended differences, counts and prints.
#pragma once

#include "gen.h"
#include "machine.h"

// Counts of recipes. A recipe whose last call is the tested function is also called an argument set of that function.
struct counts {
    int64_t sets;       // tried
    int64_t same;       // both implementations succeeded with equal results
    int64_t poison;     // a constructor of the reference aborted, Berth returned poison
    int64_t survived;   // another function of the reference aborted, Berth continued
    int64_t purposeful; // the outcomes differ on purpose: docs/user/differences.md explains the difference
    int64_t different;
    int64_t missing; // Berth lacks the function
    int64_t ref_ok;  // the reference completed all calls
};

#define MAX_PURPOSES 16

// How often each intended difference occurred.
struct purposes {
    const char *text[MAX_PURPOSES];
    int64_t n[MAX_PURPOSES];
};

struct verdict {
    bool ok;
    const char *purpose; // not NULL: the outcomes differ, and this is the intended reason
    char reason[160];
};

struct verdict compare(const struct recipe *r, const struct outcome *mine, const struct outcome *ref);
// Prints the recipe, both outcomes and the lines that differ.
void print_difference(const struct recipe *r, const struct verdict *v, const struct outcome *mine, const struct outcome *ref);
void count(
    struct counts *c, const struct recipe *r, const struct verdict *v, const struct outcome *mine, const struct outcome *ref);
void counts_add(struct counts *to, const struct counts *from);

void purposes_add(struct purposes *p, const char *purpose);
void purposes_print(const struct purposes *p);

// Returns a text for functions that the reference never completes, NULL for all others.
const char *never_succeeds(enum call_id id);

// symbols.c: checks that every function that ggml.h declares or that clients import is exported. Returns the number of missing
// functions, -1 if skipped.
int check_symbols(const char *data_dir);
