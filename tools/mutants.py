#!/usr/bin/env python3
# mutants.py BUILD [--n N] [--seed S] [--jobs J] [--log FILE] [--again] [--at FILE:LINE] [MODULE...]: changes one place of a source file at a
# time (a mutant), compiles that file, links it with the tests of its module, and runs them until one fails. It prints how many
# mutants of each module the tests killed and lists the mutants that survived. Without MODULE, it takes all modules. N is the number
# of mutants per module. BUILD is a complete release build. The exit code is 1 if the tests killed less than 95%.
#
# A mutant is left out if it does not compile, if its object file equals the original's, or if tests/mutants.txt lists it as
# equivalent. A test that runs five times longer than without the mutant, or takes too much memory, has failed. Results are
# appended to the log, and mutants that are in the log are not run again. Headers are not changed.
#
# mutants.py BUILD --proof: changes the functions of tools/prove/parts.txt, N places in all, and runs tools/prove.sh on the changed
# function. The proof must fail. It prints the mutants that are still proved.
import argparse
import concurrent.futures
import glob
import json
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time

# module: names of the tests, as a regular expression, in addition to tests/unit/FOLDER
MODULES = {
    "core": "prop_graph|prop_ops|prop_grad",
    "alloc": "prop_alloc|prop_alloc_rival|prop_budget_graph",
    "sched": "prop_sched.*",
    "gguf": "",
    "record": "test_alloc.*|test_sched.*|prop_sched|prop_alloc",
    "backend": "",
    "plan/solve": "prop_plan.*",
    "base": "test_plan_io|test_core_edge|test_gguf_edge|test_sched_edge",
}
GOAL = 95
MEMORY = 8 << 30

WORD = r"[A-Za-z_][A-Za-z_0-9]*"
ARGUMENT = r"[^(),]+"

# ---- places of a source file that can be changed ----


def code_only(text):
    """The text, with comments, texts and directives replaced by blanks of the same length."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group())
    text = re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)
    return re.sub(r"^[ ]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def bodies(code):
    """The ranges of the bodies of functions."""
    for m in re.finditer(r"^(?:\w[^;={}]*)\)[^;={}()]*\{\n(.*?)^\}", code, flags=re.M | re.S):
        yield m.start(1), m.end(1)


COMPARE = {" < ": [" <= "], " <= ": [" < "], " > ": [" >= "], " >= ": [" > "], " == ": [" != "], " != ": [" == "]}


def changes_in(code, text):
    """Pairs of a change's name, its range and the new text."""
    for old, news in COMPARE.items():
        for m in re.finditer(re.escape(old), code):
            for new in news:
                yield "compare", m.start(), m.end(), new
    for old, new in ((" && ", " || "), (" || ", " && ")):
        for m in re.finditer(re.escape(old), code):
            yield "logic", m.start(), m.end(), new
    for m in re.finditer(r"(?<=[\w\])]) ([-+]) (?=[\w(&])", code):
        yield "arithmetic", m.start(1), m.end(1), "-" if m.group(1) == "+" else "+"
    for m in re.finditer(r" [-+] 1\b", code):
        yield "off by one", m.start(), m.end(), ""
    for m in re.finditer(r"(?<![\w!])!(?=%s)" % WORD, code):
        yield "negation", m.start(), m.end(), ""
    for m in re.finditer(r"\bif \((.*)\) \{$", code, flags=re.M):
        if m.group(1).count("(") == m.group(1).count(")"):
            yield "dropped branch", m.start(1), m.end(1), "(" + text[m.start(1) : m.end(1)] + ") && 0"
    for m in re.finditer(r"\breturn (true|false|-1|0|NULL);", code):
        new = {"true": "false", "false": "true", "-1": "0", "0": "1"}.get(m.group(1))
        if new is not None:
            yield "return value", m.start(1), m.end(1), new
    for m in re.finditer(r"(__builtin_\w+_overflow|\bberth_(?:add|mul|pad)(?:_i64)?_ok)\([^()]*(?:\([^()]*\)[^()]*)*\)", code):
        value = "1" if m.group(1).startswith("berth") else "0"
        yield "ignored overflow", m.start(), m.end(), "(" + text[m.start() : m.end()] + ", " + value + ")"
    for m in re.finditer(r"\b(?!if\b|for\b|while\b|return\b|sizeof\b)(%s)\((%s), (%s)(?=[,)])" % (WORD, ARGUMENT, ARGUMENT), code):
        if m.group(2) != m.group(3):
            yield "swapped arguments", m.start(2), m.end(3), text[m.start(3) : m.end(3)] + ", " + text[m.start(2) : m.end(2)]
    for m in re.finditer(r"(?<=[;{}]\n)[ ]+(?!return|break|continue|goto|case|default|else)(%s[^;{}\n]*;)$" % WORD, code, flags=re.M):
        # A declaration has two words in front of its first sign.
        if not re.match(r"(const |struct |enum |static |unsigned )|%s \*?\w" % WORD, m.group(1)):
            yield "dropped statement", m.start(1), m.end(1), ";"


