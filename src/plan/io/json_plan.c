// SPDX-License-Identifier: MIT
// json_plan.c: reads and writes plans as JSON. A missing optional number gets its value from BERTH_SET_ITEM.

#include "base/json.h"
#include "plan/io/set.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum field_kind { FIELD_STEP, FIELD_BYTES, FIELD_INT };

static const struct item_field {
    const char *key;
    size_t at;
    enum field_kind kind;
    int64_t min, max;
} item_fields[] = {
    {"first", offsetof(struct berth_set_item, item.first), FIELD_STEP, -BERTH_SET_STEP_MAX, BERTH_SET_STEP_MAX},
    {"last", offsetof(struct berth_set_item, item.last), FIELD_STEP, -BERTH_SET_STEP_MAX, BERTH_SET_STEP_MAX},
    {"size", offsetof(struct berth_set_item, item.size), FIELD_BYTES, 0, BERTH_SET_STEP_MAX},
    {"alignment", offsetof(struct berth_set_item, item.align), FIELD_BYTES, 0, BERTH_SET_STEP_MAX},
    {"offset", offsetof(struct berth_set_item, offset), FIELD_BYTES, 0, BERTH_SET_STEP_MAX},
    {"fixed", offsetof(struct berth_set_item, fixed), FIELD_BYTES, 0, BERTH_SET_STEP_MAX},
    {"pool", offsetof(struct berth_set_item, item.pool), FIELD_INT, INT32_MIN, INT32_MAX},
    {"alias", offsetof(struct berth_set_item, alias), FIELD_INT, -1, INT32_MAX - 1},
};
#define N_ITEM_FIELDS (sizeof item_fields / sizeof *item_fields)
#define N_NEEDED 3 // the first item_fields are required

static bool read_number(struct berth_json *r, const struct item_field *field, struct berth_set_item *item) {
    int64_t x;
    if (!berth_json_int(r, field->min, field->max, &x)) {
        return false;
    }
    char *at = (char *) item + field->at;
    if (field->kind == FIELD_INT) {
        const int32_t small = (int32_t) x;
        memcpy(at, &small, sizeof small);
    } else {
        memcpy(at, &x, sizeof x); // int64_t and uint64_t have the same size
    }
    return true;
}

// ---- tensors and pools: for programs that draw plans; the planner does not need them ----

static bool no_memory(struct berth_json *r) {
    r->status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s:%zu: out of memory", r->name, r->line);
    return false;
}

static bool read_list(
    struct berth_json *r, struct berth_set_builder *b, bool (*read_one)(struct berth_json *r, struct berth_set_builder *b)) {
    if (berth_json_array(r)) {
        while (berth_json_next(r) && read_one(r, b)) {
        }
    }
    return r->status == GGML_STATUS_SUCCESS;
}

static bool read_text(struct berth_json *r, struct berth_set_builder *b, size_t *at) {
    struct berth_json_text text;
    return berth_json_string(r, &text) && (berth_set_text(b, text.text, text.len, at) || no_memory(r));
}

static bool read_shape(struct berth_json *r, int64_t ne[4]) {
    int n = 0;
    if (!berth_json_array(r)) {
        return false;
    }
    while (berth_json_next(r)) {
        if (n == 4) {
            return berth_json_fail(r, "a shape has more than 4 numbers");
        }
        if (!berth_json_int(r, 0, BERTH_SET_STEP_MAX, &ne[n])) {
            return false;
        }
        n++;
    }
    return r->status == GGML_STATUS_SUCCESS;
}

static bool read_tensor(struct berth_json *r, struct berth_set_builder *b) {
    struct berth_plan_tensor tensor = {.node = -1};
    struct berth_set_words words = {0};
    const struct {
        const char *key;
        size_t *out;
    } texts[] = {{"name", &words.name}, {"op", &words.op}, {"type", &words.type}, {"uses", &words.uses}};
    const size_t n_texts = sizeof texts / sizeof *texts;
    struct berth_json_text key;
    if (!berth_json_object(r)) {
        return false;
    }
    while (berth_json_key(r, &key)) {
        size_t i = 0;
        while (i < n_texts && !berth_json_is(key, texts[i].key)) {
            i++;
        }
        bool ok;
        if (i < n_texts) {
            ok = read_text(r, b, texts[i].out);
        } else if (berth_json_is(key, "shape")) {
            ok = read_shape(r, tensor.ne);
        } else {
            ok = berth_json_is(key, "node") ? berth_json_int(r, -1, BERTH_SET_STEP_MAX, &tensor.node) : berth_json_skip(r);
        }
        if (!ok) {
            return false;
        }
    }
    if (r->status != GGML_STATUS_SUCCESS) {
        return false;
    }
    return berth_set_add_tensor(b, &tensor, &words) || no_memory(r);
}

