#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""budget.py: a second checker of proofs that no schedule keeps a memory limit, written from docs/dev/proofs.md alone.

  budget.py FILE.csv LIMIT SPILL PROOF   prints one line: "valid STATES", or "refused: REASON"; SPILL: 0, or the limit of the other pool
  budget.py compare FOLDER PROGRAM       makes random graphs in FOLDER, and checks that the program `berth` gives the same answers, also
                                         for damaged proofs
"""
import csv
import itertools
import json
import os
import random
import subprocess
import sys
import zlib

SRCS_MAX = 12


class Refused(Exception):
    """The proof does not show its claim."""


def require(holds, why):
    if not holds:
        raise Refused(why)


class Graph:
    """The ops of a CSV with the columns cost and reads, as docs/user/budget.md describes them. Op k is the k-th row by first step."""

    def __init__(self, path, limit, spill):
        with open(path, newline="") as file:
            rows = sorted(csv.DictReader(file), key=lambda row: int(row["lower"]))
        number = {row["id"]: k for k, row in enumerate(rows)}
        self.n, self.limit, self.spill = len(rows), limit, spill
        self.size = [int(row["size"]) for row in rows]
        self.srcs = [{number[word] for word in row["reads"].split()} for row in rows]
        first, last = [int(row["lower"]) for row in rows], [int(row["upper"]) - 1 for row in rows]
        self.readers = [{i for i in range(self.n) if k in self.srcs[i]} for k in range(self.n)]
        self.kept = {k for k in range(self.n) if not self.readers[k] or all(last[k] > first[i] for i in self.readers[k])}
        free = {k for k in range(self.n) if rows[k]["cost"] == ""}
        self.inputs = {k for k in free if not self.srcs[k]}
        self.once = free - self.inputs
        self.single = self.kept | free

    def bytes(self, values):
        return sum(self.size[k] for k in values)

    def needed_by(self, op):
        up, down = {op}, {op}
        for k in reversed(range(self.n)):
            up |= self.srcs[k] if k in up else set()
        for k in range(self.n):
            down |= {k} if self.srcs[k] & down else set()
        there = self.srcs[op] | {op}
        for k in self.single - {op} if self.spill == 0 else ():
            if (k in self.inputs or k in up) and (k in self.kept or self.readers[k] & (down - {op})):
                there.add(k)
        return there


def bits(graph, number):
    return frozenset(k for k in range(graph.n) if number >> k & 1)


class States:
    def __init__(self, graph, states):
        self.g, self.states = graph, states

    def finished(self, done):
        out = set(done & self.g.single)
        for k in reversed(range(self.g.n)):
            if k not in self.g.single and not self.g.readers[k] - out:
                out.add(k)
        return out

    def dead(self, done):
        finished = self.finished(done)
        return {k for k in range(self.g.n) if k not in self.g.kept and not self.g.readers[k] - finished}

    def is_lost(self, live, out, done):
        need = self.g.single - done
        for k in reversed(range(self.g.n)):
            if k in need and k not in self.g.inputs:
                need = need | self.g.srcs[k] - live - out
        return bool(need & done)

    def covers(self, live, out, done):
        state = frozenset(live), frozenset(out), frozenset(done)
        return state in self.states or self.is_lost(*state)

    def can_run(self, k, live, done):
        earlier = [j for j in self.g.once if j < k]
        return k not in done | live and self.g.srcs[k] <= live and (k not in self.g.once or not earlier or max(earlier) in done)

    def run_is_covered(self, k, live, out, done):
        done = done | ({k} & self.g.single)
        dead = self.dead(done)
        if k in dead and k not in self.g.single:
            return True
        may_go = sorted(j for j in self.g.srcs[k] - dead if self.g.size[j] > 0 and (j not in self.g.kept or j in out))
        if self.g.bytes(live) + self.g.size[k] > self.g.limit:
            return True
        subsets = itertools.chain.from_iterable(itertools.combinations(may_go, n) for n in range(len(may_go) + 1))
        return all(self.covers((live | {k}) - set(go) - dead, out - dead, done) for go in subsets)

    def moves_are_covered(self, k, live, out, done):
        me, size = {k}, self.g.size[k]
        if k in live - out and self.g.bytes(out) + size <= self.g.spill:
            if not (self.covers(live, out | me, done) and self.covers(live - me, out | me, done)):
                return False
        if k in out - live and self.g.bytes(live) + size <= self.g.limit:
            return self.covers(live | me, out, done) and self.covers(live | me, out - me, done)
        return True

    def check(self):
        require(self.covers(self.g.inputs, (), self.g.inputs), "the first state is missing")
        for live, out, done in self.states:
            require(self.g.single - done or self.g.kept - live, "a schedule may end")
            forced = [k for k in self.g.single - done if self.g.size[k] == 0 and self.can_run(k, live, done)]
            if any(self.run_is_covered(k, live, out, done) for k in forced):
                continue
            for k in range(self.g.n):
                require(not self.can_run(k, live, done) or self.run_is_covered(k, live, out, done), "a state is missing")
                spilled = self.g.spill > 0 and self.g.size[k] > 0
                require(not spilled or self.moves_are_covered(k, live, out, done), "a state is missing")


def numbers_of(words, n):
    require(len(words) == n and all(word.isascii() and word.isdigit() for word in words), "not %d numbers" % n)
    return [int(word) for word in words]


def proof_check(graph, text):
    """Returns the number of states."""
    lines = text.split("\n")
    require(len(lines) >= 5 and lines[:2] == ["berth-proof 1", "budget"], "another kind of proof")
    words = lines[2].split(" ")
    end = 3
    states = set()
    if words[0] in ("inputs", "kept", "op"):
        numbers = numbers_of(words[1:], 2 if words[0] == "op" else 1)
        values = graph.inputs if words[0] == "inputs" else graph.kept if graph.spill == 0 else ()
        if words[0] == "op":
            require(numbers[1] < graph.n and numbers[1] not in graph.inputs, "no such op")
            values = graph.needed_by(numbers[1])
        require(numbers[0] == 0 and graph.bytes(values) > graph.limit, "the bytes are within the limit")
    else:
        require(words[0] == "states" and graph.n <= 64, "no reason")
        require(all(sum(graph.size[j] > 0 for j in srcs) <= SRCS_MAX for srcs in graph.srcs), "an op has too many sources with bytes")
        (n,) = numbers_of(words[1:], 1)
        require(n <= 1 << 24, "too many states")
        for line in lines[3:3 + n]:
            numbers = numbers_of(line.split(" "), 3)
            require(max(numbers) < 1 << graph.n, "a number is too large")
            states.add(tuple(bits(graph, number) for number in numbers))
        end += n
        require(end < len(lines), "the text has ended")
        States(graph, states).check()
    total = zlib.adler32("".join(line + "\n" for line in lines[:end]).encode())
    require(lines[end] == "end %d" % total and len(lines) > end + 1, "wrong checksum")
    return len(states)


def answer_of(graph, text):
    try:
        return "valid", proof_check(graph, text)
    except Refused as why:
        return "refused", str(why)


def checksum_fix(text):
    body = text[:text.rindex("end ")]
    return body + "end %d\n" % zlib.adler32(body.encode())


def state_add(text, n_ops, rng):
    """Adds a state that differs from another one in one bit, which may be that of an op that does not exist."""
    lines = text.split("\n")
    n = int(lines[2].split(" ")[1])
    numbers = lines[3 + rng.randrange(n)].split(" ")
    k = rng.randrange(3)
    numbers[k] = str(int(numbers[k]) ^ 1 << rng.randrange(n_ops + 1))
    return checksum_fix("\n".join(["%s\n%s\nstates %d" % (lines[0], lines[1], n + 1), " ".join(numbers)] + lines[3:]))


def damage(text, rng):
    at = rng.randrange(text.index("budget\n") + 7, text.rindex("end "))
    if text[at].isdigit():
        text = text[:at] + rng.choice("0123456789") + text[at + 1:]
    elif text[at] == "\n":
        line = text.rindex("\n", 0, at) + 1
        text = text[:line] + text[at + 1:]
    return checksum_fix(text)


def graph_write(path, rng):
    n = rng.randrange(4, 11)
    reads = [set() for _ in range(n)]
    for k in range(1, n):
        reads[k] = {k - 1} | {j for j in (n - k, n - k - 1) if 0 < j < k and rng.random() < 0.7}
        reads[k] |= {rng.randrange(k)} if rng.random() < 0.2 else set()
    with open(path, "w") as file:
        file.write("id,lower,upper,size,cost,reads\n")
        for k in range(n):
            last = max([i for i in range(n) if k in reads[i]], default=n)
            last += rng.random() < 0.1
            cost = "" if k == 0 or rng.random() < 0.1 else rng.randrange(1, 6)
            size = rng.randrange(0, 3) if rng.random() < 0.3 else rng.randrange(2, 6)
            file.write("v%d,%d,%d,%d,%s,%s\n" % (k, k, last + 1, size, cost, " ".join("v%d" % j for j in sorted(reads[k]))))
    return n


def program_answer(program, path, limit, spill, proof):
    command = [program, "verify", "--json", "--budget", str(limit), "--proof", proof, path] + (["--spill", str(spill)] if spill else [])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    result = json.loads(done.stdout)["proof"]
    return ("valid", result["steps"]) if result["valid"] else ("refused", result["why"])


def compare(folder, program):
    rng = random.Random(7)
    count = with_states = damaged = accepted = 0
    path, proof = os.path.join(folder, "graph.csv"), os.path.join(folder, "graph.proof")
    for number in range(60):
        graph_write(path, rng)
        spill = rng.randrange(1, 8) if number % 4 == 0 else 0
        for limit in range(6, 40):
            command = [program, "plan", "--budget", str(limit), "--proof", proof, path] + (["--spill", str(spill)] if spill else [])
            code = subprocess.run(command, capture_output=True, check=False).returncode
            if code != 1:
                break
            with open(proof) as file:
                text = file.read()
            graph = Graph(path, limit, spill)
            mine, other = answer_of(graph, text), program_answer(program, path, limit, spill, proof)
            if mine[0] != "valid" or mine != other:
                sys.exit("limit %d of %s: this checker says %r, berth says %r" % (limit, path, mine, other))
            count += 1
            with_states += mine[1] > 0
            for k in range(12 if mine[1] > 0 else 0):
                bad = damage(text, rng) if k % 2 == 0 else state_add(text, graph.n, rng)
                with open(proof, "w") as file:
                    file.write(bad)
                mine, other = answer_of(graph, bad), program_answer(program, path, limit, spill, proof)
                if mine[0] != other[0]:
                    sys.exit("limit %d of %s, damaged: this checker says %r, berth says %r" % (limit, path, mine, other))
                damaged += 1
                accepted += mine[0] == "valid"
    print("%d proofs, %d with states: both checkers agree; %d damaged proofs, %d accepted by both" % (count, with_states, damaged, accepted))
    if with_states == 0 or damaged == 0:
        sys.exit("too few proofs")


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        compare(sys.argv[2], sys.argv[3])
    else:
        with open(sys.argv[4]) as FILE:
            ANSWER = answer_of(Graph(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), FILE.read())
        print(*ANSWER)
        sys.exit(ANSWER[0] != "valid")
