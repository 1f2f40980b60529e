#!/usr/bin/env python3
"""check-cycles.py [BUILD]: finds cycles between the object files of one folder of src, by the symbols that they use.

tools/cycles.txt lists the intended cycles, one per line: FILE FILE...: the reason. Any other cycle is an error, and so is a listed cycle
that does not exist.
"""
import glob
import os
import re
import subprocess
import sys


def objects_read(build):
    """{source file: (defined symbols, used symbols)}"""
    found = {}
    for path in glob.glob(build + "/src/CMakeFiles/*.dir/**/*.c.o", recursive=True):
        source = "src/" + re.sub(r"^.*\.dir/", "", path)[:-2]
        if not os.path.exists(source):
            continue
        defined, taken = set(), set()
        for line in subprocess.check_output(["nm", "-g", path], text=True).splitlines():
            kind, name = line.split()[-2:]
            (taken if kind in "Uw" else defined).add(name)
        found[source] = (defined, taken)
    return found


def components(edges):
    """Strongly connected components of two files or more, by Tarjan's algorithm without recursion."""
    index, low, on_stack, stack, result = {}, {}, set(), [], []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    if len(part) > 1:
                        result.append(tuple(sorted(part)))
    return sorted(result)


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/..")
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    objects = objects_read(build)
    if not objects:
        print(f"cycles: no objects in {build} yet")
        return
    owner = {name: source for source, (defined, _) in objects.items() for name in defined}
    edges = {source: set() for source in objects}
    for source, (_, taken) in objects.items():
        for name in taken:
            target = owner.get(name, source)
            if target != source and target.split("/")[1] == source.split("/")[1]:
                edges[source].add(target)
    # A build has the kernels of one architecture only, so they are not part of the listed cycles.
    found = [tuple(f for f in cycle if not re.match("src/cpu/(arm|x86)/", f)) or cycle for cycle in components(edges)]
    meant = {}
    with open("tools/cycles.txt", encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                files, reason = line.split(":", 1)
                meant[tuple(sorted(files.split()))] = reason.strip()
    bad = 0
    for cycle in found:
        if cycle not in meant:
            bad += 1
            print("cycles: not listed in tools/cycles.txt:", " ".join(cycle))
            for source in cycle:
                for target in sorted(edges[source] & set(cycle)):
                    names = sorted(n for n in objects[source][1] if owner.get(n) == target)
                    print(f"    {source} uses from {target}: {' '.join(names)}")
    for cycle in meant:
        if cycle not in found and all(source in objects for source in cycle):
            bad += 1
            print("cycles: listed in tools/cycles.txt, but not found:", " ".join(cycle))
    if bad:
        sys.exit(1)
    print(f"cycles: {len(found)} inside folders, all listed with a reason")


main()
