// SPDX-License-Identifier: MIT
// verify.c: `berth verify PLAN`: checks a plan and prints the first fault. With --proof it also checks why no plan has a lower peak,
// or with --budget, why no schedule keeps a memory limit.

#include "base/json.h"
#include "base/min.h"
#include "cli/help.h"
#include "cli/plans.h"
#include "proof/file.h"

#include <inttypes.h>

struct options {
    const char *proof;
    bool json;
    struct view_budget budget;
};

static const struct cli_option option_rows[] = {
    CLI_OPTION(0, "proof", "FILE",
        "also check the proof of 'berth plan --proof FILE': no plan has a lower peak. Exit code 0: valid and optimal, 1: plan or "
        "proof not valid, 4: a gap is left. If PLAN has no offsets, only the proof is checked",
        .takes = "*", CLI_TO(struct options, proof)),
    CLI_OPTION(0, "budget", "N",
        "with --proof, for a captured graph or CSV with costs: check the proof of 'berth plan --budget N --proof FILE': no "
        "schedule "
        "stays within N bytes. Exit code 0: valid, 1: refused",
        .kind = CLI_SIZE, CLI_TO(struct options, budget.bytes)),
    CLI_OPTION(0, "spill", "N", "with --budget: values may also be spilled to another pool of N bytes", .kind = CLI_SIZE,
        CLI_TO(struct options, budget.spill)),
    CLI_OPT_JSON(CLI_TO(struct options, json),
        "print one JSON object: items, valid, peak, fault; with --proof also proof: valid, why, bound, optimal, steps; with "
        "--budget also budget and spill"),
    {0},
};

const struct cli_help cli_verify_help = {
    .command = "verify",
    .what = "check that a plan is valid",
    .operands = "PLAN",
    .takes = ".csv .json .ggraph .ggraph.gz",
    .n_operands = {1, 1, 1},
    .about =
        "Checks a plan (CSV with a column 'offset', or JSON): buffers that are alive at the same time must not share bytes, and "
        "every buffer must respect its alignment, fixed offset and alias group. Prints the first fault. With --budget, PLAN is "
        "the captured graph or the CSV with costs.",
    .options = option_rows,
    .size = sizeof(struct options),
    .negative = "the plan is not valid",
    .further = "4 the proof leaves a gap",
    .examples = {{"Is it valid?", "verify plan.csv"}, {"Is it optimal?", "verify --proof plan.proof plan.csv"},
        {"Is 24 MiB too little for every schedule?", "verify --budget 24MiB --proof none.proof graph.ggraph.gz"}},
};

static void item_print(FILE *file, const struct berth_plan_set *set, int64_t i) {
    const struct berth_plan_item *item = &set->items[i];
    fputc('\'', file);
    cli_text(file, 0, set->ids[i]);
    fprintf(file, "' at [%" PRIu64 ", %" PRIu64 "), steps %" PRId64 " to %" PRId64, set->offsets[i], set->offsets[i] + item->size,
        item->first, item->last);
}

static const char *const fault_names[] = {
    [BERTH_PLAN_SOUND] = "no fault",
    [BERTH_PLAN_ITEM] = "an item is inconsistent",
    [BERTH_PLAN_ALIGN] = "not aligned",
    [BERTH_PLAN_FIXED] = "not at its fixed offset",
    [BERTH_PLAN_CHUNK] = "crosses the end of a chunk",
    [BERTH_PLAN_OVERFLOW] = "ends above 2^63 - 1",
    [BERTH_PLAN_ALIAS] = "aliases at different offsets",
    [BERTH_PLAN_COLLIDE] = "alive together in the same bytes",
};

static void fault_print(FILE *file, const struct berth_plan_set *set, const struct berth_plan_fault *fault) {
    fprintf(file, "%s: ", fault_names[fault->kind]);
    if (fault->i >= 0) {
        item_print(file, set, fault->i);
    }
    if (fault->j >= 0) {
        fputs("\n           and ", file);
        item_print(file, set, fault->j);
    }
}

