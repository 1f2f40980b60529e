#!/usr/bin/env python3
# mutants.py BUILD [--n N] [--seed S] [--jobs J] [--log FILE] [--again] [--at FILE:LINE] [MODULE...]: changes one place of a source file at a
# time (a mutant), compiles that file, links it with tests of its module, and runs them until one fails. It prints how many mutants of
# each module the tests killed and lists the mutants that survived. Without MODULE, it takes all modules. N is the number of mutants per
# module. BUILD is a configured release build. The exit code is 1 if the tests killed less than 95%.
#
# A test runs for a mutant only if it executes the mutant's lines. gcov finds these tests: each test runs once with the files of all modules
# compiled for coverage. BUILD/mutants/coverage.json keeps the lines of a test until its program changes.
#
# A mutant that no test kills is compiled again with sanitizers, as in CI, and short tests run again.
#
# A mutant is left out if it does not compile, if its object file equals the original's, or if tests/mutants.txt lists it as
# equivalent. A test that takes five times the processor time, or too much memory, has failed. Results are
# appended to the log, and mutants that are in the log are not run again. Headers are not changed.
#
# mutants.py BUILD --proof: changes the functions of tools/prove/parts.txt, N places in all, and runs tools/prove.sh on the changed
# function. The proof must fail. It prints the mutants that are still proved, and their number for each function. Delete
# BUILD/mutants/proofs.tsv after a change of a contract, or use --again.
import argparse
import concurrent.futures
import glob
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

# module: names of the tests, as a regular expression, in addition to tests/unit/FOLDER
MODULES = {
    "core": "prop_graph|prop_ops|prop_grad",
    "alloc": "prop_alloc|prop_alloc_rival|prop_budget_graph",
    "sched": "prop_sched.*",
    "gguf": "",
    "record": "test_alloc.*|test_sched.*|prop_sched|prop_alloc",
    "backend": "test_sched|test_sched_gone|test_sched_fault|test_graph_threads",
    "plan/solve": "prop_plan.*|prop_proof",
    "base": "test_plan_io|test_core_edge|test_gguf_edge|test_sched_edge|test_registry_log",
}
GOAL = 95
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
TYPE_ERRORS = ["-Werror=incompatible-pointer-types", "-Werror=int-conversion", "-Werror=discarded-qualifiers"]
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
    def __init__(self, path, text, kind, start, end, new, body_line):
        self.path, self.kind, self.start, self.end, self.new = path, kind, start, end, new
        self.line = text.count("\n", 0, start) + 1
        self.last_line = text.count("\n", 0, end) + 1
        self.body_line = body_line  # first line of the function's body
        self.place = ""  # after the path in the key, if the file has equal mutants before this one
        line_start = text.rfind("\n", 0, start) + 1
        one_line = lambda text: re.sub(r"\s*\n\s*", " ", text.strip())
        self.before = one_line(text[line_start : text.index("\n", end)])
        self.after = one_line(text[line_start:start] + new + text[end : text.index("\n", end)])
        self.text = text[:start] + new + text[end:]

    def key(self):
        return "%s%s\t%s\t%s" % (self.path, self.place, self.before, self.after)

    def __str__(self):
        return "%s:%d: %s\n    - %s\n    + %s" % (self.path, self.line, self.kind, self.before, self.after)


def mutants_of(path):
    with open(path) as file:
        text = file.read()
    code = code_only(text)
    result = []
    for start, end in bodies(code):
        body_line = text.count("\n", 0, start) + 1
        for kind, a, b, new in changes_in(code[start:end], text[start:end]):
            line = text[text.rfind("\n", 0, start + a) + 1 : text.find("\n", start + a)]
            if "BERTH_ASSERT" not in line and "BERTH_LIKELY(i < n_fetched)" not in line:
                result.append(Mutant(path, text, kind, start + a, start + b, new, body_line))
    n_of = {}
    for m in sorted(result, key=lambda m: m.start):
        n_of[m.key()] = n = n_of.get(m.key(), 0) + 1
        if n > 1:
            m.place = ":%d" % n
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
    """{key: reason} of tests/mutants.txt."""
    listed = {}
    with open("tests/mutants.txt") as file:
        for row in file:
            if row.strip() and not row.startswith("#"):
                *key, reason = row.rstrip("\n").split("\t")
                listed["\t".join(key)] = reason
    return listed


# ---- compiling, linking and running ----


