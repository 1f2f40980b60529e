#!/usr/bin/env python3
# bit_vectors.py: proves contracts of functions that work on bits, for all 64-bit words, with z3's bit vectors. The provers of
# tools/prove.sh work on integers and cannot. The exit code is 1 if a contract is not proved.
#
# The C expressions are repeated here, so each row also checks that the source still contains its expression.
import subprocess
import sys

ROWS = [
    # file, expression in C, a term that is true if the contract fails
    (
        "src/base/base.h",
        "return x & ~(align - 1);",
        # berth_round_down: for a power of two, 1 << k, the result is x - x % align
        ["(not (= (bvand x (bvnot (bvsub #x{0:016x} #x{1:016x}))) (bvsub x (bvurem x #x{0:016x}))))".format(1 << k, 1)
         for k in range(64)],
    ),
    (
        "src/base/base.h",
        "x > 0 && (x & (x - 1)) == 0;",
        # is_power_of_two: every word that satisfies it is one of the 64 words above
        ["(and (bvugt x #x{0:016x}) (= (bvand x (bvsub x #x{1:016x})) #x{0:016x}) {2})".format(
            0, 1, " ".join("(not (= x #x%016x))" % (1 << k) for k in range(64)))],
    ),
    (
        "src/plan/solve/blocks.h",
        "return (uint64_t) t ^ (uint64_t) 1 << 63;",
        # plan_time_key: unsigned keys have the order of the signed times
        ["(not (= (bvslt x y) (bvult (bvxor x {0}) (bvxor y {0}))))".format("#x8000000000000000")],
    ),
    (
        "src/core/span.h",
        "((n0 | n1 | n2 | n3) >> 26 | (t->nb[0] | t->nb[1] | t->nb[2] | t->nb[3]) >> 34) == 0",
        # berth_span_of: on the fast path, extents are at most 2^26 and strides are below 2^34, so each product is below 2^60
        ["(and (= (bvor (bvlshr (bvor x y z w) {26}) (bvlshr (bvor a b c d) {34})) {0}) (not (and {small})))".replace("{26}", "#x%016x" % 26)
         .replace("{34}", "#x%016x" % 34).replace("{0}", "#x%016x" % 0)
         .replace("{small}", " ".join(["(bvult %s #x%016x)" % (v, 1 << 26) for v in "xyzw"] + ["(bvult %s #x%016x)" % (v, 1 << 34) for v in "abcd"]))],
    ),
]

failed = 0
for path, code, terms in ROWS:
    with open(path) as file:
        if code not in " ".join(file.read().split()):
            print("%s: '%s' is missing: adapt tools/prove/bit_vectors.py" % (path, code), file=sys.stderr)
            failed = 1
            continue
    text = "(set-logic QF_BV)\n" + "".join("(declare-const %s (_ BitVec 64))\n" % v for v in "xyzwabcd")
    for term in terms:
        text += "(push)(assert %s)(check-sat)(pop)\n" % term
    out = subprocess.run(["z3", "-in", "-T:60"], input=text, capture_output=True, text=True).stdout.split()
    proved = out.count("unsat")
    print("%-32s %5d of %5d goals, bit vectors" % (path, proved, len(terms)))
    failed |= proved != len(terms)
sys.exit(failed)
