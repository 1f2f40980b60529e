// SPDX-License-Identifier: MIT
// reader.c: each function of src/proof/reader.c in any state of the reader. The state is again one of these states afterwards: at
// and n are any numbers, n at most the size of the buffer, and all other fields are arbitrary. So any text of any length is covered.

#include "tools/prove/eva/eva.h"

// What proof_refuse writes first: "line ", at most 20 digits, ": ".
static int eva_line(char *to, size_t size) {
    //@ check eva_text: \valid(to + (0 .. size - 1)) && size > 28;
    Frama_C_make_unknown(to, 28);
    return Frama_C_int_interval(8, 27);
}

static int eva_vsnprintf(char *to, size_t size) {
    //@ check eva_text: size > 0 && \valid(to + (0 .. size - 1));
    Frama_C_make_unknown(to, size);
    return Frama_C_int_interval(0, INT32_MAX);
}

#define snprintf(to, size, format, x) eva_line(to, size)
#define vsnprintf(to, size, format, args) eva_vsnprintf(to, size)

#include "src/proof/reader.c"

#define UNITS_LIMIT ((uint64_t) 1 << 60)

static struct proof eva_proof;

static size_t eva_read(char *to, size_t size, void *user) {
    //@ check eva_text: \valid(to + (0 .. size - 1));
    Frama_C_make_unknown(to, size);
    return Frama_C_unsigned_long_interval(0, size);
}

static void eva_state(struct proof *p) {
    p->read = eva_read;
    p->at = EVA_ANY_U64();
    p->n = Frama_C_unsigned_long_interval(0, sizeof p->text);
    p->sum[0] = Frama_C_unsigned_int_interval(0, UINT32_MAX);
    p->sum[1] = Frama_C_unsigned_int_interval(0, UINT32_MAX);
    p->line = EVA_ANY_U64();
    p->is_line_end = EVA_ANY_BOOL();
    p->is_refused = EVA_ANY_BOOL();
    Frama_C_make_unknown(p->why, sizeof p->why);
    Frama_C_make_unknown(p->text, sizeof p->text);
}

// proof_number with the limits that the checker passes: proof.c and search.c check that they pass no other.
static void eva_number(struct proof *p, uint64_t most) {
    eva_state(p);
    const uint64_t x = proof_number(p, most);
    //@ check eva_number: x <= most;
    //@ check eva_state: p->n <= sizeof(p->text);
}

int main(void) {
    struct proof *p = &eva_proof;
    eva_state(p);
    proof_refuse(p, "any text");
    //@ check eva_state: p->n <= sizeof(p->text) && p->is_refused == 1;
    eva_state(p);
    const int peeked = proof_peek(p);
    //@ check eva_state: p->n <= sizeof(p->text) && -1 <= peeked <= 255;
    eva_state(p);
    const int byte = proof_byte(p);
    //@ check eva_state: p->n <= sizeof(p->text) && -1 <= byte <= 255;
    eva_state(p);
    proof_text(p, "any text");
    //@ check eva_state: p->n <= sizeof(p->text);
    //@ loop unroll 10;
    for (uint64_t most = 0; most < 10; most++) {
        eva_number(p, most);
    }
    eva_number(p, UINT32_MAX);
    eva_number(p, UNITS_LIMIT);
    eva_number(p, PROOF_SIZE_LIMIT);
    eva_number(p, UINT64_MAX);
    eva_state(p);
    p->is_refused = true;
    const uint64_t none = proof_number(p, 9);
    //@ check eva_number: none == 0;
    return 0;
}
