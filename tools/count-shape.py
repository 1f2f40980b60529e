#!/usr/bin/env python3
"""count-shape.py [--list KIND] [--by-folder] [DIR...]: counts constructs that the style rules avoid, in the C and CUDA files of DIR (src).

KIND is one of the printed names; --list prints each place as FILE:LINE. There is no limit for a count: compare the counts of two trees.
"""
import os
import re
import sys

KINDS = {
    "self-assign": "x = c ? y : x",
    "nested-conditional": "statements with a conditional operator inside another",
    "min-max": "hand-written minima and maxima",
    "and-chain": "ok = ok && ..., and status == GGML_STATUS_SUCCESS && ...",
    "one-word-static": "static functions whose name is one word",
    "tiny-file": "files of 20 lines or fewer",
    "many-parameters": "own functions with 7 parameters or more",
}
TOKEN = re.compile(r"->|<=|>=|==|!=|&&|\|\||<<|>>|[A-Za-z_]\w*|[\d.]\w*|\S")
# A kernel's or a constructor's signature is part of an ABI or of a table of kernels.
FOREIGN = re.compile(r"^(ggml_|gguf_|quantize_|dequantize_|LLVMFuzzer|main$)")


def stripped(text):
    """The text without comments, strings and preprocessor lines; line numbers stay the same."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    text = re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', lambda m: '"' + " " * (len(m.group(0)) - 2) + '"', text)
    text = re.sub(r"'(?:\\.|[^'\\\n])+'", lambda m: "0" + " " * (len(m.group(0)) - 1), text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def statements(text):
    """(line, tokens) of each sequence of tokens between ; { and }."""
    line, start, tokens = 1, 1, []
    at = 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        token = match.group(0)
        if token in ";{}":
            if tokens:
                yield start, tokens
            tokens = []
            continue
        if not tokens:
            start = line
        tokens.append(token)


def conditionals(tokens):
    """(condition, then, otherwise, is_nested) of each conditional operator, by the bracket and comma that enclose it."""
    def walk(part):
        depth, marks = 0, []
        for i, token in enumerate(part):
            if token in "([":
                depth += 1
            elif token in ")]":
                depth -= 1
            elif depth == 0 and token == "?":
                marks.append(i)
        if marks:
            first = marks[0]
            depth, level, end = 0, 0, len(part)
            for i in range(first + 1, len(part)):
                if part[i] in "([":
                    depth += 1
                elif part[i] in ")]":
                    depth -= 1
                elif depth == 0 and part[i] == "?":
                    level += 1
                elif depth == 0 and part[i] == ":":
                    if level == 0:
                        end = i
                        break
                    level -= 1
            yield part[:first], part[first + 1:end], part[end + 1:], "?" in part[:first] + part[first + 1:]
        # the items inside brackets
        i = 0
        while i < len(part):
            if part[i] in "([":
                depth, j, item = 1, i + 1, []
                while j < len(part) and depth:
                    if part[j] in "([":
                        depth += 1
                    elif part[j] in ")]":
                        depth -= 1
                    if depth == 1 and part[j] == "," or depth == 0:
                        yield from walk(item)
                        item = []
                    else:
                        item.append(part[j])
                    j += 1
                i = j
            else:
                i += 1

    item, depth = [], 0
    for token in tokens + [","]:
        if token in "([":
            depth += 1
        elif token in ")]":
            depth -= 1
        if token == "," and depth == 0:
            yield from walk(item)
            item = []
        else:
            item.append(token)


def is_bracketed(tokens):
    depth = 0
    for i, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if depth == 0 and i < len(tokens) - 1:
            return False
    return len(tokens) > 1 and tokens[0] == "("


def operand(tokens):
    while is_bracketed(tokens):
        tokens = tokens[1:-1]
    return "".join(tokens)


def is_min_max(condition, then, otherwise):
    for cut in ("=", "return"):
        if cut in condition:
            condition = condition[len(condition) - condition[::-1].index(cut):]
    while is_bracketed(condition):
        condition = condition[1:-1]
    for sign in ("<", ">", "<=", ">="):
        if condition.count(sign) == 1:
            i = condition.index(sign)
            sides = {operand(condition[:i]), operand(condition[i + 1:])}
            if sides == {operand(then), operand(otherwise)} and len(sides) == 2:
                return True
    return False


def count_file(path, found):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count("\n") <= 20:
        found["tiny-file"].append((path, 1))
    text = stripped(text)
    for line, tokens in statements(text):
        nested = False
        for condition, then, otherwise, is_nested in conditionals(tokens):
            nested = nested or is_nested
            if is_min_max(list(condition), then, otherwise):
                found["min-max"].append((path, line))
            if "=" in condition:
                i = condition.index("=")
                target = operand(condition[:i])
                if target and target in (operand(then), operand(otherwise)):
                    found["self-assign"].append((path, line))
        if nested:
            found["nested-conditional"].append((path, line))
        if len(tokens) > 4 and tokens[1] == "=" and tokens[2] == tokens[0] and tokens[3] == "&&":
            found["and-chain"].append((path, line))
        joined = " ".join(tokens)
        for _ in re.finditer(r"== (GGML_STATUS_SUCCESS|CLI_OK) &&", joined):
            found["and-chain"].append((path, line))
    for match in re.finditer(r"^((?:static |inline |const |LANE |struct |unsigned |enum |[A-Z_]+ )*[\w *]*?)\b(\w+)\(([^;{}]*?)\)\s*\{", text, flags=re.M):
        line = text.count("\n", 0, match.start()) + 1
        head, name, parameters = match.groups()
        if name in ("if", "for", "while", "switch") or not head.strip():
            continue
        if "static" in head.split() and "_" not in name and name != "main":
            found["one-word-static"].append((path, line))
        if parameters.count(",") >= 6 and not FOREIGN.match(name):
            found["many-parameters"].append((path, line))


def main():
    arguments = sys.argv[1:]
    by_folder = "--by-folder" in arguments
    kind = None
    if "--list" in arguments:
        at = arguments.index("--list")
        if at + 1 == len(arguments) or arguments[at + 1] not in KINDS:
            sys.exit("count-shape.py: --list takes one of " + ", ".join(KINDS))
        kind = arguments[at + 1]
        del arguments[at:at + 2]
    folders = [a for a in arguments if not a.startswith("--")] or ["src"]
    found = {name: [] for name in KINDS}
    lines = {}
    for folder in folders:
        for root, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if re.search(r"\.(c|h|cu|cuh)$", name):
                    path = os.path.join(root, name)
                    count_file(path, found)
                    with open(path, encoding="utf-8") as file:
                        key = "/".join(path.split("/")[:2])
                        lines[key] = lines.get(key, 0) + file.read().count("\n")
    if kind:
        for path, line in found[kind]:
            print(f"{path}:{line}")
        return
    for name, meaning in KINDS.items():
        print(f"{len(found[name]):7d}  {name:20s} {meaning}")
    print(f"{sum(lines.values()):7d}  lines")
    if by_folder:
        for key in sorted(lines):
            counts = " ".join(f"{n}={sum(p.startswith(key + '/') for p, _ in found[n])}" for n in KINDS)
            print(f"{lines[key]:7d}  {key:20s} {counts}")


main()
