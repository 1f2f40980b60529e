#!/usr/bin/env python3
# coverage.py BUILD [--lines FOLDER]: prints the share of lines and branches of src/ that the last tests in BUILD (preset coverage)
# reached, per folder, and the share that tests/coverage.txt requires. The exit code is 1 if a folder has less, or if a required
# folder is missing. --lines lists the lines and branches of a folder that were not reached.
#
# A line or branch that several programs contain counts as reached if one program reached it. Branches are those of the compiler
# without optimisation: two per condition, each part of && and || separately, one per case of a switch. Asserts are not compiled in.
# Nothing else is excluded.
import collections
import gzip
import json
import os
import subprocess
import sys
import tempfile


def gcov(build):
    """All records of gcov: one per pair of a source file and an object."""
    objects = []
    for root, _, names in os.walk(build):
        objects += [os.path.abspath(os.path.join(root, n)) for n in names if n.endswith(".gcda")]
    with tempfile.TemporaryDirectory() as folder:
        for i in range(0, len(objects), 200):
            subprocess.run(["gcov", "-j", "-b", "-p"] + objects[i : i + 200], cwd=folder, stdout=subprocess.DEVNULL, check=True)
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                with gzip.open(path) as file:
                    yield from json.load(file)["files"]
                os.remove(path)


def read(build, source):
    lines = collections.defaultdict(lambda: [0, {}])  # (file, line): count, branches
    for record in gcov(build):
        path = os.path.relpath(os.path.join(build, record["file"]), source)
        if not path.startswith("src/"):
            continue
        for line in record["lines"]:
            at = lines[path, line["line_number"]]
            at[0] += line["count"]
            for i, branch in enumerate(line["branches"]):
                at[1][i] = at[1].get(i, 0) + branch["count"]
    return lines


def folder_of(path):
    parts = path.split("/")
    return "/".join(parts[1:-1])


def read_gates(path):
    """{folder: (required percentage of lines, of branches)}"""
    gates = {}
    with open(path) as file:
        for row in file:
            if row.strip() and not row.startswith("#"):
                name, *numbers = row.split()
                gates[name] = tuple(float(n) for n in numbers)
    return gates


def main():
    build, source = sys.argv[1], os.path.join(os.path.dirname(sys.argv[0]), "..")
    lines = read(build, source)
    if len(sys.argv) > 3 and sys.argv[2] == "--lines":
        for (path, number), (count, branches) in sorted(lines.items()):
            if folder_of(path) == sys.argv[3] and (count == 0 or 0 in branches.values()):
                print(f"{path}:{number}: {'line' if count == 0 else 'branch'}")
        return 0
    sums = collections.defaultdict(lambda: [0, 0, 0, 0])
    for (path, _), (count, branches) in lines.items():
        for folder in (folder_of(path), "all"):
            s = sums[folder]
            s[0] += count > 0
            s[1] += 1
            s[2] += sum(1 for n in branches.values() if n > 0)
            s[3] += len(branches)
    gates = read_gates(os.path.join(source, "tests/coverage.txt"))
    bad = 0
    print(f"{'folder':<16} {'lines':>7} {'needed':>6} {'branches':>9} {'needed':>6}")
    for folder in sorted(set(sums) | set(gates)):
        s, least = sums[folder], gates.get(folder, (0, 0))
        got = 100 * s[0] / max(s[1], 1), 100 * s[2] / max(s[3], 1)
        is_less = got[0] < least[0] or got[1] < least[1]
        bad += is_less
        print(f"{folder:<16} {got[0]:7.2f} {least[0]:6.1f} {got[1]:9.2f} {least[1]:6.1f}{'  BELOW' if is_less else ''}")
    return bad > 0


sys.exit(main())
