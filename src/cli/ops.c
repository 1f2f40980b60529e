// SPDX-License-Identifier: MIT
// ops.c: `berth ops` lists the ops that a device supports, their types and their tier of kernels. The device is queried with a
// small tensor per op and combination of types (berth_op_sample). Nothing is computed.

#include "base/json.h"
#include "cli/help.h"

#include "ggml-backend.h"
#include "model/model.h"

#include <limits.h>
#include <string.h>

struct options {
    const char *device;
    bool json;
};

static const struct cli_option option_rows[] = {
    CLI_OPTION('d', "device", "NAME", "query this device (default: the CPU); 'berth devices' lists all", .takes = "@devices",
        CLI_TO(struct options, device)),
    CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object"),
    {0},
};

const struct cli_help cli_ops_help = {
    .command = "ops",
    .what = "list the ops that a device supports, with types and kernels",
    .operands = "[OP]...",
    .takes = "@ops",
    .n_operands = {0, INT_MAX, 0},
    .about = "Lists the ops that a device supports, their types, and the tier of kernels that computes them on this machine: "
             "portable C or an instruction set. Unsupported ops are marked. With OP, lists only these ops; OP is a listed name, "
             "such as MUL_MAT or GELU.",
    .options = option_rows,
    .size = sizeof(struct options),
    .negative = "a given OP is not supported",
    .examples = {{"All ops of the CPU", "ops"}, {"One op of a GPU", "ops --device CUDA0 MUL_MAT"}},
};

#define TIER_SIZE 96
#define NOT_SUPPORTED (-1)

typedef bool (*op_tier_t)(const struct ggml_tensor *op, char *text, size_t text_size);

struct query {
    ggml_backend_dev_t dev;
    op_tier_t op_tier; // NULL: the device does not report tiers
    struct ggml_context *ctx;
    bool json;
    struct berth_json_writer *out; // with --json
    char **names;                  // [n_names] requested ops
    int n_names;                   // 0: all ops
    bool *found;                   // [n_names] whether an op with this name exists
    int n_listed, n_missing;
    char (*tiers)[TIER_SIZE]; // [n_tiers] tiers found so far
    int n_tiers;
    bool has_failed; // out of memory for a tier
};

// relation: a word between the two types, such as "to" for copies; NULL: the op has one type.
struct answer {
    const char *name, *relation;
    int tier[GGML_TYPE_COUNT][GGML_TYPE_COUNT]; // by first and second type: index of the tier, or NOT_SUPPORTED
    bool any;                                   // some combination is supported
};

static bool is_type(int t) {
    return ggml_type_size((enum ggml_type) t) > 0;
}

// Returns the index in q->tiers of the tier that computes the op. Adds the tier if it is new. Returns NOT_SUPPORTED and sets
// has_failed if memory is exhausted.
static int tier_number(struct query *q, const struct ggml_tensor *op) {
    char text[TIER_SIZE] = "";
    if (q->op_tier != NULL) {
        q->op_tier(op, text, sizeof text);
    }
    int i = 0;
    while (i < q->n_tiers && strcmp(q->tiers[i], text) != 0) {
        i++;
    }
    if (i == q->n_tiers) {
        char(*tiers)[TIER_SIZE] = berth_realloc(q->tiers, ((size_t) i + 1) * sizeof *tiers);
        if (tiers == NULL) {
            q->has_failed = true;
            return NOT_SUPPORTED;
        }
        q->tiers = tiers;
        snprintf(q->tiers[q->n_tiers++], TIER_SIZE, "%s", text);
    }
    return i;
}

// Queries the device for each combination of types. sub: the variant of GGML_OP_UNARY or GGML_OP_GLU; otherwise 0.
static void op_query(struct query *q, enum ggml_op op, int sub, struct answer *a) {
    a->any = false;
    a->relation = berth_op_relation(op);
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        ggml_reset(q->ctx);
        for (int j = 0; j < GGML_TYPE_COUNT; j++) {
            a->tier[i][j] = NOT_SUPPORTED;
            if (!is_type(i) || !is_type(j) || (a->relation == NULL && j > 0)) {
                continue;
            }
            const struct ggml_tensor *t = berth_op_sample(q->ctx, op, sub, (enum ggml_type) i, (enum ggml_type) j);
            if (t != NULL && !berth_is_poison(t) && ggml_backend_dev_supports_op(q->dev, t)) {
                a->tier[i][j] = tier_number(q, t);
                a->any = a->any || a->tier[i][j] != NOT_SUPPORTED;
            }
        }
    }
}

// ---- printing ----

struct line {
    bool first[GGML_TYPE_COUNT], second[GGML_TYPE_COUNT]; // types on the two sides of the relation
    int tier;
};

