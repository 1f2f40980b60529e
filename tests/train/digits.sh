#!/bin/sh
# SPDX-License-Identifier: MIT
# digits.sh PROGRAM: runs examples/digits.c on 1,792 generated digits, which are shifted, of uneven intensity and with noise. If
# BERTH_DIGITS names a file (CSV compressed by gzip, as in python3-sklearn), it uses the digits of that file.
set -eu
if [ -n "${BERTH_DIGITS:-}" ]; then
    zcat "$BERTH_DIGITS" | "$1"
    exit
fi

# Glyphs of 5x7 pixels, one word per row. The script has its own random number generator, because those of awk implementations
# differ.
awk '
function uniform() {
    seed = seed * 16807 % 2147483647
    return seed / 2147483647
}
BEGIN {
    seed = 1
    n_glyphs = split("01110 10001 10011 10101 11001 10001 01110" \
        "|00100 01100 00100 00100 00100 00100 01110" \
        "|01110 10001 00001 00110 01000 10000 11111" \
        "|11110 00001 00001 01110 00001 00001 11110" \
        "|00010 00110 01010 10010 11111 00010 00010" \
        "|11111 10000 11110 00001 00001 10001 01110" \
        "|00110 01000 10000 11110 10001 10001 01110" \
        "|11111 00001 00010 00100 01000 01000 01000" \
        "|01110 10001 10001 01110 10001 10001 01110" \
        "|01110 10001 10001 01111 00001 00010 01100", glyphs, "|")
    for (i = 0; i < 1792; i++) {
        digit = int(uniform() * n_glyphs)
        n_rows = split(glyphs[digit + 1], rows, " ")
        right = int(uniform() * 4)
        down = int(uniform() * 2)
        line = ""
        for (y = 0; y < 8; y++) {
            for (x = 0; x < 8; x++) {
                has_ink = y >= down && y - down < n_rows && x >= right && substr(rows[y - down + 1], x - right + 1, 1) == "1"
                pixel = has_ink ? 7 + int(uniform() * 10) : uniform() < 0.1 ? int(uniform() * 12) : 0
                line = line pixel ","
            }
        }
        print line digit
    }
}' | "$1"