static bool read_pool(struct berth_json *r, struct berth_set_builder *b) {
    int64_t pool = 0, chunk_limit = 0;
    size_t name = 0;
    struct berth_json_text key;
    if (!berth_json_object(r)) {
        return false;
    }
    while (berth_json_key(r, &key)) {
        bool ok;
        if (berth_json_is(key, "pool")) {
            ok = berth_json_int(r, INT32_MIN, INT32_MAX, &pool);
        } else if (berth_json_is(key, "name")) {
            ok = read_text(r, b, &name);
        } else {
            ok = berth_json_is(key, "max_chunk") ? berth_json_int(r, 0, INT64_MAX, &chunk_limit) : berth_json_skip(r);
        }
        if (!ok) {
            return false;
        }
    }
    const struct berth_plan_pool out = {.pool = (int32_t) pool, .chunk_limit = (uint64_t) chunk_limit};
    if (r->status != GGML_STATUS_SUCCESS) {
        return false;
    }
    return berth_set_add_pool(b, &out, name) || no_memory(r);
}

// ---- items ----

// An id is a string or a number, kept as text.
static bool read_id(struct berth_json *r, struct berth_set_builder *b, struct berth_set_item *item) {
    struct berth_json_text text;
    if (!(berth_json_peek(r) == '"' ? berth_json_string(r, &text) : berth_json_number_text(r, &text))) {
        return false;
    }
    if (!berth_set_text(b, text.text, text.len, &item->id)) {
        return no_memory(r);
    }
    return true;
}

static bool read_item(struct berth_json *r, struct berth_set_builder *builder) {
    struct berth_set_item item = BERTH_SET_ITEM;
    unsigned seen = 0;
    struct berth_json_text key;
    if (!berth_json_object(r)) {
        return false;
    }
    while (berth_json_key(r, &key)) {
        size_t i = 0;
        while (i < N_ITEM_FIELDS && !berth_json_is(key, item_fields[i].key)) {
            i++;
        }
        bool ok = true;
        if (i < N_ITEM_FIELDS && berth_json_null(r)) {
            continue; // null is the same as a missing key
        }
        if (i < N_ITEM_FIELDS) {
            seen |= 1u << i;
            ok = read_number(r, &item_fields[i], &item);
        } else if (berth_json_is(key, "id")) {
            ok = read_id(r, builder, &item);
        } else {
            ok = berth_json_is(key, "tensors") ? read_list(r, builder, read_tensor) : berth_json_skip(r);
        }
        if (!ok) {
            return false;
        }
    }
    if (r->status != GGML_STATUS_SUCCESS) {
        return false;
    }
    for (size_t i = 0; i < N_NEEDED; i++) {
        if ((seen & 1u << i) == 0) {
            char what[64];
            snprintf(what, sizeof what, "an item has no \"%s\"", item_fields[i].key);
            return berth_json_fail(r, what);
        }
    }
    if (item.item.last < item.item.first) {
        return berth_json_fail(r, "an item ends before it begins: last < first");
    }
    if (item.item.align == 0) {
        item.item.align = 1;
    }
    return berth_set_add(builder, &item) || no_memory(r);
}

static bool read_plan(struct berth_json *r, struct berth_set_builder *builder) {
    struct berth_plan_set *set = builder->set;
    bool has_items = false, has_peak = false, has_bound = false, has_proven = false;
    struct berth_json_text key;
    int64_t x;
    if (!berth_json_object(r)) {
        return false;
    }
    while (berth_json_key(r, &key)) {
        bool ok;
        if (berth_json_is(key, "items")) {
            ok = has_items ? berth_json_fail(r, "\"items\" occurs twice") : read_list(r, builder, read_item);
            has_items = true;
        } else if (berth_json_is(key, "peak")) {
            ok = has_peak = berth_json_int(r, 0, INT64_MAX, &x);
            set->peak = ok ? (uint64_t) x : 0;
        } else if (berth_json_is(key, "bound")) {
            ok = has_bound = berth_json_int(r, 0, INT64_MAX, &x);
            set->bound = ok ? (uint64_t) x : 0;
        } else if (berth_json_is(key, "proven")) {
            ok = has_proven = berth_json_bool(r, &set->proven);
        } else if (berth_json_is(key, "pools")) {
            ok = read_list(r, builder, read_pool);
        } else {
            ok = berth_json_skip(r);
        }
        if (!ok) {
            return false;
        }
    }
    if (!has_items) {
        return berth_json_fail(r, "\"items\" is missing; this is not a plan");
    }
    set->has_report = has_peak && has_bound && has_proven;
    return berth_json_done(r);
}

