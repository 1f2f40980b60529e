#!/usr/bin/env python3
# check-clang.py BUILD CLANG: checks with clang, with warnings as errors, the C files that BUILD compiles and that CLANG, a build
# with clang, does not compile. Together both cover all files. Only the syntax is checked; no code is generated.
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

GCC_ONLY = {"-fschedule-insns", "-fsched-pressure"}  # clang does not know these flags, and they do not matter to the syntax


def commands(build):
    with open(os.path.join(build, "compile_commands.json")) as file:
        return {c["file"]: c for c in json.load(file) if c["file"].endswith(".c")}


def read(command):
    args = shlex.split(command["command"])
    first = next(i for i, a in enumerate(args) if a.startswith("-"))  # the words before it are the compiler and its launcher
    flags = [a for a in args[first:] if a not in GCC_ONLY]
    return subprocess.run(
        ["clang", "-fsyntax-only", "-Werror"] + flags, cwd=command["directory"], capture_output=True, text=True)


def main():
    ours, clangs = commands(sys.argv[1]), commands(sys.argv[2])
    left = [c for path, c in sorted(ours.items()) if path not in clangs]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for result in pool.map(read, left):
            if result.returncode != 0:
                print(result.stderr, end="")
                bad += 1
    print(f"clang: checked {len(left)} files that the clang build leaves out, {bad} with warnings")
    return bad > 0


sys.exit(main())