class Mutant:
    def __init__(self, path, text, kind, start, end, new):
        self.path, self.kind, self.start, self.end, self.new = path, kind, start, end, new
        self.line = text.count("\n", 0, start) + 1
        line_start = text.rfind("\n", 0, start) + 1
        self.before = text[line_start : text.index("\n", end)].strip()
        self.after = (text[line_start:start] + new + text[end : text.index("\n", end)]).strip()
        self.text = text[:start] + new + text[end:]

    def key(self):
        return "%s\t%s\t%s" % (self.path, self.before, self.after)

    def __str__(self):
        return "%s:%d: %s\n    - %s\n    + %s" % (self.path, self.line, self.kind, self.before, self.after)


def mutants_of(path):
    with open(path) as file:
        text = file.read()
    code = code_only(text)
    result = []
    for start, end in bodies(code):
        for kind, a, b, new in changes_in(code[start:end], text[start:end]):
            line = text[text.rfind("\n", 0, start + a) + 1 : text.find("\n", start + a)]
            if "BERTH_ASSERT" not in line and "BERTH_LIKELY(i < n_fetched)" not in line:
                result.append(Mutant(path, text, kind, start + a, start + b, new))
    return result


def sample(paths, n, rng):
    """n mutants of the files. Kinds with few places are chosen as often as the others."""
    kinds = {}
    for path in paths:
        for m in mutants_of(path):
            kinds.setdefault(m.kind, []).append(m)
    for found in kinds.values():
        rng.shuffle(found)
    names = sorted(kinds)
    chosen = []
    while len(chosen) < n and any(kinds.values()):
        for name in names:
            if kinds[name] and len(chosen) < n:
                chosen.append(kinds[name].pop())
    return chosen


def equivalent_list():
    """{key: reason} of tests/mutants.txt: file, line, changed line and reason, separated by tabs."""
    listed = {}
    with open("tests/mutants.txt") as file:
        for row in file:
            if row.strip() and not row.startswith("#"):
                *key, reason = row.rstrip("\n").split("\t")
                listed["\t".join(key)] = reason
    return listed