def run(command, env, cwd, seconds, memory=MEMORY):
    """Returns whether the program ended with 0 within these seconds of processor time. Waiting may take longer on a busy machine."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    p = subprocess.Popen(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=limit, start_new_session=True)
    try:
        return p.wait(timeout=60 * seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        return False


class Build:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.scratch = os.path.join(self.folder, "mutants")
        # Tests run in a folder of links to the sources, so that files that a mutant writes do not get between them.
        self.cwd = os.path.join(self.scratch, "sources")
        shutil.rmtree(self.cwd, ignore_errors=True)
        os.makedirs(self.cwd)
        for name in os.listdir("."):
            if not name.startswith("."):
                os.symlink(os.path.abspath(name), os.path.join(self.cwd, name))
        with open(os.path.join(folder, "compile_commands.json")) as file:
            self.commands = {}
            for entry in json.load(file):
                path = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
                if "berth-internal" in entry["command"] or path not in self.commands:
                    self.commands[path] = entry
        shown = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, check=True)
        self.tests = {t["name"]: t for t in json.loads(shown.stdout)["tests"]}
        self.links = {}
        self.killers = {}
        self.coverage = {}
        self.coverage_path = os.path.join(self.scratch, "coverage.json")
        if os.path.exists(self.coverage_path):
            with open(self.coverage_path) as file:
                self.coverage = json.load(file)

    def compile(self, path, text, out, options=()):
        """Compiles the text as the file `path`, or the file itself if the text is None. The text is read from stdin, so that the object does not depend on a path."""
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
        if text is None:
            with open(full) as file:
                text = file.read()
        p = subprocess.run(
            command + [*TYPE_ERRORS, *options, "-I", os.path.dirname(full), "-x", "c", "-", "-o", out], cwd=self.commands[path]["directory"],
            input='#line 1 "%s"\n%s' % (full, text), text=True, capture_output=True)
        return p.returncode == 0

    def link(self, test, objects, out, options=()):
        if test not in self.links:
            p = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "tests/" + test], capture_output=True, text=True)
            words = shlex.split(p.stdout.strip().splitlines()[-1])
            self.links[test] = words[words.index("&&") + 1 : len(words) - 2]
        words = list(self.links[test])
        words[words.index("-o") + 1] = out
        at = next(i for i, w in enumerate(words) if w.endswith("libberth-internal.a"))
        words[at:at] = objects
        if shutil.which("ld.lld"):
            words.append("-fuse-ld=lld")  # takes half of the time
        p = subprocess.run(words + list(options), cwd=self.folder, capture_output=True, text=True)
        return p.returncode == 0

    def passes(self, test, obj, program, options=()):
        """Whether the test passes, linked with the object."""
        if not self.link(test, [obj], program, options):
            return False
        env = self.env(test)
        if not options:
            return run([program], env, self.cwd, max(10, 5 * self.time(test)))
        # A sanitizer reserves much address space.
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":hard_rss_limit_mb=%d" % (MEMORY >> 20)
        return run([program], env, self.cwd, max(20, 20 * self.time(test)), resource.RLIM_INFINITY)

    def env(self, test):
        env = dict(os.environ)
        for p in self.tests[test].get("properties", []):
            if p["name"] == "ENVIRONMENT":
                env.update(v.split("=", 1) for v in p["value"])
        return env

    def time(self, test):
        return self.coverage[test]["seconds"]

    def runs_lines(self, test, m):
        """Whether the test executes one of the mutant's lines, or the last line before them that gcov counts."""
        lines = self.coverage[test]["lines"]
        if lines is None:
            return True
        executed, counted = set(lines.get(m.path, [])), self.coverage["counted"].get(m.path, [])
        inside = [i for i in counted if m.line <= i <= m.last_line]
        before = [i for i in counted if m.body_line <= i < m.line]
        return any(i in executed for i in inside or before[-1:]) or not inside and not before

    def lines_of(self, folder, names):
        """Pairs of a source file and its lines, with counts, of the coverage objects `names`."""
        command = ["gcov", "--json-format", "--stdout", *[name + ".gcda" for name in names]]
        p = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        for row in p.stdout.splitlines():
            for file in json.loads(row)["files"]:
                yield os.path.relpath(file["file"]), file["lines"]

    def coverage_objects(self, folder, paths):
        """Compiles the files for coverage if the libraries have changed, and returns the objects."""
        objects = [os.path.join(folder, path.replace("/", "-")[:-2] + ".o") for path in paths]
        key = [os.stat(glob.glob(self.folder + "/**/libberth-internal.a", recursive=True)[0]).st_mtime_ns, *paths]
        if self.coverage.get("objects") == key and all(map(os.path.exists, objects)):
            return objects
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.coverage["counted"] = {}
        for path, obj in zip(paths, objects):
            if not self.compile(path, None, obj, ["-O0", "--coverage", "-fprofile-update=atomic"]):
                sys.exit("%s does not compile" % path)
        for path, lines in self.lines_of(folder, [os.path.basename(obj)[:-2] for obj in objects]):
            if path in paths:
                self.coverage["counted"][path] = sorted({i["line_number"] for i in lines})
        self.coverage["objects"] = key
        return objects

    def gather(self, tests, paths):
        """Finds the seconds and the lines of each test, if its program has changed."""
        programs = {test: os.path.join(self.folder, "tests", test) for test in tests}
        keys = {test: os.stat(programs[test]).st_mtime_ns for test in tests}
        tests = [t for t in tests if t not in self.coverage or self.coverage[t]["key"] != keys[t]]
        if not tests:
            return
        folder = os.path.join(self.scratch, "coverage")
        objects = self.coverage_objects(folder, paths)
        # A program that ends by abort or _exit writes its counts too.
        at_end = os.path.join(folder, "end.c")
        with open(at_end, "w") as file:
            file.write("void __gcov_dump(void); void __real_abort(void); void __real__exit(int);\n"
                "void __wrap_abort(void) { __gcov_dump(); __real_abort(); }\n"
                "void __wrap__exit(int code) { __gcov_dump(); __real__exit(code); }\n")
        for test in tests:
            start = resource.getrusage(resource.RUSAGE_CHILDREN)
            if not run([programs[test]], self.env(test), self.cwd, 300):
                sys.exit("%s fails without a mutant" % test)
            end = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
            here = os.path.join(folder, test)
            shutil.rmtree(here, ignore_errors=True)
            os.makedirs(here)
            out = os.path.join(here, "test")
            if not self.link(test, objects + [at_end], out, ["--coverage", "-Wl,--wrap=abort,--wrap=_exit"]):
                sys.exit("%s cannot be linked for coverage" % test)
            env = dict(self.env(test), GCOV_PREFIX=here, GCOV_PREFIX_STRIP="99")
            lines = None  # the test runs for all mutants
            if run([out], env, self.cwd, 600):
                lines = {}
                names = [os.path.basename(obj)[:-2] for obj in objects]
                names = [name for name in names if os.path.exists(os.path.join(here, name + ".gcda"))]
                for name in names:
                    os.symlink(os.path.join(folder, name + ".gcno"), os.path.join(here, name + ".gcno"))
                for path, found in self.lines_of(here, names):
                    if path in paths:
                        lines[path] = sorted({i["line_number"] for i in found if i["count"] > 0})
            shutil.rmtree(here)
            self.coverage[test] = {"key": keys[test], "seconds": seconds, "lines": lines}
            with open(self.coverage_path, "w") as file:
                json.dump(self.coverage, file)


