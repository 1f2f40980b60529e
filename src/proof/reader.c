// SPDX-License-Identifier: MIT
// reader.c: reads the text of a proof. The text may be larger than memory.

#include "proof/proof.h"

#define ADLER_MOD 65521

void proof_reader_init(struct proof_reader *r, proof_read_t read, void *user) {
    r->read = read;
    r->user = user;
    r->at = 0;
    r->n = 0;
    r->line = 1;
    r->why[0] = '\0';
}

bool proof_refuse(struct proof_reader *r, const char *format, ...) {
    if (r->why[0] == '\0') {
        const int n = snprintf(r->why, sizeof r->why, "line %lld: ", (long long) r->line);
        va_list args;
        va_start(args, format);
        vsnprintf(r->why + n, sizeof r->why - (size_t) n, format, args);
        va_end(args);
    }
    return false;
}

int proof_peek(struct proof_reader *r) {
    if (r->at == r->n) {
        r->at = 0;
        r->n = r->read(r->text, sizeof r->text, r->user);
        if (r->n == 0) {
            return -1;
        }
    }
    return (unsigned char) r->text[r->at];
}

// Takes the next byte, which was peeked at.
static void byte_take(struct proof_reader *r) {
    const unsigned char c = (unsigned char) r->text[r->at++];
    r->line += c == '\n';
    r->sum[0] = (r->sum[0] + c) % ADLER_MOD;
    r->sum[1] = (r->sum[1] + r->sum[0]) % ADLER_MOD;
}

bool proof_byte(struct proof_reader *r, char c) {
    if (proof_peek(r) != (unsigned char) c) {
        return proof_refuse(r, "the byte %d was expected", c);
    }
    byte_take(r);
    return true;
}

// Takes a space or a line break.
static bool separator_take(struct proof_reader *r, bool *is_last) {
    const int c = proof_peek(r);
    if (is_last != NULL) {
        *is_last = c == '\n';
    }
    return proof_byte(r, c == ' ' ? ' ' : '\n');
}

bool proof_word(struct proof_reader *r, const char *word) {
    for (const char *c = word; *c != '\0'; c++) {
        if (!proof_byte(r, *c)) {
            return false;
        }
    }
    return separator_take(r, NULL);
}

bool proof_number(struct proof_reader *r, uint64_t most, uint64_t *x, bool *is_last) {
    *x = 0;
    int c = proof_peek(r);
    if (c < '0' || c > '9') {
        return proof_refuse(r, "a number was expected");
    }
    for (; c >= '0' && c <= '9'; c = proof_peek(r)) {
        const uint64_t digit = (uint64_t) (c - '0');
        if (digit > most || *x > (most - digit) / 10) {
            return proof_refuse(r, "a number is above %llu", (unsigned long long) most);
        }
        *x = 10 * *x + digit;
        byte_take(r);
    }
    return separator_take(r, is_last);
}

bool proof_signed(struct proof_reader *r, int64_t *x) {
    const bool is_negative = proof_peek(r) == '-';
    uint64_t size;
    if (is_negative) {
        byte_take(r);
    }
    if (!proof_number(r, (uint64_t) INT64_MAX + is_negative, &size, NULL)) {
        return false;
    }
    *x = (int64_t) (is_negative ? 0 - size : size);
    return true;
}