# ---- compiling, linking and running ----


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(command, env, seconds):
    """Returns whether the program ended with 0 in time."""
    p = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=limited, start_new_session=True)
    try:
        return p.wait(timeout=seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        return False


class Build:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        with open(os.path.join(folder, "compile_commands.json")) as file:
            self.commands = {}
            for entry in json.load(file):
                path = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
                if "berth-internal" in entry["command"] or path not in self.commands:
                    self.commands[path] = entry
        shown = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, check=True)
        self.tests = {t["name"]: t for t in json.loads(shown.stdout)["tests"]}
        self.links = {}
        self.times = {}
        self.times_path = os.path.join(folder, "mutants-times.json")
        if os.path.exists(self.times_path):
            with open(self.times_path) as file:
                self.times = json.load(file)
        self.killers = {}

    def compile(self, path, text, out):
        """Compiles the text as the file `path`. The text is read from stdin, so that the object does not depend on a path."""
        command = shlex.split(self.commands[path]["command"])
        while "ccache" in command[0]:
            command = command[1:]
        at = command.index("-o")
        command = [c for i, c in enumerate(command) if i not in (at, at + 1) and not c.endswith(path)]
        command = [c for c in command if not c.startswith("-M") and not c.endswith(".d")]
        if "-MT" in command:
            command.remove("-MT")
        command = [c for c in command if not c.endswith(".c.o")]
        full = os.path.abspath(path)
        p = subprocess.run(
            command + ["-w", "-I", os.path.dirname(full), "-x", "c", "-", "-o", out], cwd=self.commands[path]["directory"],
            input='#line 1 "%s"\n%s' % (full, text), text=True, capture_output=True)
        return p.returncode == 0

    def link(self, test, obj, out):
        if test not in self.links:
            p = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "tests/" + test], capture_output=True, text=True)
            words = shlex.split(p.stdout.strip().splitlines()[-1])
            self.links[test] = words[words.index("&&") + 1 : len(words) - 2]
        words = list(self.links[test])
        words[words.index("-o") + 1] = out
        at = next(i for i, w in enumerate(words) if w.endswith("libberth-internal.a"))
        words.insert(at, obj)
        p = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        return p.returncode == 0

    def env(self, test):
        env = dict(os.environ)
        for p in self.tests[test].get("properties", []):
            if p["name"] == "ENVIRONMENT":
                env.update(v.split("=", 1) for v in p["value"])
        return env

    def measure(self, test):
        if test not in self.times:
            start = time.monotonic()
            if not run([os.path.join(self.folder, "tests", test)], self.env(test), 300):
                sys.exit("%s fails without a mutant" % test)
            self.times[test] = time.monotonic() - start
            with open(self.times_path, "w") as file:
                json.dump(self.times, file)
        return self.times[test]


def tests_of(build, module):
    names = [os.path.basename(p)[:-2] for p in glob.glob("tests/unit/%s/*.c" % module.split("/")[0])]
    names += [t for t in build.tests if MODULES[module] and re.fullmatch(MODULES[module], t)]
    names = sorted({n for n in names if n in build.tests and not n.endswith("_foreign") and not n.startswith("long_")})
    return names


def judge(build, tests, mutant, originals):
    """Returns how the mutant ended: "no compile", "same", "survived", or the name of the test that failed."""
    with tempfile.TemporaryDirectory(prefix="mutant") as folder:
        obj, program = os.path.join(folder, "mutant.o"), os.path.join(folder, "test")
        if not build.compile(mutant.path, mutant.text, obj):
            return "no compile"
        with open(obj, "rb") as file:
            if file.read() == originals[mutant.path]:
                return "same"
        # Tests that killed a mutant of this file run first, then short tests.
        last = build.killers.setdefault(mutant.path, [])
        for test in last + [t for t in tests if t not in last]:
            if not build.link(test, obj, program):
                return "no compile"
            if not run([program], build.env(test), max(10, 5 * build.times[test])):
                if test in last:
                    last.remove(test)
                last.insert(0, test)
                return test
    return "survived"


def original(build, path):
    with tempfile.TemporaryDirectory(prefix="mutant") as folder:
        obj = os.path.join(folder, "original.o")
        with open(path) as file:
            if not build.compile(path, file.read(), obj):
                sys.exit("%s does not compile" % path)
        with open(obj, "rb") as file:
            return file.read()


def run_module(build, module, args, listed, log):
    paths = sorted(p for p in glob.glob("src/%s/*.c" % module) if p in build.commands)
    rng = random.Random("%s %s" % (args.seed, module))
    if args.at:
        chosen = [m for path in paths for m in mutants_of(path) if "%s:%d" % (path, m.line) in args.at]
    else:
        chosen = sample(paths, args.n, rng)
    tests = tests_of(build, module)
    for test in tests:
        build.measure(test)
    tests.sort(key=lambda t: build.times[t])
    originals = {path: original(build, path) for path in {m.path for m in chosen}}
    counts = {"no compile": 0, "same": 0, "equivalent": 0, "killed": 0, "survived": 0}
    survivors = []

    def one(m):
        if m.key() in listed:
            return m, "equivalent"
        if m.key() in log and (log[m.key()] != "survived" or not args.again):
            return m, log[m.key()]
        return m, judge(build, tests, m, originals)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for m, end in pool.map(one, chosen):
            if log.get(m.key()) != end:
                log[m.key()] = end
                with open(args.log, "a") as file:
                    file.write(m.key() + "\t" + end + "\n")
            if end in counts:
                counts[end] += 1
            else:
                counts["killed"] += 1
            if end == "survived":
                survivors.append(m)
    return counts, survivors