def tests_of(build, module):
    names = [os.path.basename(p)[:-2] for p in glob.glob("tests/unit/%s/*.c" % module.split("/")[0])]
    names += [t for t in build.tests if MODULES[module] and re.fullmatch(MODULES[module], t)]
    names = sorted({n for n in names if n in build.tests and not n.endswith("_foreign") and not n.startswith("long_")})
    return names


def judge(build, tests, mutant, originals):
    """Returns how the mutant ended: "no compile", "same", "survived", "not executed", or the name of the test that failed."""
    tests = [t for t in tests if build.runs_lines(t, mutant)]
    if not tests:
        return "not executed"
    with tempfile.TemporaryDirectory(prefix="mutant") as folder:
        obj, program = os.path.join(folder, "mutant.o"), os.path.join(folder, "test")
        if not build.compile(mutant.path, mutant.text, obj):
            return "no compile"
        with open(obj, "rb") as file:
            if file.read() == originals[mutant.path]:
                return "same"
        # Tests that killed a mutant of this file run first, then short tests.
        last = build.killers.setdefault(mutant.path, [])
        tests = [t for t in last if t in tests] + [t for t in tests if t not in last]
        for test in tests:
            if not build.passes(test, obj, program):
                if test in last:
                    last.remove(test)
                last.insert(0, test)
                return test
        sound = os.path.join(folder, "original.o")
        if not build.compile(mutant.path, mutant.text, obj, SANITIZE) or not build.compile(mutant.path, None, sound, SANITIZE):
            return "survived"
        for test in [t for t in tests if build.time(t) < 5]:
            # Some tests replace the allocator, so the sanitizer fails without the mutant too.
            if not build.passes(test, obj, program, SANITIZE) and build.passes(test, sound, program, SANITIZE):
                return test
    return "survived"


def original(build, path):
    with tempfile.TemporaryDirectory(prefix="mutant") as folder:
        obj = os.path.join(folder, "original.o")
        if not build.compile(path, None, obj):
            sys.exit("%s does not compile" % path)
        with open(obj, "rb") as file:
            return file.read()


def paths_of(build, module):
    return sorted(p for p in glob.glob("src/%s/*.c" % module) if p in build.commands)


def log_append(path, log, key, end):
    log[key] = end
    with open(path, "a") as file:
        file.write(key + "\t" + end + "\n")


