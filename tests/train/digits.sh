#!/bin/sh
# SPDX-License-Identifier: MIT
# digits.sh PROGRAM: examples/digits.c on the digits of Debian's python3-sklearn, or of the file BERTH_DIGITS.
file=${BERTH_DIGITS:-/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz}
if [ ! -r "$file" ]; then
    echo "SKIPPED: there is no $file (python3-sklearn has it; BERTH_DIGITS names another)"
    exit 77
fi
zcat "$file" | "$1"
