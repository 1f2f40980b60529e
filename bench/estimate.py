#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# estimate.py [--speed] BERTH MAKER [FOLDER]: compares the predictions of `berth fit` with measurements. MAKER is
# build/tests/client-model, which generates the models, into FOLDER if one is given.
#
# Without --speed: compares the reported bytes of a model with the peak of the process's own resident memory (RssAnon, which
# excludes the pages of the mapped file) while it processes a complete context in one batch. Fails if the difference is above 1% for
# a model of 1 GiB or more, or above 8 MiB for a smaller one.
#
# With --speed: compares the predicted tokens per second for one thread with those that `berth bench` generates per second of
# processor time, because other programs may use the machine. Fails if the difference is above 10% for a model of 1 GB, or above 15%
# for the shipped model, whose speed `berth fit` measures by running it.
import json, os, resource, subprocess, sys, tempfile, time

MIB = 1 << 20
CASES = [  # architecture, size, type of the weights, context and batch, mapped
    ("llama", "tiny", "f32", 512, True), ("llama", "small", "q4_K", 512, True), ("qwen3", "small", "q8_0", 1024, True),
    ("llama", "small", "f16", 1024, False), ("qwen3moe", "small", "q8_0", 256, False),
    ("llama", "1b", "q8_0", 256, True), ("llama", "1b", "q8_0", 256, False), ("llama", "1b", "q4_0", 512, False),
    ("llama", "1b", "f16", 64, False),
]


def peak(command):
    process, most = subprocess.Popen(command, stdout=subprocess.DEVNULL), 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status") as status:
                most = max([most] + [int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon")])
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.005)
    return most if process.returncode == 0 else None


def case(berth, maker, folder, arch, size, kind, n, mapped):
    path = os.path.join(folder, f"{arch}-{size}-{kind}.gguf")
    if not os.path.exists(path):
        subprocess.run([maker, arch, size, kind, path], check=True)
    fit = json.loads(subprocess.run([berth, "fit", "--json", "--memory", "64G", "-c", str(n), "-b", str(n), path], check=True,
                                    capture_output=True, text=True).stdout)
    d = fit["devices"][-1]
    said = d["cache"] + d["compute"] + d["work"] + (0 if mapped else d["weights"])
    took = peak([berth, "bench", "-p", str(n), "-n", "0", "-r", "1", "-b", str(n), *([] if mapped else ["--no-mmap"]), path])
    whole = d["weights"] + d["cache"] + d["compute"] + d["work"]
    is_large = whole >= 1 << 30
    ok = took is not None and abs(took - said) <= (whole / 100 if is_large else 8 * MIB)
    print(f"| {arch} {size} {kind} | {n} | {'mapped' if mapped else 'read'} | {d['weights'] / MIB:.1f} | {d['cache'] / MIB:.1f} "
          f"| {d['compute'] / MIB:.1f} | {d['work'] / MIB:.1f} | {said / MIB:.1f} | {(took or 0) / MIB:.1f} "
          f"| {((took or 0) - said) / MIB:+.1f} MiB ({100 * ((took or 0) - said) / whole:+.2f}%) |{'' if ok else ' OFF'}", flush=True)
    return ok


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# Generates n tokens per repetition, with few and with many repetitions. The difference of both times excludes the time to load the
# model.
def speed(berth, path, n, few, many):
    said, seconds = 0, [float("inf")] * 2
    for _ in range(3):
        fit = subprocess.run([berth, "fit", "--json", "--memory", "64G", "-t", "1", "-c", str(n), "-b", str(n), path], check=True,
                             capture_output=True, text=True).stdout
        said = max(said, json.loads(fit)["per_second"])
        for i, r in enumerate((few, many)):
            command = [berth, "bench", "-p", "0", "-n", str(n), "-r", str(r), "-t", "1", path]
            seconds[i] = min(seconds[i], cpu_seconds(command))
    wrote = (many - few) * n / (seconds[1] - seconds[0])
    print(f"| {os.path.basename(path)} | {said:.1f} | {wrote:.1f} | {100 * (wrote / said - 1):+.0f}% |", flush=True)
    return abs(wrote / said - 1)


def speeds(berth, maker, folder):
    print("| model | predicted | measured | difference |\n|---|---|---|---|")
    results = [speed(berth, "tests/data/tales-3m-q8_0.gguf", 64, 2, 22) <= 0.15]
    for kind in ("q8_0", "q4_0", "f16"):
        path = os.path.join(folder, f"llama-1b-{kind}.gguf")
        if not os.path.exists(path):
            subprocess.run([maker, "llama", "1b", kind, path], check=True)
        results.append(speed(berth, path, 16, 1, 2) <= 0.1)
    return results


def main():
    is_speed = sys.argv[1] == "--speed"
    sys.argv[1:] = sys.argv[1 + is_speed:]
    berth, maker = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as made:
        folder = sys.argv[3] if len(sys.argv) > 3 else made
        if is_speed:
            return 0 if all(speeds(berth, maker, folder)) else 1
        print("| model | context, batch | weights are | weights | cache | compute | work | reported | used | difference |\n"
              "|---|---|---|---|---|---|---|---|---|---|")
        results = [case(berth, maker, folder, *c) for c in CASES]
    return 0 if all(results) else 1


sys.exit(main())
