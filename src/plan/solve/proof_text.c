// SPDX-License-Identifier: MIT
// proof_text.c: the functions of proof_text.h.

#include "plan/solve/proof_text.h"

#include "base/min.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define TEXT_SIZE ((size_t) 1 << 16)
#define ADLER_MOD 65521
#define ADLER_BLOCK 5552 // bytes after which the sums are reduced; with more bytes they might overflow

static void text_flush(struct plan_text *t) {
    for (size_t at = 0; at < t->n; at += ADLER_BLOCK) {
        const size_t end = min_size(at + ADLER_BLOCK, t->n);
        for (size_t i = at; i < end; i++) {
            t->sum[0] += (unsigned char) t->text[i];
            t->sum[1] += t->sum[0];
        }
        t->sum[0] %= ADLER_MOD;
        t->sum[1] %= ADLER_MOD;
    }
    if (!t->has_failed && t->n > 0) {
        t->has_failed = !t->write(t->text, t->n, t->user);
    }
    t->n = 0;
}

bool berth_plan_text_begin(struct plan_text *t, berth_plan_write_t write, void *user) {
    *t = (struct plan_text){.write = write, .user = user, .text = berth_malloc(TEXT_SIZE), .sum = {1, 0}};
    if (t->text == NULL) {
        return false;
    }
    berth_plan_text_print(t, "berth-proof 1\n");
    return true;
}

void berth_plan_text_print(struct plan_text *t, const char *format, ...) {
    if (TEXT_SIZE - t->n < 256) {
        text_flush(t);
    }
    va_list args;
    va_start(args, format);
    t->n += (size_t) vsnprintf(t->text + t->n, TEXT_SIZE - t->n, format, args);
    va_end(args);
}

void berth_plan_text_bytes(struct plan_text *t, const char *bytes, size_t size) {
    while (size > 0) {
        const size_t part = min_size(size, TEXT_SIZE - t->n);
        memcpy(t->text + t->n, bytes, part);
        t->n += part;
        bytes += part;
        size -= part;
        if (t->n == TEXT_SIZE) {
            text_flush(t);
        }
    }
}

bool berth_plan_text_end(struct plan_text *t) {
    text_flush(t);
    berth_plan_text_print(t, "end %" PRIu32 "\n", t->sum[1] << 16 | t->sum[0]);
    text_flush(t);
    berth_free(t->text);
    t->text = NULL;
    return !t->has_failed;
}