static uint64_t plan_peak(const struct berth_plan_set *set) {
    uint64_t peak = 0; // of the largest pool
    for (int64_t i = 0; i < set->n_items; i++) {
        const uint64_t size = set->items[i].size, end = set->offsets[i] + size;
        if (size > 0) {
            peak = max_u64(end < size ? UINT64_MAX : end, peak); // an invalid plan may wrap
        }
    }
    return peak;
}

static void proof_json(struct berth_json_writer *w, const struct proof_result *proof) {
    berth_json_begin(w, "proof", '{');
    berth_json_printf(w, "'valid': %c, 'why': %s, 'bound': %" PRIu64 ", 'optimal': %c, 'steps': %" PRId64, proof->is_valid,
        proof->why, proof->bound, proof->is_optimal, proof->n_steps);
    berth_json_end(w);
}

static void proof_print(const struct proof_result *proof, bool has_plan) {
    char text[64];
    if (!proof->is_valid) {
        printf("%sproof refused%s: %s\n", cli_colour(stdout, CLI_RED), cli_colour(stdout, CLI_RESET), proof->why);
    } else if (proof->is_optimal) {
        printf("%soptimal%s: the proof shows that no plan has a lower peak (%" PRId64 " steps)\n", cli_colour(stdout, CLI_GREEN),
            cli_colour(stdout, CLI_RESET), proof->n_steps);
    } else {
        printf("%sproof valid%s: no plan requires less than %s (%" PRId64 " steps)%s\n", cli_colour(stdout, CLI_GREEN),
            cli_colour(stdout, CLI_RESET), cli_bytes(proof->bound, text), proof->n_steps,
            has_plan ? "; a lower peak is not excluded" : "");
    }
}

static void valid_print(const struct berth_plan_set *set, bool is_valid, const struct berth_plan_fault *fault) {
    char text[64];
    if (is_valid) {
        printf("%svalid%s: %" PRId64 " items, the highest ends at %s\n", cli_colour(stdout, CLI_GREEN),
            cli_colour(stdout, CLI_RESET), set->n_items, cli_bytes(plan_peak(set), text));
        return;
    }
    printf("%snot valid%s: ", cli_colour(stdout, CLI_RED), cli_colour(stdout, CLI_RESET));
    fault_print(stdout, set, fault);
    putchar('\n');
}

static void valid_json(
    struct berth_json_writer *w, const struct berth_plan_set *set, bool has_plan, const struct berth_plan_fault *fault) {
    berth_json_printf(w, "'items': %" PRId64, set->n_items);
    if (!has_plan) {
        berth_json_printf(w, "'valid': null, 'peak': null, 'fault': null");
        return;
    }
    const bool is_valid = fault->kind == BERTH_PLAN_SOUND;
    berth_json_printf(w, "'valid': %c, 'peak': %" PRIu64, is_valid, plan_peak(set));
    if (is_valid) {
        berth_json_printf(w, "'fault': null");
    } else {
        berth_json_printf(w, "'fault': {'kind': %d, 'what': %s, 'i': %" PRId64 ", 'j': %" PRId64 "}", (int) fault->kind,
            fault_names[fault->kind], fault->i, fault->j);
    }
}