// Calls print once per line. If several first types have the same second types with the same tiers, they share their lines. There
// is one line per tier.
static void each_line(const struct query *q, const struct answer *a,
    void (*print)(const struct query *, const struct answer *, const struct line *, int i_line)) {
    bool done[GGML_TYPE_COUNT] = {false};
    int n_lines = 0;
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        bool alike[GGML_TYPE_COUNT] = {false};
        for (int k = i; k < GGML_TYPE_COUNT && !done[i]; k++) {
            alike[k] = memcmp(a->tier[i], a->tier[k], sizeof a->tier[i]) == 0;
        }
        for (int k = i; k < GGML_TYPE_COUNT; k++) {
            done[k] = done[k] || alike[k];
        }
        for (int tier = 0; tier < q->n_tiers; tier++) {
            struct line line = {.tier = tier};
            bool any = false;
            for (int j = 0; j < GGML_TYPE_COUNT; j++) {
                line.second[j] = alike[i] && a->tier[i][j] == tier;
                any = any || line.second[j];
            }
            if (any) {
                memcpy(line.first, alike, sizeof alike);
                print(q, a, &line, n_lines++);
            }
        }
    }
}

// Returns true if the op is a copy and every type can be copied to itself with the same tier. The caller then prints "any type to
// itself". In this case, also removes the entry of a type with itself if no other type can be copied to that type.
static bool fold_same(struct answer *a) {
    if (a->relation == NULL || strcmp(a->relation, "to") != 0) {
        return false;
    }
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (is_type(i) && (a->tier[i][i] == NOT_SUPPORTED || a->tier[i][i] != a->tier[GGML_TYPE_F32][GGML_TYPE_F32])) {
            return false;
        }
    }
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        bool others = false;
        for (int k = 0; k < GGML_TYPE_COUNT; k++) {
            others = others || (k != i && a->tier[k][i] != NOT_SUPPORTED);
        }
        if (!others) {
            a->tier[i][i] = NOT_SUPPORTED;
        }
    }
    return true;
}

#define LINE_LENGTH 120
#define COLUMN_TIER 26
#define COLUMN_TYPES 46

// Prints a space and the word, on a new line if the line would be too long. Returns the column after the word.
static int put_word(int column, const char *word) {
    const int n = (int) strlen(word);
    if (column + 1 + n > LINE_LENGTH) {
        printf("\n%*s", COLUMN_TYPES - 1, "");
        column = COLUMN_TYPES - 1;
    }
    printf(" %s", word);
    return column + 1 + n;
}

static int put_types(int column, const bool types[GGML_TYPE_COUNT]) {
    int n_all = 0, n = 0;
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        n_all += is_type(i);
        n += types[i];
    }
    if (n == n_all) {
        return put_word(column, "any type");
    }
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (types[i]) {
            column = put_word(column, ggml_type_name((enum ggml_type) i));
        }
    }
    return column;
}

static void put_head(const struct query *q, const char *name, int i_tier) {
    const char *tier = "?";
    if (q->op_tier != NULL) {
        tier = q->tiers[i_tier][0] != '\0' ? q->tiers[i_tier] : "-";
    }
    const char *bold = cli_colour(stdout, CLI_BOLD), *dim = cli_colour(stdout, CLI_DIM), *reset = cli_colour(stdout, CLI_RESET);
    printf("%s%-*s%s%s%-*s%s", bold, COLUMN_TIER - 1, name, reset, dim, COLUMN_TYPES - COLUMN_TIER, tier, reset);
}

static void print_line(const struct query *q, const struct answer *a, const struct line *line, int i_line) {
    put_head(q, i_line == 0 ? a->name : "", line->tier);
    int column = put_types(COLUMN_TYPES - 1, line->first);
    if (a->relation != NULL) {
        put_types(put_word(column, a->relation), line->second);
    }
    putchar('\n');
}

static void json_types(struct berth_json_writer *w, const char *key, const bool types[GGML_TYPE_COUNT]) {
    berth_json_begin(w, key, '[');
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (types[i]) {
            berth_json_printf(w, "%s", ggml_type_name((enum ggml_type) i));
        }
    }
    berth_json_end(w);
}

static void json_line(const struct query *q, const struct answer *a, const struct line *line, int i_line) {
    (void) i_line;
    berth_json_begin(q->out, NULL, '{');
    berth_json_printf(q->out, "'tier': %s", q->op_tier != NULL ? q->tiers[line->tier] : NULL);
    json_types(q->out, "a", line->first);
    if (a->relation != NULL) {
        json_types(q->out, "b", line->second);
    }
    berth_json_end(q->out);
}

static void print_answer(struct query *q, struct answer *a) {
    if (q->json) {
        berth_json_line(q->out, 2);
        berth_json_begin(q->out, NULL, '{');
        berth_json_printf(q->out, "'op': %s, 'supported': %c, 'relation': %s", a->name, a->any, a->relation);
        berth_json_begin(q->out, "types", '[');
        each_line(q, a, json_line);
        berth_json_end(q->out);
        berth_json_end(q->out);
    } else if (a->any) {
        if (fold_same(a)) {
            put_head(q, a->name, a->tier[GGML_TYPE_F32][GGML_TYPE_F32]);
            puts(" any type to itself");
            a->name = "";
        }
        each_line(q, a, print_line);
    } else {
        printf("%s%-*s%snot supported%s\n", cli_colour(stdout, CLI_BOLD), COLUMN_TIER - 1, a->name,
            cli_colour(stdout, CLI_YELLOW), cli_colour(stdout, CLI_RESET));
    }
    q->n_listed++;
    q->n_missing += !a->any;
}

