#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# train_memory.py BERTH [SHARE...]: trains a model of the shipped model's size from random weights, without a memory limit and with
# limits that give the graphs of a step only a SHARE (default 0.5) of their memory. Compares the losses, and compares the slowdown
# with the predicted one. The time of a step is processor time of one thread. It is the difference between runs of many and of few
# steps, which excludes starting and planning, and the shortest of several alternating runs. Run it in the root of the sources.
# Fails if a loss differs or the slowdown differs from the prediction by more than 10%.
import json, os, resource, subprocess, sys, tempfile

FEW, MANY, N_RUNS = 2, 10, 3


def train(berth, folder, steps, memory):
    limit = ["--memory", str(memory)] if memory else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([berth, "train", "tests/data/tales-3m-q8_0.gguf", "--new", "tests/train/tales.conf", "--data", f"{folder}/tales.txt",
                          "--split", "blank", "-c", "128", "-b", "8", "--steps", str(steps), "--warmup", "2", "--schedule", "constant",
                          "-t", "1", "--json", "-o", f"{folder}/out.gguf", *limit], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(out)


def main():
    berth, parts = sys.argv[1], [float(x) for x in sys.argv[2:]] or [0.5]
    is_fine = True
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/tales.txt", "w") as file:
            subprocess.run([sys.executable, "models/grammar.py", "400", "21"], stdout=file, check=True)
        whole = train(berth, folder, MANY, 0)[1]
        limits = [0] + [whole["bytes_trained"] + int(part * whole["bytes_compute"]) for part in parts]
        least = [[float("inf")] * 2 for _ in limits]
        said = [None] * len(limits)
        for _ in range(N_RUNS):
            for i, limit in enumerate(limits):
                for k, steps in enumerate((FEW, MANY)):
                    seconds, said[i] = train(berth, folder, steps, limit)
                    least[i][k] = min(least[i][k], seconds)
        step = [(many - few) / (MANY - FEW) for few, many in least]
        print("| share of the graphs' memory | MiB | losses | CPU ms per step | slower | predicted | error |\n|---|---|---|---|---|---|---|")
        for i, part in enumerate([1.0] + parts):
            same, slower = said[i]["losses"] == whole["losses"], step[i] / step[0]
            off = slower / said[i]["slower"] - 1
            is_fine = is_fine and same and abs(off) <= 0.1 and said[i]["bytes_compute"] <= part * whole["bytes_compute"]
            print(f"| {part:g} | {said[i]['bytes_compute'] / 2**20:.1f} | {'the same' if same else 'DIFFER'} | {1000 * step[i]:.0f} "
                  f"| {slower:.3f} | {said[i]['slower']:.3f} | {100 * off:+.1f}% |")
    return 0 if is_fine else 1


sys.exit(main())