// Checks a plan that was read from path.
static int set_verify(const struct options *o, const char *path, const struct berth_plan_set *set) {
    const bool has_plan = set->n_items == 0 || set->has_offsets;
    struct berth_plan_fault fault = {.i = -1, .j = -1};
    struct proof_result proof = {.is_valid = true, .is_optimal = true};
    bool is_valid = true;
    if (has_plan) {
        is_valid = berth_plan_check(set->items, set->n_items, NULL, set->offsets, &fault) == GGML_STATUS_SUCCESS;
        if (!is_valid && fault.kind == BERTH_PLAN_SOUND) {
            return cli_fail(CLI_FAILURE, "%s: %s", path, berth_last_error());
        }
    }
    if (o->proof != NULL) {
        if (!proof_file_check(o->proof, set, has_plan && is_valid, &proof)) {
            return cli_fail(CLI_FAILURE, "%s: %s", o->proof, proof.why);
        }
    }
    if (o->json) {
        struct berth_json_writer w = {.file = stdout};
        berth_json_begin(&w, NULL, '{');
        valid_json(&w, set, has_plan, &fault);
        if (o->proof != NULL) {
            proof_json(&w, &proof);
        }
        berth_json_end(&w);
        putchar('\n');
    } else {
        if (has_plan) {
            valid_print(set, is_valid, &fault);
        }
        if (o->proof != NULL) {
            proof_print(&proof, has_plan && is_valid);
        }
    }
    if (!is_valid || !proof.is_valid) {
        return CLI_NEGATIVE;
    }
    return has_plan && !proof.is_optimal ? CLI_UNKNOWN : CLI_OK;
}

// ---- proofs that no schedule keeps a limit ----

struct budget_check {
    const char *path; // of the proof
    int64_t n_ops;
    bool is_read;
    struct proof_result proof;
};

static bool ops_take(const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params, void *user) {
    struct budget_check *check = user;
    check->n_ops = n_ops;
    check->is_read = proof_file_check_budget(check->path, ops, n_ops, params, &check->proof);
    return false;
}

static void budget_print(const struct options *o, const struct budget_check *check) {
    char text[64];
    if (o->json) {
        struct berth_json_writer w = {.file = stdout};
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'items': %" PRId64 ", 'valid': null, 'peak': null, 'fault': null", check->n_ops);
        berth_json_printf(&w, "'budget': %" PRIu64 ", 'spill': %" PRIu64, o->budget.bytes, o->budget.spill);
        proof_json(&w, &check->proof);
        berth_json_end(&w);
        putchar('\n');
    } else if (check->proof.is_valid) {
        printf("%sproof valid%s: no schedule of %" PRId64 " ops stays within %s", cli_colour(stdout, CLI_GREEN),
            cli_colour(stdout, CLI_RESET), check->n_ops, cli_bytes(o->budget.bytes, text));
        if (o->budget.spill > 0) {
            printf(", with at most %s spilled", cli_bytes(o->budget.spill, text));
        }
        printf(" (%" PRId64 " states)\n", check->proof.n_steps);
    } else {
        proof_print(&check->proof, false);
    }
}

static int budget_verify(struct options *o, const char *path) {
    struct budget_check check = {.path = o->proof};
    struct view_plan plan;
    o->budget.on_ops = ops_take;
    o->budget.user = &check;
    if (cli_plan_open(path, &(const struct model_options){0}, &o->budget, &plan) != CLI_OK) {
        return CLI_FAILURE;
    }
    view_plan_free(&plan);
    if (!check.is_read) {
        return cli_fail(CLI_FAILURE, "%s: %s", o->proof, check.proof.why);
    }
    budget_print(o, &check);
    return check.proof.is_valid ? CLI_OK : CLI_NEGATIVE;
}

int cli_verify(const struct cli_args *args) {
    struct options *o = args->options;
    const char *path = args->operands[0];
    if (o->budget.bytes > 0 && o->proof == NULL) {
        return cli_usage("verify", "--budget requires --proof");
    }
    if (o->budget.spill > 0 && o->budget.bytes == 0) {
        return cli_usage("verify", "--spill requires --budget");
    }
    if (o->budget.bytes > 0) {
        return budget_verify(o, path);
    }
    struct berth_plan_set *set = NULL;
    if (berth_plan_read_file(path, &set) != GGML_STATUS_SUCCESS) {
        return cli_fail(CLI_FAILURE, "%s", berth_last_error());
    }
    int code;
    if (set->n_items > 0 && !set->has_offsets && o->proof == NULL) {
        code = cli_fail(CLI_FAILURE, "%s: some items have no offset; 'berth plan --out' writes a plan with offsets", path);
    } else {
        code = set_verify(o, path, set);
    }
    berth_plan_set_free(set);
    return code;
}
