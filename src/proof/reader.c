// SPDX-License-Identifier: MIT
// reader.c: reads the text of a proof.

#include "proof/proof.h"

#define ADLER_MOD 65521

bool proof_refuse(struct proof *p, const char *format, ...) {
    if (!p->is_refused) {
        const int n = snprintf(p->why, sizeof p->why, "line %llu: ", (unsigned long long) p->line);
        va_list args;
        va_start(args, format);
        vsnprintf(p->why + n, sizeof p->why - (size_t) n, format, args);
        va_end(args);
        p->is_refused = true;
    }
    return false;
}

int proof_peek(struct proof *p) {
    if (p->at >= p->n && !p->is_refused) {
        p->at = 0;
        p->n = p->read(p->text, sizeof p->text, p->user);
    }
    return p->is_refused || p->n == 0 ? -1 : (unsigned char) p->text[p->at];
}

int proof_byte(struct proof *p) {
    const int c = proof_peek(p);
    if (c >= 0) {
        p->at++;
        p->line += c == '\n';
        p->sum[0] = (p->sum[0] + (uint32_t) c) % ADLER_MOD;
        p->sum[1] = (p->sum[1] + p->sum[0]) % ADLER_MOD;
    }
    return c;
}

void proof_text(struct proof *p, const char *text) {
    for (const char *c = text; *c != '\0'; c++) {
        if (proof_byte(p) != *c) {
            proof_refuse(p, "'%s' was expected", text);
        }
    }
}

uint64_t proof_number(struct proof *p, uint64_t most) {
    uint64_t x = 0;
    int c = proof_peek(p);
    if (c < '0' || c > '9') {
        proof_refuse(p, "a number was expected");
    }
    for (; c >= '0' && c <= '9'; c = proof_peek(p)) {
        const uint64_t next = 10 * x + (uint64_t) (c - '0');
        if (x > most / 10 || next > most || next < x) {
            proof_refuse(p, "a number is above %llu", (unsigned long long) most);
            break;
        }
        x = next;
        proof_byte(p);
    }
    p->is_line_end = c == '\n';
    if (c != ' ' && c != '\n') {
        proof_refuse(p, "a space or a line break was expected");
    }
    proof_byte(p);
    return p->is_refused ? 0 : x;
}
