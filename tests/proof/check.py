#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check.py: a second checker of proofs, written from docs/dev/proofs.md alone. It shares no code with src/proof.

  check.py PLAN.csv PROOF     prints one line: "valid BOUND STEPS", or "refused: REASON"
  check.py folder DIR PROGRAM checks all DIR/N.csv with DIR/N.proof, and that the program `berth` gives the same answers
"""
import collections
import csv
import gzip
import json
import math
import os
import subprocess
import sys
import zlib

Item = collections.namedtuple("Item", "first last size align pool alias is_fixed fixed")


ANY = -1  # in the column "fixed", also an empty field: the item may be anywhere


class Refused(Exception):
    """The proof does not show its bound."""


def require(holds, why):
    if not holds:
        raise Refused(why)


def items_read(path):
    items = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            get = lambda name, default: int(row.get(name) or default)
            fixed = get("fixed", ANY)
            items.append(Item(get("lower", 0), get("upper", 0) - 1, get("size", 0), max(get("alignment", 1), 1), get("pool", 0),
                              get("alias", -1), fixed != ANY, fixed))
    return items


class Pool:
    """All items of the plan, and the alias group of each: the first item, the common alignment. Numbers are those of the current pool."""

    def __init__(self, items):
        self.items = items
        self.group, self.align, firsts = [], {}, {}
        for k, item in enumerate(items):
            first = firsts.setdefault(item.alias, k) if item.alias >= 0 else k
            self.group.append(first)
            self.align[first] = math.lcm(self.align.get(first, 1), item.align)

    def begin(self, name):
        self.name, self.used = name - (name >> 31 << 32), set()
        self.ids = [k for k, item in enumerate(self.items) if item.pool == self.name]

    def item(self, k):
        return self.items[self.ids[k]]

    def group_of(self, k):
        return self.group[self.ids[k]]

    def use(self, k, align):
        group = self.group_of(k)
        require(group not in self.used, "an alias group is used twice")
        require(self.align[group] % align == 0, "the alignment of an item is too small")
        self.used.add(group)


def round_up(size, align):
    return -(-size // align) * align


def live_check(pool, bound, numbers):
    align, ids = numbers[0], numbers[1:]
    require(align > 0, "live: alignment 0")
    items = [pool.item(k) for k in ids]
    for k in ids:
        pool.use(k, align)
    require(not items or max(item.first for item in items) <= min(item.last for item in items), "live: no common step")
    total = sum(round_up(item.size, align) for item in items)
    pad = max((round_up(item.size, align) - item.size for item in items), default=0)
    top = max((item.fixed + item.size for item in items if item.is_fixed and item.size > 0), default=0)
    require(max(total - pad, top) >= bound, "live: fewer bytes than the bound")


class Search:
    def __init__(self, pool, bound, header, blocks):
        self.cap, unit, align = header
        require(unit > 0 and align > 0 and bound > 0 and blocks, "search: 0")
        lives, self.size, pad = [], [], 0
        for ids in blocks:
            first, last = pool.item(ids[0]).first, pool.item(ids[0]).last
            for k in ids:
                item = pool.item(k)
                require(pool.group_of(k) == pool.group_of(ids[0]) and first <= item.first <= last + 1, "search: gap in a block")
                last = max(last, item.last)
            size = min(pool.item(k).size for k in ids)
            padded = round_up(size, align)
            require(size > 0 and padded % unit == 0, "search: block")
            pool.use(ids[0], align)
            pad = max(pad, padded - size)
            lives.append((first, last))
            self.size.append(padded // unit)
        require(self.cap >= (bound - 1 + pad) // unit, "search: the capacity is too small")
        self.n = len(lives)
        self.find_sections(lives)
        self.low = [0] * self.n
        self.sky = [0] * self.n
        self.placed = [False] * self.n
        self.undo, self.open = [], []
        self.contradiction = False

    def find_sections(self, lives):
        events = sorted([(first, 0, i) for i, (first, _) in enumerate(lives)] + [(last, 1, i) for i, (_, last) in enumerate(lives)])
        self.begin, self.end = [0] * self.n, [0] * self.n
        self.n_sec, has_ended = 0, True
        for _, is_end, i in events:
            if is_end:
                self.end[i] = self.n_sec
            else:
                self.n_sec += has_ended
                self.begin[i] = self.n_sec - 1
            has_ended = bool(is_end)
        self.alive = [[i for i in range(self.n) if self.begin[i] <= s < self.end[i]] for s in range(self.n_sec)]
        self.near = [[j for j in range(self.n) if j != i and self.begin[i] < self.end[j] and self.begin[j] < self.end[i]]
                     for i in range(self.n)]

    def neighbours(self, i):
        return [j for j in self.near[i] if not self.placed[j]]

    def set(self, values, i, value):
        self.undo.append((values, i, values[i]))
        values[i] = value

    def raise_low(self, i, low):
        if low > self.low[i] and not self.contradiction:
            self.set(self.low, i, low)
            if low + self.size[i] > self.cap:
                self.contradiction = True

    def step(self, number, letter, a):
        count = {"X": 0, "V": 3}.get(letter, 1)
        require(len(a) == count or letter == "N" and a, "step: wrong number of arguments")
        require(not (self.contradiction and letter == "P"), "step: after a contradiction")
        require(letter not in "PRTW" or not self.placed[a[0]], "step: placed")
        getattr(self, "step_" + letter)(*a)

    def step_P(self, i):
        end = self.low[i] + self.size[i]
        self.open.append((i, len(self.undo)))
        near = self.neighbours(i)
        self.placed[i] = True
        for j in near:
            require(self.low[j] >= self.low[i], "P: a block may be below")
            self.set(self.sky, j, max(self.sky[j], end))
            self.raise_low(j, end + (self.is_same_life(i, j) and self.size[j] > self.size[i]))

    def step_X(self):
        require(self.contradiction and self.open, "X: no contradiction")
        i, mark = self.open.pop()
        while len(self.undo) > mark:
            values, k, old = self.undo.pop()
            values[k] = old
        self.placed[i] = False
        self.contradiction = False
        self.raise_low(i, self.low[i] + 1)

    def step_N(self, section, least=0, *excluded):
        out = set(excluded)
        ids = [i for i in self.alive[section] if not self.placed[i] and self.low[i] >= least and i not in out]
        if not ids:
            return
        latest = self.cap - sum(self.size[i] for i in ids)
        ends = [self.low[i] + self.size[i] for i in ids if self.low[i] <= latest]
        if not ends:
            self.contradiction = True
            return
        for i in [i for i in ids if self.low[i] > latest]:
            self.raise_low(i, min(ends))

    def step_A(self, section):
        self.border(section, section + 1)

    def step_B(self, section):
        self.border(section, section - 1)

    def border(self, here, there):
        require(0 <= here < self.n_sec and 0 <= there < self.n_sec, "border: no such section")
        inside = [i for i in self.alive[here] if not self.placed[i]]
        own = [i for i in inside if not self.begin[i] <= there < self.end[i]]
        floor = min([self.low[i] for i in inside] + [self.cap])
        slack = self.cap - floor - sum(self.size[i] for i in inside)
        if slack < 0:
            self.contradiction = True
            return
        least = min((self.low[i] for i in own), default=0)
        top = 0
        for i in self.alive[there]:
            if self.placed[i] or self.begin[i] <= here < self.end[i] or self.low[i] < floor or self.size[i] <= slack:
                continue
            top = max(top, self.low[i] + self.size[i])
            if not own:
                self.contradiction = True
                return
            self.raise_low(i, least - slack)
        if len(own) == 1:
            self.raise_low(own[0], top - slack - self.size[own[0]])

    def step_R(self, i):
        require(self.low[i] > self.sky[i], "R: the block may be at its sky")
        near = self.neighbours(i)
        if all(self.low[j] >= self.sky[i] + self.size[i] for j in near):
            self.contradiction = True
        self.raise_low(i, min((self.low[j] + self.size[j] for j in near), default=0))

    def is_same_life(self, i, j):
        return i != j and self.begin[i] == self.begin[j] and self.end[i] == self.end[j]

    def step_T(self, i):
        twins = [j for j in self.neighbours(i) if j < i and self.size[j] == self.size[i] and self.is_same_life(i, j)]
        if twins:
            self.raise_low(i, self.low[max(twins)] + self.size[max(twins)])

    def step_V(self, lo, hi, level):
        below = level if level > 0 else math.inf
        ids = [i for i in range(self.n) if not self.placed[i] and self.begin[i] < hi and self.end[i] > lo and self.low[i] < below]
        for i in ids:
            require(lo <= self.begin[i] and self.end[i] <= hi and self.low[i] > self.sky[i], "V: a block can be below")
        for i in ids:
            self.raise_low(i, min(below, self.cap + 1))

    def step_W(self, i):
        for j in self.neighbours(i):
            require(self.begin[i] <= self.begin[j] and self.end[j] <= self.end[i] and self.low[j] >= self.sky[i], "W: not wide")
            require(not self.is_same_life(i, j) or (-self.size[i], i) < (-self.size[j], j), "W: not the largest")
        require(self.low[i] > self.sky[i], "W: the block may be at the bottom")
        self.contradiction = True


def numbers_of(words):
    for word in words:
        require(word.isascii() and word.isdigit(), "not a number: " + word[:20])
    return [int(word) for word in words]


def pool_check(lines, pool):
    """Checks the pool that begins at the next line. Returns the pool, its bound and the number of steps."""
    total = zlib.adler32(b"")

    def take(word=None):
        nonlocal total
        line = next(lines, "")
        require(line.endswith("\n"), "the text has ended")
        if not line.startswith("end "):
            total = zlib.adler32(line.encode(), total)
        words = line[:-1].split(" ")
        require(word is None or words[0] == word, "the word '%s' was expected" % word)
        return words

    require(take("berth-proof") == ["berth-proof", "1"], "another version")
    pool.begin(*numbers_of(take("pool")[1:]))
    (bound,) = numbers_of(take("bound")[1:])
    words = take()
    n_steps = 0
    if words[0] == "live":
        live_check(pool, bound, numbers_of(words[1:]))
    else:
        require(words[0] == "search" and len(words) == 4, "the word 'search' was expected")
        (n_blocks,) = numbers_of(take("blocks")[1:])
        blocks = [numbers_of(take()) for _ in range(n_blocks)]
        search = Search(pool, bound, numbers_of(words[1:]), blocks)
        take("steps")
        while True:
            words = take()
            if words[0] == "end":
                break
            n_steps += 1
            letter, first = words[0][:1], words[0][1:]
            require(letter and letter in "PXNABRTVW", "no such step")
            search.step(n_steps, letter, numbers_of(([first] if first else []) + words[1:]))
        require(search.contradiction and not search.open, "the log ends without a contradiction")
    if n_steps == 0 and words[0] != "end":
        words = take("end")
    require(numbers_of(words[1:]) == [total], "wrong checksum")
    return pool.name, bound, n_steps


def proof_check(plan, proof):
    """Returns (bound, steps): the sum of the bounds of all pools, and of the steps."""
    pool = Pool(items_read(plan))
    bounds, steps = {}, 0
    with (gzip.open if proof.endswith(".gz") else open)(proof, "rt", encoding="latin-1", newline="\n") as file:
        text = iter(file)
        for line in text:
            name, bound, n = pool_check((x for part in ([line], text) for x in part), pool)
            bounds[name] = max(bounds.get(name, 0), bound)
            steps += n
    return sum(bounds.values()), steps


def answer_of(plan, proof):
    try:
        return ("valid",) + proof_check(plan, proof)
    except Refused as why:
        return ("refused", str(why))
    except (IndexError, ValueError, KeyError) as why:
        return ("refused", "malformed: %r" % why)


def folder_check(folder, program):
    count = searches = 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".csv"):
            continue
        plan, proof = (os.path.join(folder, name[:-3] + end) for end in ("csv", "proof"))
        mine = answer_of(plan, proof)
        done = subprocess.run([program, "verify", "--json", "--proof", proof, plan], capture_output=True, text=True, check=False)
        result = json.loads(done.stdout)["proof"]
        other = ("valid", result["bound"], result["steps"]) if result["valid"] else ("refused", result["why"])
        if mine != other:
            sys.exit("%s: this checker says %r, berth says %r" % (proof, mine, other))
        count += 1
        searches += mine[2] > 0
    print("%d proofs, %d by search: both checkers agree" % (count, searches))
    if count == 0 or searches == 0:
        sys.exit("too few proofs")


if __name__ == "__main__":
    if sys.argv[1] == "folder":
        folder_check(sys.argv[2], sys.argv[3])
    else:
        ANSWER = answer_of(sys.argv[1], sys.argv[2])
        print(*ANSWER)
        sys.exit(ANSWER[0] != "valid")
