#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""predict.py [-f] [-n RANKS,...] [-r TIMES] [-s SECONDS] [-m MODEL] [-b BUILD]: compares the speed that `berth fit --cluster` predicts
with the measured speed. It builds the programs and makes a model of 1.1B weights in q4_K. For each number of ranks (one core and one
thread each) it calibrates, predicts and measures, split by layers and by tensors. It prints a table. The exit code is 1 if a predicted
decode speed is more than 20% off. Rank counts above the number of cores are skipped with a message. No measurement begins after
SECONDS. -f gives the ranks the highest priority and requires root. MPI must be installed (make setup-mpi)."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
args = argparse.ArgumentParser(description=__doc__)
args.add_argument("-n", default="1,2,4", help="ranks (default 1,2,4)")
args.add_argument("-r", type=int, default=3, help="number of measurements, of which the median counts (default 3)")
args.add_argument("-s", type=float, default=140, help="seconds after which no measurement begins (default 140)")
args.add_argument("-m", help="use this model instead of a generated one")
args.add_argument("-b", default=os.path.join(root, "build"), help="build folder, which is built first (default: build)")
args.add_argument("-f", action="store_true", help="give the ranks the highest priority; requires root")
args = args.parse_args()

began = time.time()
cores = len(os.sched_getaffinity(0))
BOUND = 0.20
MPIRUN = ["mpirun", "--allow-run-as-root", "-q"] + (["--bind-to", "core"] if cores > 1 else [])
berth = os.path.join(args.b, "bin", "berth")
# Linux gives each session (setsid) a share of the machine, and nice values count only within a session. mpirun starts each rank in
# a separate session.
FIRST = ["setsid", "-w", "sh", "-c", 'echo -20 > /proc/self/autogroup 2> /dev/null; exec nice -n -20 "$@"', "sh"] if args.f else []
work = tempfile.mkdtemp(prefix="predict-")


def say(text):
    print(f"{time.time() - began:6.1f} s  {text}", flush=True)


def run(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


# Runs the program with its arguments as the first of n ranks.
def ranks(n, *words):
    command = FIRST + [berth, *words, "-t", "1"]
    if n > 1:
        command = MPIRUN + ["-n", "1"] + command + [":", "-n", str(n - 1)] + FIRST + [berth, "worker", "-t", "1"]
    elif cores > 1:
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] + command
    return run(command)


def build():
    if not os.path.exists(os.path.join(args.b, "CMakeCache.txt")):
        run(["cmake", "--preset", "release", "-B", args.b], cwd=root)
    run(["cmake", "--build", args.b, "-j", str(cores), "--target", "berth", "ggml", "ggml-cpu", "ggml-mpi", "berth-mpi"] +
        (["client-model"] if args.m is None else []), cwd=root)


def measure(n, split, model):
    more = ["--split", split] if n > 1 else []
    return json.loads(ranks(n, "run", "--json", "-c", "256", "-n", "32", "--seed", "1", *more, model).strip().splitlines()[-1])["per_second"]


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if len(values) % 2 else (values[len(values) // 2 - 1] + values[len(values) // 2]) / 2


def predict(n, model):
    path = os.path.join(work, f"cluster-{n}.json")
    ranks(n, "bench", "--cluster", path, model)
    fit = json.loads(run([berth, "fit", "--json", "--cluster", path, "-c", "256", model]))
    return {split: fit[split]["per_second"] for split in ("layer", "tensor")}


if shutil.which("mpirun") is None:
    raise SystemExit("mpirun is missing; run: make setup-mpi")
build()
say("built")
model = args.m or os.path.join(work, "1b-q4_K.gguf")
if args.m is None:
    run([os.path.join(args.b, "tests", "client-model"), "llama", "1b", "q4_K", model])
    say(f"a model of {os.path.getsize(model) / 1e6:.0f} MB was generated")
rows = []
for n in [int(word) for word in args.n.split(",")]:
    if n > cores:
        say(f"{n} ranks: skipped, this machine has {cores} cores")
        continue
    predicted = predict(n, model)
    say(f"{n} ranks: calibrated and predicted")
    rows += [{"n": n, "split": split, "predicted": predicted[split], "is": []} for split in (["layer", "tensor"] if n > 1 else ["layer"])]
for _ in range(args.r):
    for row in rows:
        if time.time() - began < args.s or not row["is"]:
            row["is"].append(measure(row["n"], row["split"], model))
say("measured")
shutil.rmtree(work)
print("\n| ranks | split | predicted tokens per second | measured, median | from, to | error of the prediction |\n|---|---|---|---|---|---|")
worst = 0.0
for row in rows:
    middle = median(row["is"])
    off = row["predicted"] / middle - 1
    worst = max(worst, abs(off))
    print(f"| {row['n']} | {row['split'] if row['n'] > 1 else '-'} | {row['predicted']:.2f} | {middle:.2f} | {min(row['is']):.2f}, "
          f"{max(row['is']):.2f} | {off:+.1%} |")
print(f"\nthe largest error is {worst:.1%}, at most {BOUND:.0%} is allowed; load {os.getloadavg()[0]:.1f}, {cores} cores, "
      f"{time.time() - began:.0f} s")
sys.exit(0 if worst <= BOUND else 1)