def run_module(build, module, args, listed, log):
    paths = paths_of(build, module)
    rng = random.Random("%s %s" % (args.seed, module))
    if args.at:
        chosen = [m for path in paths for m in mutants_of(path) if "%s:%d" % (path, m.line) in args.at]
    else:
        chosen = sample(paths, args.n, rng)
    tests = sorted(tests_of(build, module), key=build.time)
    originals = {path: original(build, path) for path in {m.path for m in chosen}}
    counts = {"no compile": 0, "same": 0, "equivalent": 0, "killed": 0, "survived": 0, "not executed": 0}
    survivors = []

    def one(m):
        if m.key() in listed:
            return m, "equivalent"
        if m.key() in log and (log[m.key()] not in ("survived", "not executed") or not args.again):
            return m, log[m.key()]
        return m, judge(build, tests, m, originals)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for m, end in pool.map(one, chosen):
            if log.get(m.key()) != end:
                log_append(args.log, log, m.key(), end)
            if end in counts:
                counts[end] += 1
            else:
                counts["killed"] += 1
            if end in ("survived", "not executed"):
                survivors.append((m, end))
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


def judge_proof(part, name, mutant):
    """Returns how the mutant ended: "no compile", "failed" (the proof), or "survived"."""
    with tempfile.TemporaryDirectory(prefix="mutant") as folder:
        path = os.path.join(folder, mutant.path)
        os.makedirs(os.path.dirname(path))
        with open(path, "w") as file:
            file.write(mutant.text)
        code = path if mutant.path == part else part
        compiler = ["cc", "-std=c11", "-D_GNU_SOURCE", "-fsyntax-only", "-I" + folder + "/src", "-Isrc", "-Iinclude", *TYPE_ERRORS, code]
        if subprocess.run(compiler, capture_output=True).returncode != 0:
            return "no compile"
        p = subprocess.run(
            ["tools/prove.sh", "--part", part, "--function", name, "--overlay", folder], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, SECONDS_PER_GOAL="5", JOBS="1"))
        return "failed" if p.returncode != 0 else "survived"


def run_proof(args, listed, log):
    found = proof_mutants()
    random.Random(args.seed).shuffle(found)
    counts = {}

    def one(row):
        part, name, m = row
        if m.key() in listed:
            return name, m, "equivalent"
        key = name + "\t" + m.key()
        if key not in log or (log[key] == "survived" and args.again):
            log_append(args.log, log, key, judge_proof(part, name, m))
        return name, m, log[key]

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, m, end in pool.map(one, found[: args.n]):
            counts.setdefault(name, []).append(end)
            if end == "survived":
                print("still proved: %s: %s" % (name, m), flush=True)
    row = "%-28s %8s %8s %12s %8s %8s"
    print(row % ("function", "mutants", "invalid", "equivalent", "failed", "proved"))
    counts["all"] = [end for ends in counts.values() for end in ends]
    for name, ends in counts.items():
        print(row % (name, len(ends), *(ends.count(end) for end in ("no compile", "equivalent", "failed", "survived"))))
    sys.exit("survived" in counts["all"])


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
    os.makedirs(os.path.join(args.build, "mutants"), exist_ok=True)
    args.log = args.log or os.path.join(args.build, "mutants", "proofs.tsv" if args.proof else "log.tsv")
    listed = equivalent_list()
    log = {}
    if os.path.exists(args.log):
        with open(args.log) as file:
            for row in file:
                *key, end = row.rstrip("\n").split("\t")
                log["\t".join(key)] = end
    if args.proof:
        run_proof(args, listed, log)
    build = Build(args.build)
    modules = args.modules or list(MODULES)
    tests = sorted({t for m in modules for t in tests_of(build, m)})
    subprocess.run(["cmake", "--build", args.build, "-j", str(args.jobs), "--target", *tests], stdout=subprocess.DEVNULL, check=True)
    build.gather(tests, sorted({p for m in MODULES for p in paths_of(build, m)}))
    killed = total = 0
    row = "%-12s %8s %8s %12s %8s %8s %8s"
    print(row % ("module", "mutants", "invalid", "equivalent", "killed", "alive", "killed"), flush=True)
    for module in modules:
        counts, survivors = run_module(build, module, args, listed, log)
        alive = len(survivors)
        n = counts["killed"] + alive
        killed, total = killed + counts["killed"], total + n
        print(row % (module, sum(counts.values()), counts["no compile"], counts["same"] + counts["equivalent"], counts["killed"],
            alive, "%.1f%%" % (100 * counts["killed"] / n if n else 100)), flush=True)
        for m, end in survivors:
            print("%s: %s" % (end, m), flush=True)
    print("all: %d of %d killed, %.1f%%" % (killed, total, 100 * killed / total if total else 100))
    sys.exit(killed * 100 < total * GOAL)


main()
