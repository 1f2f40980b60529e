// SPDX-License-Identifier: MIT
// size.h: reads a number of bytes with a unit.
#pragma once

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Returns the bytes of a unit, ignoring case. "" or "b": 1. "k", "ki" or "kib", and so on: a power of 1024. "kb", and so on: a
// power of 1000. 0: the text is not a unit.
static inline double berth_unit_bytes(const char *text) {
    static const char letters[] = "kmgt";
    const char *letter = *text != '\0' ? strchr(letters, tolower((unsigned char) *text)) : NULL;
    if (letter == NULL) {
        return *text == '\0' || strcasecmp(text, "b") == 0 ? 1 : 0;
    }
    const double power = (double) (letter - letters) + 1;
    if (strcasecmp(text + 1, "b") == 0) {
        return pow(1000, power);
    }
    return text[1] == '\0' || strcasecmp(text + 1, "i") == 0 || strcasecmp(text + 1, "ib") == 0 ? pow(1024, power) : 0;
}

// Parses a size as integer bytes: 4096, 64K, 1.5GiB. K, M, G, T and Ki, Mi, Gi, Ti are powers of 1024, with or without B. kB, MB,
// GB and TB are powers of 1000. Fractions of a byte are dropped. False: not a size, or more than 2^62.
static inline bool berth_parse_size(const char *text, uint64_t *size) {
    if (*text < '0' || *text > '9' || (*text == '0' && (text[1] == 'x' || text[1] == 'X'))) {
        return false;
    }
    char *end;
    errno = 0;
    const uint64_t raw = strtoull(text, &end, 10);
    if (*end == '\0') { // an integer is not converted to floating point
        *size = raw;
        return errno == 0 && raw <= (uint64_t) 1 << 62;
    }
    const double x = strtod(text, &end);
    const double unit = berth_unit_bytes(end + (*end == ' ')), bytes = x * unit;
    if (unit == 0 || !(bytes >= 0 && bytes <= 4611686018427387904.0)) {
        return false;
    }
    *size = (uint64_t) bytes;
    return true;
}
