#!/bin/sh
# checkers.sh PROP_PROOF BERTH FOLDER: writes proofs of random problems into FOLDER, and checks them with both checkers. The same
# for proofs that no schedule keeps a memory limit.
set -eu
rm -rf "$3"
mkdir -p "$3"
"$1" write "$3" > /dev/null 2>&1
python3 "$(dirname "$0")/check.py" folder "$3" "$2"
python3 "$(dirname "$0")/budget.py" compare "$3" "$2"
