// SPDX-License-Identifier: MIT
// csv.c: reads and writes plans as CSV. The header line of a file names its columns. Error messages name the line and quote the
// text.

#include "base/min.h"
#include "plan/io/set.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum column_kind {
    COLUMN_ID,
    COLUMN_LOWER,
    COLUMN_UPPER,
    COLUMN_SIZE,
    COLUMN_ALIGN,
    COLUMN_OFFSET,
    COLUMN_POOL,
    COLUMN_ALIAS,
    COLUMN_FIXED,
    COLUMN_COST,
    COLUMN_READS,
    N_COLUMNS
};

static const struct column {
    const char *name;
    bool needed;
    bool may_be_empty;
    int64_t min; // least value, for columns of numbers
} columns[N_COLUMNS] = {
    [COLUMN_ID] = {"id", true, true, 0},
    [COLUMN_LOWER] = {"lower", true, false, -BERTH_SET_STEP_MAX},
    [COLUMN_UPPER] = {"upper", true, false, -BERTH_SET_STEP_MAX},
    [COLUMN_SIZE] = {"size", true, false, 0},
    [COLUMN_ALIGN] = {"alignment", false, true, 0},
    [COLUMN_OFFSET] = {"offset", false, true, 0},
    [COLUMN_POOL] = {"pool", false, true, INT32_MIN},
    [COLUMN_ALIAS] = {"alias", false, true, -1},
    [COLUMN_FIXED] = {"fixed", false, true, 0},
    [COLUMN_COST] = {"cost", false, true, 0},
    [COLUMN_READS] = {"reads", false, true, 0},
};

struct csv {
    const char *name;
    const char *p, *end;
    size_t line;   // line of p, from 1
    int8_t *kinds; // [n_kinds] column_kind of each column, -1: ignored
    size_t n_kinds, n_kinds_cap;
    char *field; // text of a quoted field, with "" replaced by "
    size_t n_field_cap;
    size_t *lines; // [n_lines] line of each item
    size_t n_lines, n_lines_cap;
    struct berth_set_builder builder;
};

struct field {
    const char *text;
    size_t len;
    bool ends_line;
};

#define SHOWN 40 // bytes of the text that a message quotes

static int shown_len(size_t len) {
    return len < SHOWN ? (int) len : SHOWN;
}

static enum ggml_status out_of_memory(const struct csv *csv) {
    return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s:%zu: out of memory", csv->name, csv->line);
}

// ---- fields ----

static bool at_line_end(const struct csv *csv) {
    return csv->p == csv->end || *csv->p == '\n' || *csv->p == '\r';
}

static void skip_line_end(struct csv *csv) {
    if (csv->p < csv->end && *csv->p == '\r') {
        csv->p++;
        if (csv->p < csv->end && *csv->p == '\n') {
            csv->p++;
        }
    } else if (csv->p < csv->end) {
        csv->p++;
    }
    csv->line++;
}

