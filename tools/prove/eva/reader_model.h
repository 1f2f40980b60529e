// SPDX-License-Identifier: MIT
// reader_model.h: what src/proof/reader.c may do, as proof.c and search.c see it. They do not look at the text, the checksum and the
// number of the line. reader.c analyses the functions themselves.
#pragma once

static bool eva_is_split;     // the next number is the number of blocks: each value is analysed on its own
static bool eva_has_no_steps; // the log of the search is empty, or its first step does not exist

bool proof_refuse(struct proof *p, const char *format, ...) {
    p->is_refused = true;
    return false;
}

int proof_peek(struct proof *p) {
    if (p->is_refused) {
        return -1;
    }
    if (eva_has_no_steps) {
        return Frama_C_nondet('e', '?');
    }
    return Frama_C_int_interval(-1, 255);
}

int proof_byte(struct proof *p) {
    return proof_peek(p);
}

void proof_text(struct proof *p, const char *text) {
    p->is_refused |= EVA_ANY_BOOL();
    eva_is_split = text[0] == 'b' && text[1] == 'l';     // "blocks "
    eva_has_no_steps = text[0] == 's' && text[1] == 't'; // "steps"
    if (eva_has_no_steps) {
        eva_steps_begin();
    }
}

uint64_t proof_number(struct proof *p, uint64_t most) {
    //@ check eva_most: most < 10 || most == 4294967295 || most == 1 << 60 || most == 1 << 62;
    p->is_line_end = EVA_ANY_BOOL();
    p->is_refused |= EVA_ANY_BOOL();
    if (p->is_refused) {
        return 0;
    }
    if (eva_is_split) {
        eva_is_split = false;
        return (uint64_t) Frama_C_interval_split(0, (int) most);
    }
    return Frama_C_unsigned_long_interval(0, most);
}
