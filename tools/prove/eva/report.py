#!/usr/bin/env python3
# report.py FOLDER [NAME]: compares the results of the analyses (FOLDER/NAME.csv, .rte.csv, .log; written by eva.sh) with alarms.txt
# and unreached.txt, and prints a line per source file. The exit code is 1 if they differ.
import collections
import csv
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
folder = pathlib.Path(sys.argv[1])
names = [line.split()[0] for line in (HERE / "parts.txt").read_text().splitlines() if line.strip() and not line.startswith("#")]
names = [name for name in names if len(sys.argv) < 3 or name == sys.argv[2]]
RUN_TIME_ERRORS = {"initialization", "mem_access", "signed_overflow", "bool_value", "division_by_zero", "shift", "index_bound",
                   "pointer_comparison", "overflow", "float_to_int", "dangling_pointer", "separation", "differing_blocks"}


def rows_read(path):
    with open(path, newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    for row in rows:
        if len(row) < 7 or row[0].startswith("FRAMAC_SHARE"):
            continue
        yield "%s/%s" % (row[0], row[1]), row[3], row[4], row[5], row[6]


def lines_read(name):
    lines = (HERE / name).read_text().splitlines()
    return set(line.strip() for line in lines if line.strip() and not line.startswith("#"))


alarms, reached = set(), collections.defaultdict(lambda: (0, 0))
points = collections.defaultdict(int)
n_checks = n_checks_valid = 0
for name in names:
    local, home = collections.defaultdict(int), {}
    for where, function, kind, status, text in rows_read(folder / (name + ".rte.csv")):
        home[function] = where
        if kind in RUN_TIME_ERRORS:
            local[where, function] += 1
    for key, n in local.items():
        points[key] = max(points[key], n)
    for where, function, kind, status, text in rows_read(folder / (name + ".csv")):
        if kind == "user check":
            n_checks += 1
            n_checks_valid += status in ("Valid", "Dead") # dead: `check \\false`
        is_claim = kind in ("assigns clause", "from clause", "termination clause", "allocates clause", "behavior")
        if status in ("Valid", "Considered valid", "Dead") or is_claim:
            continue
        alarms.add("%s: %s: %s: %s: %s" % (name, where, function, kind, text))
    for function, n, of in re.findall(r"^ *(\w+): (\d+) stmts out of (\d+)", (folder / (name + ".log")).read_text(), re.M):
        key = home.get(function, ""), function
        if int(n) > reached[key][0]:
            reached[key] = (int(n), int(of))

files = collections.defaultdict(lambda: [0, 0, 0, 0])
unreached = set()
for (where, function), (n, of) in reached.items():
    if not where.startswith("src/"):
        continue
    row = files[where]
    row[0] += 1
    row[1] += n
    row[2] += of
    row[3] += points[where, function]
    if n < of:
        unreached.add("%s: %s: %d of %d" % (where, function, n, of))
for (where, function), n in points.items():
    if where.endswith(".c") and where.startswith("src/") and where != "src/base/alloc.c" and reached[where, function] == (0, 0):
        unreached.add("%s: %s: not analysed" % (where, function))
for where in sorted(files):
    n_alarms = sum(alarm.split(": ")[1] == where for alarm in alarms)
    print("%-32s %5d points, %d alarms; %d of %d statements of %d functions" % (
        where, files[where][3], n_alarms, files[where][1], files[where][2], files[where][0]))
print("%-32s %5d of %5d checks of the drivers and models" % ("tools/prove/eva", n_checks_valid, n_checks))
failed = 0
for name, found in (("alarms.txt", alarms), ("unreached.txt", unreached)):
    known = lines_read(name)
    if len(sys.argv) > 2: # the other analyses, which reach other functions, did not run
        known &= found
        found &= known if name == "unreached.txt" else found
    for line in sorted(found - known):
        print("eva: not in %s: %s" % (name, line), file=sys.stderr)
    for line in sorted(known - found):
        print("eva: in %s, but not found: %s" % (name, line), file=sys.stderr)
    failed |= found != known
sys.exit(failed)