// ---- the list ----

// Returns whether the user has requested this op. Sets found[] for the request.
static bool name_is_requested(const struct query *q, const char *name) {
    bool is_requested = q->n_names == 0;
    for (int i = 0; i < q->n_names; i++) {
        if (strcasecmp(q->names[i], name) == 0) {
            q->found[i] = is_requested = true;
        }
    }
    return is_requested;
}

typedef void (*visit_t)(struct query *q, struct answer *a, enum ggml_op op, int sub);

static void visit_list(struct query *q, struct answer *a, enum ggml_op op, int sub) {
    op_query(q, op, sub, a);
    print_answer(q, a);
}

static void visit_nothing(struct query *q, struct answer *a, enum ggml_op op, int sub) {
    (void) q, (void) a, (void) op, (void) sub;
}

static void visit_requested(struct query *q, struct answer *a, visit_t visit, enum ggml_op op, int sub, const char *name) {
    if (name_is_requested(q, name)) {
        a->name = name;
        visit(q, a, op, sub);
    }
}

// Calls visit for each requested op. Each variant of GGML_OP_UNARY and GGML_OP_GLU counts as an op.
static void each_op(struct query *q, struct answer *a, visit_t visit) {
    for (int op = GGML_OP_NONE + 1; op < GGML_OP_COUNT; op++) {
        if (op == GGML_OP_UNARY) {
            for (int i = 0; i < GGML_UNARY_OP_COUNT; i++) {
                visit_requested(q, a, visit, GGML_OP_UNARY, i, ggml_unary_op_name((enum ggml_unary_op) i));
            }
        } else if (op == GGML_OP_GLU) {
            for (int i = 0; i < GGML_GLU_OP_COUNT; i++) {
                visit_requested(q, a, visit, GGML_OP_GLU, i, ggml_glu_op_name((enum ggml_glu_op) i));
            }
        } else {
            visit_requested(q, a, visit, (enum ggml_op) op, 0, ggml_op_name((enum ggml_op) op));
        }
    }
}

static const char *kernels_name(const struct query *q) {
    const char *(*isa)(void) = NULL;
    model_device_proc(q->dev, "berth_cpu_isa", &isa);
    return isa != NULL ? isa() : "unknown";
}

static int ops_print(struct query *q) {
    struct answer *a = berth_malloc(sizeof *a);
    q->found = berth_calloc((size_t) q->n_names + 1, sizeof *q->found);
    q->ctx = ggml_init((struct ggml_init_params){.mem_size = 4 << 20, .no_alloc = true});
    int code = CLI_OK;
    if (a == NULL || q->found == NULL || q->ctx == NULL) {
        code = cli_fail(CLI_FAILURE, "out of memory for the query of the device");
        goto end;
    }
    each_op(q, a, visit_nothing); // sets q->found
    for (int i = 0; i < q->n_names; i++) {
        if (!q->found[i]) {
            code = cli_usage("ops", "unknown op '%s'; 'berth ops' lists all", q->names[i]);
            goto end;
        }
    }
    model_device_proc(q->dev, "berth_cpu_op_tier", &q->op_tier);
    struct berth_json_writer w = {.file = stdout};
    q->out = &w;
    if (q->json) {
        berth_json_begin(q->out, NULL, '{');
        berth_json_printf(q->out, "'device': %s, 'kernels': %s", ggml_backend_dev_name(q->dev), kernels_name(q));
        berth_json_begin(q->out, "ops", '[');
    } else {
        printf("%s: kernels %s\n\n%-*s%-*s types\n", ggml_backend_dev_name(q->dev), kernels_name(q), COLUMN_TIER - 1, "op",
            COLUMN_TYPES - COLUMN_TIER, "tier");
    }
    each_op(q, a, visit_list);
    if (q->json) {
        berth_json_line(q->out, 0);
        berth_json_end(q->out);
        berth_json_printf(q->out, "'supported': %d, 'unsupported': %d", q->n_listed - q->n_missing, q->n_missing);
        berth_json_end(q->out);
        putchar('\n');
    } else {
        printf("\n%d ops, %d of them not supported\n", q->n_listed, q->n_missing);
    }
    if (q->has_failed) {
        code = cli_fail(CLI_FAILURE, "out of memory for the names of tiers");
    } else if (q->n_names > 0 && q->n_missing > 0) {
        code = CLI_NEGATIVE;
    }
end:
    ggml_free(q->ctx);
    berth_free(q->found);
    berth_free(q->tiers);
    berth_free(a);
    return code;
}

int cli_ops(const struct cli_args *args) {
    const struct options *o = args->options;
    struct query q = {.json = o->json, .names = args->operands, .n_names = args->n};
    ggml_backend_load_all();
    q.dev = o->device != NULL ? ggml_backend_dev_by_name(o->device) : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (q.dev == NULL) {
        struct model_error error = {""};
        model_device_unknown(o->device != NULL ? o->device : "CPU", &error);
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    return ops_print(&q);
}
