// SPDX-License-Identifier: MIT
// proof_log.c: the log of one exact search. A step is a line of text. A search that does not end with "no" discards its log, and a
// log may be larger than the memory, so the log is in memory first, and then in a temporary file.

#include "base/min.h"
#include "plan/solve/proof.h"

#define PLAN_LOG_MEMORY ((size_t) 16 << 20)
#define NUMBER_MAX 21 // bytes of a space and a number

static void log_flush(struct plan_log *l) {
    if (l->file == NULL) {
        l->file = tmpfile();
    }
    if (l->file == NULL || fwrite(l->text, 1, l->n, l->file) != l->n) {
        l->has_failed = true;
        return;
    }
    l->file_size += l->n;
    l->n = 0;
}

// Makes room for `size` bytes. False: the log has failed.
static bool log_reserve(struct plan_log *l, size_t size) {
    if (l->n + size > l->cap && !l->has_failed) {
        l->has_failed = !BERTH_GROW(&l->text, &l->cap, max_size(l->n + size, 4096));
    }
    return !l->has_failed;
}

static void log_number(struct plan_log *l, uint64_t x) {
    char digits[NUMBER_MAX];
    int n = 0;
    do {
        digits[n++] = (char) ('0' + x % 10);
        x /= 10;
    } while (x > 0);
    while (n > 0) {
        l->text[l->n++] = digits[--n];
    }
}

void berth_plan_log_step(struct plan_log *l, char letter, const int64_t *args, int n) {
    if (l->n >= PLAN_LOG_MEMORY) {
        log_flush(l);
    }
    if (!log_reserve(l, 2 + PLAN_LOG_ARGS * NUMBER_MAX)) {
        return;
    }
    l->text[l->n++] = letter;
    for (int k = 0; k < n; k++) {
        if (k > 0) {
            l->text[l->n++] = ' ';
        }
        log_number(l, (uint64_t) args[k]);
    }
    l->text[l->n++] = '\n';
}

void berth_plan_log_more(struct plan_log *l, int32_t arg) {
    if (log_reserve(l, NUMBER_MAX + 1)) {
        l->text[l->n - 1] = ' '; // instead of the end of the line
        log_number(l, (uint64_t) arg);
        l->text[l->n++] = '\n';
    }
}

void berth_plan_log_cut(struct plan_log *l, uint64_t size) {
    if (size >= l->file_size) {
        l->n = (size_t) (size - l->file_size);
        return;
    }
    l->n = 0;
    l->file_size = size;
    if (l->file != NULL && fseeko(l->file, (off_t) size, SEEK_SET) != 0) {
        l->has_failed = true;
    }
}

void berth_plan_log_fini(struct plan_log *l) {
    if (l->file != NULL) {
        fclose(l->file);
    }
    berth_free(l->text);
    *l = (struct plan_log){0};
}