static enum ggml_status quoted_field(struct csv *csv, struct field *field) {
    const size_t line = csv->line;
    size_t len = 0;
    for (csv->p++;; csv->p++) {
        if (csv->p == csv->end) {
            return berth_fail(GGML_STATUS_FAILED, "%s:%zu: a quoted field has no closing quote", csv->name, line);
        }
        if (*csv->p == '"') {
            if (csv->end - csv->p < 2 || csv->p[1] != '"') {
                break;
            }
            csv->p++;
        }
        csv->line += *csv->p == '\n';
        if (!BERTH_GROW(&csv->field, &csv->n_field_cap, len + 1)) {
            return out_of_memory(csv);
        }
        csv->field[len++] = *csv->p;
    }
    csv->p++;
    field->text = csv->field;
    field->len = len;
    if (!at_line_end(csv) && *csv->p != ',') {
        return berth_fail(GGML_STATUS_FAILED, "%s:%zu: text after the closing quote of \"%.*s\"", csv->name, csv->line,
            shown_len(len), csv->field == NULL ? "" : csv->field);
    }
    return GGML_STATUS_SUCCESS;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

// Reads one field without surrounding blanks. Moves csv->p after the following comma, or to the end of the line.
static enum ggml_status next_field(struct csv *csv, struct field *field) {
    while (csv->p < csv->end && is_blank(*csv->p)) {
        csv->p++;
    }
    if (csv->p < csv->end && *csv->p == '"') {
        const enum ggml_status status = quoted_field(csv, field);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    } else {
        field->text = csv->p;
        while (!at_line_end(csv) && *csv->p != ',') {
            csv->p++;
        }
        field->len = (size_t) (csv->p - field->text);
        while (field->len > 0 && is_blank(field->text[field->len - 1])) {
            field->len--;
        }
    }
    if (field->len > 0 && memchr(field->text, '\0', field->len) != NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s:%zu: NUL byte found; this is not a CSV file", csv->name, csv->line);
    }
    field->ends_line = at_line_end(csv);
    csv->p += !field->ends_line;
    return GGML_STATUS_SUCCESS;
}

// Accepts a decimal integer in [min, 2^62].
static bool parse_number(const struct field *field, int64_t min, int64_t *out) {
    const bool minus = field->len > 0 && field->text[0] == '-';
    size_t i = minus ? 1 : 0;
    int64_t x = 0;
    if (i == field->len) {
        return false;
    }
    for (; i < field->len; i++) {
        const char c = field->text[i];
        if (c < '0' || c > '9' || !berth_mul_i64_ok(x, 10, &x) || !berth_add_i64_ok(x, c - '0', &x)) {
            return false;
        }
    }
    *out = minus ? -x : x;
    return *out >= min && *out <= BERTH_SET_STEP_MAX;
}

// ---- lines ----

static enum ggml_status read_header(struct csv *csv) {
    size_t seen = 0;
    struct field field = {0};
    do {
        const enum ggml_status status = next_field(csv, &field);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        int8_t kind = -1;
        for (int k = 0; k < N_COLUMNS; k++) {
            if (strlen(columns[k].name) == field.len && strncasecmp(columns[k].name, field.text, field.len) == 0) {
                kind = (int8_t) k;
            }
        }
        if (kind >= 0 && (seen & (size_t) 1 << kind) != 0) {
            return berth_fail(GGML_STATUS_FAILED, "%s:%zu: column '%s' occurs twice", csv->name, csv->line, columns[kind].name);
        }
        seen |= kind >= 0 ? (size_t) 1 << kind : 0;
        if (!BERTH_GROW(&csv->kinds, &csv->n_kinds_cap, csv->n_kinds + 1)) {
            return out_of_memory(csv);
        }
        csv->kinds[csv->n_kinds++] = kind;
    } while (!field.ends_line);
    const size_t both = (size_t) 1 << COLUMN_COST | (size_t) 1 << COLUMN_READS;
    csv->builder.has_costs = (seen & both) == both;
    // If a file has only one of the columns cost and reads, the column is ignored.
    for (size_t i = 0; i < csv->n_kinds && !csv->builder.has_costs; i++) {
        if (csv->kinds[i] >= COLUMN_COST) {
            csv->kinds[i] = -1;
        }
    }
    for (int k = 0; k < N_COLUMNS; k++) {
        if (columns[k].needed && (seen & (size_t) 1 << k) == 0) {
            return berth_fail(GGML_STATUS_FAILED, "%s:%zu: no column '%s'; the first line must name id,lower,upper,size",
                csv->name, csv->line, columns[k].name);
        }
    }
    return GGML_STATUS_SUCCESS;
}

static void item_set(struct berth_set_item *item, int8_t kind, int64_t x) {
    switch (kind) {
        case COLUMN_LOWER: item->item.first = x; break;
        case COLUMN_UPPER: item->item.last = x - 1; break;
        case COLUMN_SIZE: item->item.size = (uint64_t) x; break;
        case COLUMN_ALIGN: item->item.align = x == 0 ? 1 : (uint64_t) x; break;
        case COLUMN_OFFSET: item->offset = (uint64_t) x; break;
        case COLUMN_POOL: item->item.pool = (int32_t) x; break;
        case COLUMN_ALIAS: item->alias = (int32_t) x; break;
        case COLUMN_FIXED: item->fixed = (uint64_t) x; break;
        case COLUMN_COST: item->cost = (uint64_t) x; break;
        default: break;
    }
}

static enum ggml_status read_field(struct csv *csv, const struct field *field, int8_t kind, struct berth_set_item *item) {
    if (kind < 0 || (field->len == 0 && columns[kind].may_be_empty)) {
        return GGML_STATUS_SUCCESS;
    }
    if (kind == COLUMN_ID || kind == COLUMN_READS) {
        size_t *at = kind == COLUMN_ID ? &item->id : &item->reads;
        return berth_set_text(&csv->builder, field->text, field->len, at) ? GGML_STATUS_SUCCESS : out_of_memory(csv);
    }
    int64_t x;
    const bool is_i32 = kind == COLUMN_POOL || kind == COLUMN_ALIAS;
    if (!parse_number(field, columns[kind].min, &x) || (is_i32 && x >= INT32_MAX)) {
        return berth_fail(GGML_STATUS_FAILED, "%s:%zu: %s '%.*s' is not an integer from %" PRId64 " to %" PRId64, csv->name,
            csv->line, columns[kind].name, shown_len(field->len), field->text, columns[kind].min,
            is_i32 ? INT32_MAX - 1 : BERTH_SET_STEP_MAX);
    }
    item_set(item, kind, x);
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status read_item(struct csv *csv) {
    struct berth_set_item item = BERTH_SET_ITEM;
    const size_t line = csv->line;
    struct field field = {0};
    for (size_t i = 0; i < csv->n_kinds; i++) {
        if (i > 0 && field.ends_line) {
            return berth_fail(GGML_STATUS_FAILED, "%s:%zu: the row has %zu fields, but the header has %zu columns", csv->name,
                line, i, csv->n_kinds);
        }
        enum ggml_status status = next_field(csv, &field);
        if (status == GGML_STATUS_SUCCESS) {
            status = read_field(csv, &field, csv->kinds[i], &item);
        }
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    if (!field.ends_line) {
        return berth_fail(GGML_STATUS_FAILED, "%s:%zu: the row has more fields than the %zu columns of the header", csv->name,
            line, csv->n_kinds);
    }
    if (item.item.last < item.item.first) {
        return berth_fail(GGML_STATUS_FAILED,
            "%s:%zu: '%.*s' ends before it begins: lower %" PRId64 ", upper %" PRId64 " (exclusive)", csv->name, line, SHOWN,
            csv->builder.text + item.id, item.item.first, item.item.last + 1);
    }
    if (!berth_set_add(&csv->builder, &item) || !BERTH_GROW(&csv->lines, &csv->n_lines_cap, csv->n_lines + 1)) {
        return out_of_memory(csv);
    }
    csv->lines[csv->n_lines++] = line;
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status ids_check(const struct csv *csv, const struct berth_plan_set *set) {
    size_t *ranks = berth_set_id_ranks(set);
    if (ranks == NULL) {
        return out_of_memory(csv);
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int64_t i = 0, first = 0; i < set->n_items && status == GGML_STATUS_SUCCESS; i++) {
        if (ranks[i] > 0) {
            while (strcmp(set->ids[first], set->ids[i]) != 0) {
                first++;
            }
            status = berth_fail(GGML_STATUS_FAILED, "%s:%zu: id '%.*s' is already used in line %zu; ids must be unique",
                csv->name, csv->lines[i], SHOWN, set->ids[i], csv->lines[first]);
        }
    }
    berth_free(ranks);
    return status;
}

enum ggml_status berth_plan_read_csv(const char *text, size_t size, const char *name, struct berth_plan_set **set) {
    if (set == NULL || (text == NULL && size > 0)) {
        return berth_fail(GGML_STATUS_FAILED, "reading CSV: text or set is NULL");
    }
    *set = NULL;
    struct csv csv = {.name = name == NULL ? "CSV" : name, .p = text, .end = size > 0 ? text + size : text, .line = 1};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        csv.p += 3;
    }
    while (csv.p < csv.end && at_line_end(&csv)) { // skip blank lines
        skip_line_end(&csv);
    }
    if (csv.p == csv.end) {
        return berth_fail(GGML_STATUS_FAILED, "%s:1: the file is empty; the first line must name id,lower,upper,size", csv.name);
    }
    enum ggml_status status = berth_set_begin(&csv.builder) ? read_header(&csv) : out_of_memory(&csv);
    while (csv.p < csv.end && status == GGML_STATUS_SUCCESS) {
        skip_line_end(&csv);
        if (!at_line_end(&csv)) {
            status = read_item(&csv);
        }
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_set_end(&csv.builder, set) ? ids_check(&csv, *set) : out_of_memory(&csv);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_plan_set_free(*set);
        *set = NULL;
    }
    berth_set_drop(&csv.builder);
    berth_free(csv.lines);
    berth_free(csv.kinds);
    berth_free(csv.field);
    return status;
}

// ---- writing ----

// If an id occurs several times, write_id writes the second as "id (2)", the third as "id (3)" and so on, each followed by the
// same number of apostrophes. For example, with 2 apostrophes: id (2)''. The apostrophes ensure that no new id equals an existing
// id. Returns their number. Only ids that end with ')' and 0 or more apostrophes can equal a new id. If the set has such ids, the
// result is 1 more than the largest number of apostrophes at their ends. Otherwise, the result is 0.
static int id_marks(const struct berth_plan_set *set) {
    int n_marks = 0;
    for (int64_t i = 0; i < set->n_items; i++) {
        const char *id = set->ids[i], *end = id + strlen(id);
        int n = 0;
        for (; end > id && end[-1] == '\''; end--) {
            n++;
        }
        if (end > id && end[-1] == ')') {
            n_marks = max_int(n_marks, n + 1);
        }
    }
    return n_marks;
}

// Writes an id, quoted if necessary. rank: number of earlier items with the same id. If rank is not 0, " (rank + 1)" and n_marks
// apostrophes follow.
static void write_id(const char *id, size_t rank, int n_marks, FILE *file) {
    const size_t len = strlen(id);
    const bool is_quoted = strpbrk(id, ",\"\r\n") != NULL || (len > 0 && (is_blank(id[0]) || is_blank(id[len - 1])));
    if (is_quoted) {
        fputc('"', file);
    }
    for (; *id != '\0'; id++) {
        if (*id == '"') {
            fputc('"', file);
        }
        fputc(*id, file);
    }
    if (rank > 0) {
        fprintf(file, " (%zu)", rank + 1);
        for (int i = 0; i < n_marks; i++) {
            fputc('\'', file);
        }
    }
    if (is_quoted) {
        fputc('"', file);
    }
}

static void write_u64(uint64_t x, FILE *file) {
    if (x == BERTH_PLAN_ANY) {
        fputc(',', file);
    } else {
        fprintf(file, ",%" PRIu64, x);
    }
}

enum ggml_status berth_plan_write_csv(const struct berth_plan_set *set, const uint64_t *offsets, FILE *file) {
    if (set == NULL || file == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "writing CSV: set or file is NULL");
    }
    const bool has_costs = set->costs != NULL && set->reads != NULL;
    bool has[N_COLUMNS] = {[COLUMN_OFFSET] = offsets != NULL, [COLUMN_COST] = has_costs, [COLUMN_READS] = has_costs};
    for (int64_t i = 0; i < set->n_items; i++) {
        has[COLUMN_ALIGN] |= set->items[i].align > 1;
        has[COLUMN_POOL] |= set->items[i].pool != 0;
        has[COLUMN_ALIAS] |= set->items[i].alias != 0;
        has[COLUMN_FIXED] |= set->items[i].is_fixed;
    }
    size_t *ranks = berth_set_id_ranks(set);
    if (ranks == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "writing CSV: out of memory for %" PRId64 " ids", set->n_items);
    }
    const int n_marks = id_marks(set);
    fputs("id,lower,upper,size", file);
    for (int k = COLUMN_ALIGN; k < N_COLUMNS; k++) {
        if (has[k]) {
            fprintf(file, ",%s", columns[k].name);
        }
    }
    fputc('\n', file);
    for (int64_t i = 0; i < set->n_items && !ferror(file); i++) {
        const struct berth_plan_item *item = &set->items[i];
        write_id(set->ids[i], ranks[i], n_marks, file);
        fprintf(file, ",%" PRId64 ",%" PRId64 ",%" PRIu64, item->first, item->last + 1, item->size);
        if (has[COLUMN_ALIGN]) {
            write_u64(item->align, file);
        }
        if (has[COLUMN_OFFSET]) {
            write_u64(offsets[i], file);
        }
        if (has[COLUMN_POOL]) {
            fprintf(file, ",%" PRId32, item->pool);
        }
        if (has[COLUMN_ALIAS]) {
            fprintf(file, ",%" PRId32, item->alias - 1);
        }
        if (has[COLUMN_FIXED]) {
            write_u64(item->is_fixed ? item->fixed : BERTH_PLAN_ANY, file);
        }
        if (has_costs) {
            write_u64(set->costs[i], file);
            fputc(',', file);
            write_id(set->reads[i], 0, 0, file);
        }
        fputc('\n', file);
    }
    berth_free(ranks);
    if (fflush(file) != 0 || ferror(file)) {
        return berth_fail(GGML_STATUS_FAILED, "writing CSV: %s", strerror(errno));
    }
    return GGML_STATUS_SUCCESS;
}
