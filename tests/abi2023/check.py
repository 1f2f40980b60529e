#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares include/2023 with the tables of ggml's headers of 2023-11-17, 2023-11-30 and 2024-02-10.

usage: check.py INCLUDE_DIR [--cc CC] [--cxx CXX] [--link FILE ...] [--date 202311] [--keep DIR]

Writes a C file and a C++ file per date. They assign the address of each function to a pointer with the prototype of that date, take
the address of each struct field with its type of that date, and compare each constant with its value of that date. The files must
compile without warnings, and link and run with the libraries of --link. The headers must compile in every order, together with the
current ggml-cpu.h, gguf.h and berth.h. exceptions.tsv lists the names that are refused and those with another type or value. A use of a
refused name must fail to compile with a message that contains the name. All other names are called served.

The tables are in abi/2023 of the data directory (BERTH_DATA, default ../shared). Without them, only refused names are checked.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

DATES = [("2023-11", 202311), ("2023-12", 202312), ("2024-02", 202402), ("2023-12", None)]  # None: BERTH_2023 is not set
HEADERS = ["ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-backend-impl.h", "ggml-impl.h"]
FLAGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]
SKIPPED = 77


def read_table(path):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")][1:]


def read_exceptions(path):
    """Returns {(kind, name): exception}, where kind is function, struct, field, constant, enum or value."""
    return {(row[0], row[1]): row[2] for row in read_table(path)}


class Check:
    """The lines of a generated source. Each line checks one name."""

    def __init__(self, date):
        self.lines = ['#include "ggml/%s"' % header for header in HEADERS]
        self.names = {}  # line number -> name
        self.kinds = {}  # kind -> count
        self.date = date

    def add(self, kind, name, line):
        self.lines.append(line)
        self.names[len(self.lines)] = name
        self.kinds[kind] = self.kinds.get(kind, 0) + 1


def field_lines(declaration):
    """Returns [(field, declaration of a pointer p to it)]. 'int ith, nth' declares two fields."""
    match = re.match(r"^(.*?\W)(\w+), (\w+)$", declaration)
    if match and "(" not in declaration:
        kind, first, second = match.groups()
        return [(first, "%s *p" % kind), (second, "%s *p" % kind)]
    match = re.search(r"\(\*(?:GGML_CALL )?(\w+)\)", declaration) or re.search(r"(\w+)\s*(?:\[.*\])?$", declaration)
    field = match.group(1)
    at = match.start(1)
    rest = declaration[at + len(field):]
    return [(field, declaration[:at] + ("(*p)" if rest.startswith("[") else "*p") + rest)]


def add_functions(served, rows, exceptions):
    for _header, name, returns, arguments in rows:
        if exceptions.get(("function", name)) != "refused":
            served.add("functions", name, "%s (*const p_%s)(%s) = &%s;" % (returns, name, arguments, name))


def add_fields(served, rows, exceptions):
    n = 0
    for _header, struct, declaration in rows:
        if exceptions.get(("struct", struct)) == "refused":
            continue
        for field, pointer in field_lines(declaration):
            name = "%s.%s" % (struct, field)
            what = exceptions.get(("field", name))
            n += 1
            if what == "refused":
                continue
            if what == "other type":
                line = "void f_%d(struct %s *s); void f_%d(struct %s *s) { (void) s->%s; }" % (n, struct, n, struct, field)
            else:
                line = "void f_%d(struct %s *s); void f_%d(struct %s *s) { %s = &s->%s; (void) p; }" % (
                    n, struct, n, struct, pointer, field)
            served.add("fields", name, line)


def build_refused(date, exceptions):
    """Returns lines that use every refused name. This requires no tables."""
    check = Check(date)
    for (kind, name), what in exceptions.items():
        if what == "refused" and kind == "function":
            check.add("functions", name, "void u_%s(void); void u_%s(void) { (void) &%s; }" % (name, name, name))
        if what == "refused" and kind == "field":
            struct, field = name.split(".")
            check.add("fields", name, "void u_%s_%s(struct %s *s); void u_%s_%s(struct %s *s) { (void) s->%s; }" % (
                struct, field, struct, struct, field, struct, field))
    return check


def add_values(served, rows, exceptions):
    values = {}
    for name, value in rows:
        values.setdefault(name, []).append(value)
    for name, allowed in values.items():
        if exceptions.get(("value", name)) == "other value":
            served.add("values", name, "BERTH_CHECK((int64_t) (%s) == (int64_t) (%s), \"\");" % (name, name))
        else:
            any_of = " || ".join("(int64_t) (%s) == (int64_t) (%s)" % (name, value) for value in allowed)
            served.add("values", name, "BERTH_CHECK(%s, \"\");" % any_of)


def build_served(folder, date, exceptions):
    served = Check(date)
    served.lines += ["#ifdef __cplusplus", "#define BERTH_CHECK static_assert", "extern \"C\" {", "#else",
                     "#define BERTH_CHECK _Static_assert", "#endif"]
    functions = read_table(os.path.join(folder, "functions.tsv"))
    fields = read_table(os.path.join(folder, "structs.tsv"))
    constants = [row for row in read_table(os.path.join(folder, "constants.tsv")) if row[1] != "GGML_RESTRICT"]
    enums = read_table(os.path.join(folder, "enums.tsv"))
    for _header, enum, name, _value in enums:
        if exceptions.get(("enum", enum)) == "other values":
            exceptions[("value", name)] = "other value"
    add_functions(served, functions, exceptions)
    add_fields(served, fields, exceptions)
    add_values(served, [row[1:] for row in constants] + [row[2:] for row in enums], exceptions)
    served.lines += ["typedef void (*any_function)(void);", "int main(void) {", "any_function all[] = {"]
    served.lines += ["(any_function) p_%s," % row[1] for row in functions if exceptions.get(("function", row[1])) != "refused"]
    served.lines += ["}; size_t n = 0;", "for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) { n += all[i] != NULL; }",
                     "printf(\"%zu\\n\", n); return n == sizeof all / sizeof all[0] ? 0 : 1; }"]
    served.lines += ["#ifdef __cplusplus", "}", "#endif"]
    return served


