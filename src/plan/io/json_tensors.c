// SPDX-License-Identifier: MIT
// json_tensors.c: what a plan of a graph says beyond its items, as JSON: the tensors that lie in each piece of memory, and the
// names of the pools. For whoever shows plans; planning itself needs none of it.

#include "base/json.h"
#include "plan/io/plan_file.h"

#include <inttypes.h>

static bool no_memory(struct berth_json *r) {
    r->status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s:%zu: out of memory", r->name, r->line);
    return false;
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
            return berth_json_fail(r, "a shape of more than 4 numbers");
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

bool berth_json_read_tensors(struct berth_json *r, struct berth_set_builder *b) {
    if (berth_json_array(r)) {
        while (berth_json_next(r) && read_tensor(r, b)) {
        }
    }
    return r->status == GGML_STATUS_SUCCESS;
}

static bool read_pool(struct berth_json *r, struct berth_set_builder *b) {
    int64_t pool = 0, max_chunk = 0;
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
            ok = berth_json_is(key, "max_chunk") ? berth_json_int(r, 0, INT64_MAX, &max_chunk) : berth_json_skip(r);
        }
        if (!ok) {
            return false;
        }
    }
    const struct berth_plan_pool out = {.pool = (int32_t) pool, .max_chunk = (uint64_t) max_chunk};
    if (r->status != GGML_STATUS_SUCCESS) {
        return false;
    }
    return berth_set_add_pool(b, &out, name) || no_memory(r);
}

bool berth_json_read_pools(struct berth_json *r, struct berth_set_builder *b) {
    if (berth_json_array(r)) {
        while (berth_json_next(r) && read_pool(r, b)) {
        }
    }
    return r->status == GGML_STATUS_SUCCESS;
}

// ---- writing ----

static void write_tensor(const struct berth_plan_tensor *t, FILE *file) {
    fputs("{\"name\": ", file);
    berth_json_write_string(t->name, file);
    fputs(", \"op\": ", file);
    berth_json_write_string(t->op, file);
    fputs(", \"type\": ", file);
    berth_json_write_string(t->type, file);
    fprintf(file, ", \"shape\": [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
    if (t->node >= 0) {
        fprintf(file, ", \"node\": %" PRId64, t->node);
    }
    if (t->uses[0] != '\0') {
        fputs(", \"uses\": ", file);
        berth_json_write_string(t->uses, file);
    }
    fputc('}', file);
}

void berth_json_write_tensors(const struct berth_plan_set *set, size_t item, size_t *i_tensor, FILE *file) {
    size_t n = 0;
    for (; *i_tensor < set->n_tensors && set->tensors[*i_tensor].item == item; (*i_tensor)++) {
        fputs(n++ == 0 ? ", \"tensors\": [" : ", ", file);
        write_tensor(&set->tensors[*i_tensor], file);
    }
    fputs(n > 0 ? "]" : "", file);
}

void berth_json_write_pools(const struct berth_plan_set *set, FILE *file) {
    for (size_t i = 0; i < set->n_pools; i++) {
        const struct berth_plan_pool *p = &set->pools[i];
        fprintf(file, "%s{\"pool\": %" PRId32 ", \"name\": ", i == 0 ? "  \"pools\": [" : ", ", p->pool);
        berth_json_write_string(p->name, file);
        fprintf(file, ", \"max_chunk\": %" PRIu64 "}", p->max_chunk);
    }
    fputs(set->n_pools > 0 ? "],\n" : "", file);
}
