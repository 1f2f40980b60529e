// SPDX-License-Identifier: MIT
// set.c: items with names and offsets as files hold them: building, freeing, and reading from a path. The formats are in csv.c
// and json_plan.c.

#include "plan/set.h"

#include <errno.h>
#include <string.h>

bool berth_set_begin(struct berth_set_builder *b) {
    *b     = (struct berth_set_builder){0};
    b->set = berth_calloc(1, sizeof *b->set);
    return b->set != NULL;
}

bool berth_set_add(struct berth_set_builder *b, const struct berth_set_item *item) {
    struct berth_plan_set *set = b->set;
    const size_t i             = set->n_items;
    size_t text_size;
    if (!berth_add_ok(b->text_size, item->id_len, &text_size) || !berth_add_ok(text_size, 1, &text_size) ||
        !berth_grow((void **) &set->items, &b->n_items_cap, i + 1, sizeof *set->items) ||
        !berth_grow((void **) &set->offsets, &b->n_offsets_cap, i + 1, sizeof *set->offsets) ||
        !berth_grow((void **) &b->starts, &b->n_starts_cap, i + 1, sizeof *b->starts) ||
        !berth_grow((void **) &b->text, &b->n_text_cap, text_size, 1)) {
        return false;
    }
    set->items[i]   = item->item;
    set->offsets[i] = item->offset;
    b->starts[i]    = b->text_size;
    b->n_offsets += item->offset != BERTH_PLAN_ANY;
    if (item->id_len > 0) {
        memcpy(b->text + b->text_size, item->id, item->id_len);
    }
    b->text[text_size - 1] = '\0';
    b->text_size           = text_size;
    set->n_items++;
    return true;
}

bool berth_set_end(struct berth_set_builder *b, struct berth_plan_set **set) {
    const size_t n = b->set->n_items;
    if (n > 0) {
        size_t size;
        b->set->ids = berth_mul_ok(n, sizeof(char *), &size) ? berth_malloc(size) : NULL;
        if (b->set->ids == NULL) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            b->set->ids[i] = b->text + b->starts[i];
        }
        b->text = NULL; // owned through ids[0]
    }
    b->set->has_offsets = n > 0 && b->n_offsets == n;
    *set                = b->set;
    b->set              = NULL;
    berth_set_drop(b);
    return true;
}

void berth_set_drop(struct berth_set_builder *b) {
    berth_plan_set_free(b->set);
    berth_free(b->starts);
    berth_free(b->text);
    *b = (struct berth_set_builder){0};
}

void berth_plan_set_free(struct berth_plan_set *set) {
    if (set == NULL) {
        return;
    }
    if (set->ids != NULL) {
        berth_free(set->ids[0]);
    }
    berth_free(set->ids);
    berth_free(set->items);
    berth_free(set->offsets);
    berth_free(set);
}

static bool read_all(FILE *file, char **text, size_t *size) {
    size_t n_cap = 0;
    *text        = NULL;
    *size        = 0;
    for (;;) {
        if (!berth_grow((void **) text, &n_cap, *size + 65536, 1)) {
            errno = ENOMEM;
            return false;
        }
        const size_t n = fread(*text + *size, 1, n_cap - *size, file);
        *size += n;
        if (n == 0) {
            return !ferror(file);
        }
    }
}

enum ggml_status berth_plan_read_file(const char *path, struct berth_plan_set **set) {
    if (path == NULL || set == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "reading a plan: NULL");
    }
    *set                = NULL;
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *file          = is_stdin ? stdin : fopen(path, "rb");
    if (file == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s: cannot be opened: %s", path, strerror(errno));
    }
    char *text              = NULL;
    size_t size             = 0;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    errno                   = 0;
    if (!read_all(file, &text, &size)) {
        status = errno == ENOMEM ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
        berth_fail(status, "%s: cannot be read: %s", path, strerror(errno));
    }
    if (!is_stdin) {
        fclose(file);
    }
    if (status == GGML_STATUS_SUCCESS) {
        const char *name = is_stdin ? "standard input" : path;
        size_t i         = 0;
        while (i < size && strchr(" \t\r\n", text[i]) != NULL && text[i] != '\0') {
            i++;
        }
        status =
            i < size && text[i] == '{' ? berth_plan_read_json(text, size, name, set) : berth_plan_read_csv(text, size, name, set);
    }
    berth_free(text);
    return status;
}
