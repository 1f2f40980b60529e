#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python.py BERTH [MODEL]: the time that the Python package adds. It plans 20,000 items, and compares the time of berth.plan with the
time of the planner in C in the same call. It generates 100 tokens, and compares the speed with that of `berth run`. The plans must be
valid and have the peak that `berth plan` finds, and the texts must be equal. Needs BERTH_LIBRARY_DIR and PYTHONPATH=python."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import berth

N_ITEMS, N_TOKENS, ROUNDS = 20000, 100, 7


def program_json(*args):
    return json.loads(subprocess.run([*map(str, args)], capture_output=True, check=True).stdout)


def plan_ratio(program):
    rng = np.random.default_rng(1)
    first = rng.integers(0, 5000, N_ITEMS)
    items = berth.make_items(first, first + rng.integers(0, 40, N_ITEMS), rng.integers(1, 1000, N_ITEMS) * 64, align=64)
    ratios = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        plan = berth.plan(items)
        ratios.append(1e6 * (time.perf_counter() - start) / plan.time_us)
    assert plan.verify() is None
    with tempfile.TemporaryDirectory() as folder:
        plan.save(Path(folder) / "items.csv")
        text = (Path(folder) / "items.csv").read_text().splitlines()
        no_offsets = "\n".join(line.rsplit(",", 1)[0] for line in text) if text[0].endswith("offset") else "\n".join(text)
        (Path(folder) / "items.csv").write_text(no_offsets + "\n")
        assert program_json(program, "plan", "--json", Path(folder) / "items.csv")["peak"] == plan.peak
    return statistics.median(ratios), plan.time_us


def generate_ratio(program, path):
    model = berth.Model(path, n_ctx=512)
    speeds = {"C": [], "Python": []}
    for i in range(ROUNDS):
        options = ["-p", "Once upon a time", "-n", N_TOKENS, "--seed", i, "-c", 512, "--logit-bias", f"{model.eos}-inf", "--json"]
        run = program_json(program, "run", "-m", model.path, *options)
        text = model.generate("Once upon a time", max_tokens=N_TOKENS, seed=i, logit_bias={model.eos: float("-inf")})
        assert text == run["text"] and text.n_generated == N_TOKENS
        speeds["C"].append(run["per_second"])
        speeds["Python"].append(text.per_second)
    return statistics.median(speeds["C"]), statistics.median(speeds["Python"])


berth_program = sys.argv[1]
ratio, c_us = plan_ratio(berth_program)
print(f"plan of {N_ITEMS} items: {c_us / 1000:.1f} ms in C, {ratio:.4f} times that in Python")
c, python = generate_ratio(berth_program, sys.argv[2] if len(sys.argv) > 2 else None)
print(f"generate: {c:.1f} tokens/s by berth run, {python:.1f} in Python, ratio {c / python:.4f}")