# ---- mutants of proven functions ----

HEADERS = ["src/base/base.h", "src/core/span.h", "src/gguf/read.h"]


def proven_functions():
    """Pairs of a row's file and a function."""
    with open("tools/prove/parts.txt") as file:
        rows = [row.split() for row in file if row.strip() and not row.startswith("#")]
    return [(row[0], name) for row in rows for name in row[1].split(",")]


def proof_mutants():
    """Triples of a row's file, a function and a mutant of this function."""
    found = []
    bodies_of = {}
    for part, name in proven_functions():
        for path in [part] + HEADERS:
            if path not in bodies_of:
                with open(path) as file:
                    text = file.read()
                bodies_of[path] = (list(bodies(code_only(text))), text, mutants_of(path))
            ranges, text, mutants = bodies_of[path]
            for start, end in ranges:
                head = text[text.rfind("\n\n", 0, start) + 1 : start].split("\n")
                if any(re.match(r"\w.*\b%s\(" % name, line) for line in head[-6:]):
                    found += [(part, name, m) for m in mutants if start <= m.start < end]
    return found


def proof_fails(part, name, mutant):
    with tempfile.TemporaryDirectory(prefix="mutant") as folder:
        path = os.path.join(folder, mutant.path)
        os.makedirs(os.path.dirname(path))
        with open(path, "w") as file:
            file.write(mutant.text)
        p = subprocess.run(
            ["tools/prove.sh", "--part", part, "--function", name, "--overlay", folder], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, SECONDS_PER_GOAL="5"))
        return p.returncode != 0


def run_proof(args, listed):
    found = proof_mutants()
    random.Random(args.seed).shuffle(found)
    failed = equivalent = 0
    proved = []
    for part, name, m in found[: args.n]:
        if m.key() in listed:
            equivalent += 1
        elif proof_fails(part, name, m):
            failed += 1
        else:
            proved.append((name, m))
            print("still proved: %s: %s" % (name, m), flush=True)
    n = failed + len(proved)
    print("%d mutants of %d functions: %d equivalent, of the others %d proofs fail" % (
        min(args.n, len(found)), len({name for _, name, _ in found}), equivalent, failed))
    sys.exit(failed != n)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("modules", nargs="*", default=[])
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--log", default="")
    parser.add_argument("--proof", action="store_true")
    parser.add_argument("--at", action="append", default=[], help="all mutants of this line instead of a sample")
    parser.add_argument("--again", action="store_true", help="run mutants that survived again")
    args = parser.parse_intermixed_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    args.log = args.log or os.path.join(args.build, "mutants.tsv")
    listed = equivalent_list()
    if args.proof:
        run_proof(args, listed)
    build = Build(args.build)
    log = {}
    if os.path.exists(args.log):
        with open(args.log) as file:
            for row in file:
                *key, end = row.rstrip("\n").split("\t")
                log["\t".join(key)] = end
    killed = total = 0
    row = "%-12s %8s %8s %12s %8s %8s %8s"
    print(row % ("module", "mutants", "invalid", "equivalent", "killed", "alive", "killed"), flush=True)
    for module in args.modules or MODULES:
        counts, survivors = run_module(build, module, args, listed, log)
        n = counts["killed"] + counts["survived"]
        killed, total = killed + counts["killed"], total + n
        print(row % (module, sum(counts.values()), counts["no compile"], counts["same"] + counts["equivalent"], counts["killed"],
            counts["survived"], "%.1f%%" % (100 * counts["killed"] / n if n else 100)), flush=True)
        for m in survivors:
            print(m, flush=True)
    print("all: %d of %d killed, %.1f%%" % (killed, total, 100 * killed / total if total else 100))
    sys.exit(killed * 100 < total * GOAL)


main()