def compile_lines(check, language, options, workdir, output):
    """Returns (status, {line number: [messages]}, all output of the compiler)."""
    suffix, compiler, standard = {"C": (".c", options.cc, "c11"), "C++": (".cpp", options.cxx, "c++11")}[language]
    source = os.path.join(workdir, output + suffix)
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(check.lines) + "\n")
    include = options.include
    date = [] if check.date is None else ["-DBERTH_2023=%d" % check.date]
    command = [compiler, "-std=" + standard, *FLAGS, *date, "-I" + os.path.join(include, "2023"), "-I" + include,
               "-fmax-errors=0" if "clang" not in compiler else "-ferror-limit=0", "-c", source,
               "-o", os.path.join(workdir, output + suffix + ".o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    messages = {}
    for match in re.finditer(re.escape(source) + r":(\d+):\d+: error: (.*)", text):
        messages.setdefault(int(match.group(1)), []).append(match.group(2))
    return done.returncode, messages, text


def check_served(check, language, options, workdir, output):
    status, messages, text = compile_lines(check, language, options, workdir, output)
    bad = sorted({check.names[line] for line in messages if line in check.names})
    if status != 0:
        for line in sorted(messages):
            print("    %s: %s" % (check.names.get(line, check.lines[line - 1]), messages[line][0]))
        if not messages:
            print(text)
        return bad or ["(the headers)"]
    if not options.link:
        return []
    suffix = {"C": ".c", "C++": ".cpp"}[language]
    program = os.path.join(workdir, output + suffix + ".exe")
    rpath = ["-Wl,-rpath," + folder for folder in sorted({os.path.dirname(file) for file in options.link})]
    done = subprocess.run([options.cxx if language == "C++" else options.cc, program[:-4] + ".o", "-o", program, *options.link, *rpath,
                           "-lm", "-lpthread"], capture_output=True, text=True, check=False)
    missing = sorted(set(re.findall(r"undefined reference to `(\w+)'", done.stderr)))
    if done.returncode != 0:
        print(done.stderr if not missing else "    undefined: " + " ".join(missing))
        return missing or ["(linking)"]
    return [] if subprocess.run([program], stdout=subprocess.DEVNULL, check=False).returncode == 0 else ["(running)"]


def check_refused(check, language, options, workdir, output):
    """Refused names must not compile, and the message must contain the name and a replacement."""
    _status, _messages, text = compile_lines(check, language, options, workdir, output)
    messages = re.findall(r" error: (.* unavailable: .*)", text)
    bad = []
    for name in check.names.values():
        word = name.split(".")[-1]
        if not any(re.search(r"\b%s\b.*: use " % word, message) for message in messages):
            print("    %s is not refused with a message" % name)
            bad.append(name)
    return bad


def check_orders(date, language, options, workdir):
    """Each header may be included first, including the current headers that programs add."""
    bad = []
    for first in HEADERS + ["ggml-cpu.h", "gguf.h", "berth.h"]:
        check = Check(date)
        check.lines = ['#include "%s"' % first, '#include "ggml-cpu.h"', '#include "ggml-backend-impl.h"', '#include "berth.h"',
                       "typedef int not_empty;"]
        status, _messages, text = compile_lines(check, language, options, workdir, "order-%s" % date)
        if status != 0:
            print(text)
            bad.append("(%s first)" % first)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("include")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--link", nargs="*", default=[])
    parser.add_argument("--date", type=int, default=0)
    parser.add_argument("--keep", default="")
    options = parser.parse_args()
    tables = os.path.join(os.environ.get("BERTH_DATA", "../shared"), "abi", "2023")
    has_tables = os.path.isdir(tables)
    languages = ["C"]
    if shutil.which(options.cxx):
        languages.append("C++")
    else:
        print("abi2023: no C++ compiler found, checking C only")
    workdir = options.keep or tempfile.mkdtemp()
    os.makedirs(workdir, exist_ok=True)
    n_bad = 0
    for folder, date in DATES:
        if options.date not in (0, date):
            continue
        for language in languages:
            exceptions = read_exceptions(os.path.join(os.path.dirname(os.path.abspath(__file__)), "exceptions.tsv"))
            refused = build_refused(date, exceptions)
            bad = check_orders(date, language, options, workdir)
            bad += check_refused(refused, language, options, workdir, "refused-%s" % date)
            text = "%d functions and %d fields refused" % (refused.kinds["functions"], refused.kinds["fields"])
            if has_tables:
                served = build_served(os.path.join(tables, folder), date, exceptions)
                bad += check_served(served, language, options, workdir, "served-%s" % date)
                text += ", %d functions, %d fields and %d values served" % (
                    served.kinds["functions"], served.kinds["fields"], served.kinds["values"])
            n_bad += len(bad)
            print("%s%s %s: %s; %d wrong%s" % (
                folder, "" if date else " (default)", language, text, len(bad), ": " + " ".join(bad) if bad else ""))
    if not options.keep:
        shutil.rmtree(workdir)
    if n_bad > 0:
        return 1
    if not has_tables:
        print("abi2023: SKIPPED the check of served names: %s does not exist (set BERTH_DATA)" % tables)
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
