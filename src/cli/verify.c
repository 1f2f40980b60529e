// SPDX-License-Identifier: MIT
// verify.c: `berth verify PLAN`: checks a plan and prints the first fault.

#include "base/json.h"
#include "base/min.h"
#include "cli/help.h"

#include <inttypes.h>

static const struct cli_option option_rows[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object: items, valid, peak, fault"),
    {0},
};

const struct cli_help cli_verify_help = {
    .command = "verify",
    .what = "check that a plan is valid",
    .operands = "PLAN",
    .takes = ".csv .json",
    .n_operands = {1, 1, 1},
    .about =
        "Checks a plan (CSV with a column 'offset', or JSON): buffers that are alive at the same time must not share bytes, and "
        "every buffer must respect its alignment, fixed offset and alias group. Prints the first fault.",
    .options = option_rows,
    .size = sizeof(bool),
    .negative = "the plan is not valid",
    .examples = {{"Is it valid?", "verify plan.csv"}, {"For scripts", "verify --json plan.json"}},
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

int cli_verify(const struct cli_args *args) {
    const bool json = *(const bool *) args->options;
    const char *path = args->operands[0];
    struct berth_plan_set *set = NULL;
    if (berth_plan_read_file(path, &set) != GGML_STATUS_SUCCESS) {
        return cli_fail(CLI_FAILURE, "%s", berth_last_error());
    }
    if (set->n_items > 0 && !set->has_offsets) {
        berth_plan_set_free(set);
        return cli_fail(CLI_FAILURE, "%s: some items have no offset; 'berth plan --out' writes a plan with offsets", path);
    }
    struct berth_plan_fault fault = {.i = -1, .j = -1};
    const bool valid = berth_plan_check(set->items, set->n_items, NULL, set->offsets, &fault) == GGML_STATUS_SUCCESS;
    const bool known = valid || fault.kind != BERTH_PLAN_SOUND;
    char text[64];
    if (!known) {
        berth_plan_set_free(set);
        return cli_fail(CLI_FAILURE, "%s: %s", path, berth_last_error());
    }
    if (json) {
        struct berth_json_writer w = {.file = stdout};
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'items': %" PRId64 ", 'valid': %c, 'peak': %" PRIu64, set->n_items, valid, plan_peak(set));
        if (valid) {
            berth_json_printf(&w, "'fault': null}\n");
        } else {
            berth_json_printf(&w, "'fault': {'kind': %d, 'what': %s, 'i': %" PRId64 ", 'j': %" PRId64 "}}\n", (int) fault.kind,
                fault_names[fault.kind], fault.i, fault.j);
        }
    } else if (valid) {
        printf("%svalid%s: %" PRId64 " items, the highest ends at %s\n", cli_colour(stdout, CLI_GREEN),
            cli_colour(stdout, CLI_RESET), set->n_items, cli_bytes(plan_peak(set), text));
    } else {
        printf("%snot valid%s: ", cli_colour(stdout, CLI_RED), cli_colour(stdout, CLI_RESET));
        fault_print(stdout, set, &fault);
        putchar('\n');
    }
    berth_plan_set_free(set);
    return valid ? CLI_OK : CLI_NEGATIVE;
}