enum ggml_status berth_plan_read_json(const char *text, size_t size, const char *name, struct berth_plan_set **set) {
    if (set == NULL || (text == NULL && size > 0)) {
        return berth_fail(GGML_STATUS_FAILED, "reading JSON: text or set is NULL");
    }
    *set = NULL;
    struct berth_json r;
    struct berth_set_builder builder;
    berth_json_init(&r, text, size, name == NULL ? "JSON" : name);
    if (!berth_set_begin(&builder)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory", r.name);
    }
    if (read_plan(&r, &builder) && !berth_set_end(&builder, set)) {
        r.status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory", r.name);
    }
    berth_set_drop(&builder);
    berth_json_fini(&r);
    return r.status;
}

// ---- writing ----

// Returns true if the id is a plain integer, which is written as a JSON number.
static bool is_plain_number(const char *id) {
    const size_t len = strlen(id);
    return len > 0 && len <= 15 && strspn(id, "0123456789") == len && (id[0] != '0' || len == 1);
}

static void write_tensor(struct berth_json_writer *w, const struct berth_plan_tensor *t) {
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'name': %s, 'op': %s, 'type': %s, 'shape': [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]",
        t->name, t->op, t->type, t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
    if (t->node >= 0) {
        berth_json_printf(w, "'node': %" PRId64, t->node);
    }
    if (t->uses[0] != '\0') {
        berth_json_printf(w, "'uses': %s", t->uses);
    }
    berth_json_end(w);
}

static void write_pools(struct berth_json_writer *w, const struct berth_plan_set *set) {
    berth_json_line(w, 2);
    berth_json_begin(w, "pools", '[');
    for (int64_t i = 0; i < set->n_pools; i++) {
        const struct berth_plan_pool *p = &set->pools[i];
        berth_json_printf(w, "{'pool': %" PRId32 ", 'name': %s, 'max_chunk': %" PRIu64 "}", p->pool, p->name, p->chunk_limit);
    }
    berth_json_end(w);
}

// *i_tensor: the first tensor that is not written yet. Tensors are in the order of their items.
static void write_item(
    struct berth_json_writer *w, const struct berth_plan_set *set, int64_t i, const uint64_t *offsets, int64_t *i_tensor) {
    const struct berth_plan_item *item = &set->items[i];
    berth_json_line(w, 4);
    berth_json_begin(w, NULL, '{');
    if (is_plain_number(set->ids[i])) {
        berth_json_put_key(w, "id");
        fputs(set->ids[i], w->file);
    } else {
        berth_json_printf(w, "'id': %s", set->ids[i]);
    }
    berth_json_printf(w, "'first': %" PRId64 ", 'last': %" PRId64 ", 'size': %" PRIu64 ", 'alignment': %" PRIu64, item->first,
        item->last, item->size, item->align == 0 ? 1 : item->align);
    if (offsets != NULL && offsets[i] != BERTH_PLAN_ANY) {
        berth_json_printf(w, "'offset': %" PRIu64, offsets[i]);
    }
    if (item->is_fixed) {
        berth_json_printf(w, "'fixed': %" PRIu64, item->fixed);
    }
    if (item->alias > 0) {
        berth_json_printf(w, "'alias': %" PRId32, item->alias - 1);
    }
    berth_json_printf(w, "'pool': %" PRId32, item->pool);
    if (*i_tensor < set->n_tensors && set->tensors[*i_tensor].item == i) {
        berth_json_begin(w, "tensors", '[');
        for (; *i_tensor < set->n_tensors && set->tensors[*i_tensor].item == i; (*i_tensor)++) {
            write_tensor(w, &set->tensors[*i_tensor]);
        }
        berth_json_end(w);
    }
    berth_json_end(w);
}

enum ggml_status berth_plan_write_json(
    const struct berth_plan_set *set, const uint64_t *offsets, const struct berth_plan_report *report, FILE *file) {
    if (set == NULL || file == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "writing JSON: set or file is NULL");
    }
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_line(&w, 2);
    if (report != NULL) {
        berth_json_printf(
            &w, "'peak': %" PRIu64 ",\n  'bound': %" PRIu64 ",\n  'proven': %c", report->peak, report->bound, report->proven);
    }
    if (set->n_pools > 0) {
        write_pools(&w, set);
    }
    berth_json_line(&w, 2);
    berth_json_begin(&w, "items", '[');
    int64_t i_tensor = 0;
    for (int64_t i = 0; i < set->n_items && !ferror(file); i++) {
        write_item(&w, set, i, offsets, &i_tensor);
    }
    if (set->n_items > 0) {
        berth_json_line(&w, 2);
    }
    berth_json_end(&w);
    berth_json_line(&w, 0);
    berth_json_end(&w);
    fputc('\n', file);
    if (fflush(file) != 0 || ferror(file)) {
        return berth_fail(GGML_STATUS_FAILED, "writing JSON: %s", strerror(errno));
    }
    return GGML_STATUS_SUCCESS;
}
