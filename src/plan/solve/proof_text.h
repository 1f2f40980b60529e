// SPDX-License-Identifier: MIT
// proof_text.h: the text of a proof: the header, lines, and the checksum at the end.
#pragma once

#include "base/base.h"
#include "berth-plan.h"

struct plan_text {
    berth_plan_write_t write;
    void *user;
    char *text; // bytes that are not written yet
    size_t n;
    uint32_t sum[2]; // Adler-32 of the text since the header began
    bool has_failed; // a call of `write` failed
};

// Writes the header. False: out of memory.
bool berth_plan_text_begin(struct plan_text *t, berth_plan_write_t write, void *user) BERTH_MUST_USE;
// Writes at most 255 bytes.
void berth_plan_text_print(struct plan_text *t, const char *format, ...) BERTH_PRINTF(2, 3);
void berth_plan_text_bytes(struct plan_text *t, const char *bytes, size_t size);
// Writes the checksum and frees t->text. False: writing failed.
bool berth_plan_text_end(struct plan_text *t) BERTH_MUST_USE;
