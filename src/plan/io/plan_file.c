// SPDX-License-Identifier: MIT
// plan_file.c: reads a plan from a path, as CSV or JSON.

#include "base/base.h"

#include <errno.h>
#include <string.h>

static bool is_json(const char *text, size_t size) {
    size_t i = size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < size && text[i] != '\0' && strchr(" \t\r\n", text[i]) != NULL) {
        i++;
    }
    return i < size && text[i] == '{';
}

#define PROBE_SIZE ((size_t) 1 << 20)

// Checks whether the text begins like a plan. A file that is not a plan may be endless (a device, a pipe), so the first line of a
// large file is checked before the rest is read.
static enum ggml_status first_line_check(const char *text, size_t size, const char *name) {
    struct berth_plan_set *set = NULL;
    if (is_json(text, size)) {
        return GGML_STATUS_SUCCESS;
    }
    size_t n = 0;
    while (n < size && (text[n] == '\n' || text[n] == '\r')) { // skip blank lines
        n++;
    }
    while (n < size && text[n] != '\n' && text[n] != '\r') {
        n++;
    }
    const enum ggml_status status = berth_plan_read_csv(text, n, name, &set);
    berth_plan_set_free(set);
    return status;
}

static enum ggml_status read_all(FILE *file, const char *name, char **text, size_t *size) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    size_t n_cap = 0;
    bool is_checked = false;
    *text = NULL;
    *size = 0;
    while (status == GGML_STATUS_SUCCESS) {
        if (!BERTH_GROW(text, &n_cap, *size + 65536)) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory after %zu bytes", name, *size);
        }
        errno = 0;
        const size_t n = fread(*text + *size, 1, n_cap - *size, file);
        *size += n;
        if (ferror(file)) {
            return berth_fail(GGML_STATUS_FAILED, "%s: cannot be read: %s", name, strerror(errno));
        }
        if (n == 0) {
            break;
        }
        if (!is_checked && *size >= PROBE_SIZE) {
            status = first_line_check(*text, *size, name);
            is_checked = true;
        }
    }
    return status;
}

enum ggml_status berth_plan_read_file(const char *path, struct berth_plan_set **set) {
    if (path == NULL || set == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "reading a plan: path or set is NULL");
    }
    *set = NULL;
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (file == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s: cannot be opened: %s", path, strerror(errno));
    }
    char *text = NULL;
    size_t size = 0;
    const char *name = is_stdin ? "standard input" : path;
    enum ggml_status status = read_all(file, name, &text, &size);
    if (!is_stdin) {
        fclose(file);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = (is_json(text, size) ? berth_plan_read_json : berth_plan_read_csv)(text, size, name, set);
    }
    berth_free(text);
    return status;
}
