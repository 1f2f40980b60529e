#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lost.py BUILD N: workers are killed, stopped or crash at N random moments. The program must get an error in time and end by itself,
not by a signal, and no process may be left running. The seed is printed; BERTH_SEED sets it."""
import os
import random
import signal
import subprocess
import sys
import time

from ranks import MPIRUN, is_there, ranks, report_and_end, until

build, n_cases = sys.argv[1], int(sys.argv[2])
seed = int(os.environ.get("BERTH_SEED") or time.time_ns() % 10**9)
rng = random.Random(seed)
TIMEOUT = 1.5  # seconds: BERTH_MPI_TIMEOUT
# Messages that name no rank, because joining failed as a whole (src/mpi/process.c).
NOT_JOINED = ["not all ranks have joined within the time limit", "ended before it joined", "the first messages between the ranks have taken longer"]


# Seconds that MPI_Init may take: twice the time that a program with one worker takes on this machine, because the load of the
# machine varies.
def mpi_starts():
    began = time.time()
    subprocess.run(MPIRUN + ["-n", "1", f"{build}/bin/berth", "devices", ":", "-n", "1", f"{build}/bin/berth", "worker", "-t", "1"],
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=60)
    return max(0.3, 2 * (time.time() - began))


MPI_STARTS = mpi_starts()


def case(i):
    n_workers = rng.choice([1, 2])
    victim, number = rng.randint(1, n_workers), rng.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
    if i % 8 == 7:
        victim = 0  # the program itself: then the workers end
        number = signal.SIGKILL
    net = rng.choice(["vader,self", "tcp,self"])
    # Each program with its exit code after an error. The code is listed with the program, because a path does not identify the
    # program: a build folder may have any name.
    program, failure = rng.choice([([f"{build}/tests/mpi-steps", "100000", str(rng.choice([1, 3, 400]))], "code 5"),
                                   ([f"{build}/bin/berth", "run", "-s", "1", "-n", "100"], "code 3"),
                                   ([f"{build}/bin/berth", "run", "--split", "tensor", "-t", "1", "-c", "256", "-n", "200"], "code 3")])
    codes = ["code 0", failure]  # the program had finished, or got the error
    if victim != 0:
        program = ["sh", "-c", '"$@"; echo "code $?"', "sh"] + program
    delay = rng.uniform(0.02, 1.2)
    what = f"case {i}: {number.name} to rank {victim} of {n_workers + 1} after {delay:.2f} s, {net}, {' '.join(os.path.basename(word) for word in program[-4:])}"
    env = dict(os.environ, BERTH_MPI_TIMEOUT=str(TIMEOUT))
    with open(f"{build}/tests/mpi-lost.log", "wb") as log:
        launcher = subprocess.Popen(MPIRUN + ["--mca", "btl", net, "-n", "1"] + program +
                                    [":", "-n", str(n_workers), f"{build}/bin/berth", "worker", "-t", "1"],
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        pids = ranks(launcher, n_workers + 1)
        time.sleep(delay)
        if is_there(pids[victim]):
            os.kill(pids[victim], number)
        began = time.time()
        problem, is_launcher_stuck = None, False
        # The limits exceed TIMEOUT, because the machine may be busy, and because a program continues without a rank that was lost
        # before it joined.
        seen, end = -1, began + 60
        while problem is None and is_there(pids[0]):
            if seen == log.seek(0, os.SEEK_END) or time.time() > end:
                problem = "the program hangs"
            seen = log.seek(0, os.SEEK_END)
            until(lambda: not is_there(pids[0]), TIMEOUT + 12)
        took = time.time() - began
        if number == signal.SIGSTOP and is_there(pids[victim]):
            os.kill(pids[victim], signal.SIGCONT)
        if problem is None and not until(lambda: not any(is_there(pid) for pid in pids.values()), TIMEOUT + 12):
            problem = "a process is still running: " + ", ".join(f"rank {r}" for r, pid in pids.items() if is_there(pid))
        if problem is None:
            try:
                launcher.wait(20)
            except subprocess.TimeoutExpired:
                # All ranks have ended. Open MPI's launcher may miss this if a rank was lost while MPI started (docs/user/cluster.md).
                if delay < MPI_STARTS:
                    is_launcher_stuck = True
                    launcher.kill()
                else:
                    problem = "mpirun does not end"
        if problem is not None:
            print(f"{what}: {problem}")
            report_and_end([launcher.pid, *pids.values()])
        launcher.wait()
    with open(f"{build}/tests/mpi-lost.log", "rb") as log:
        said = log.read().decode(errors="replace")
    if problem is None and victim != 0:
        code = [line for line in said.splitlines() if line.startswith("code ")]
        if code in ([], ["code 1"]) and delay < MPI_STARTS:
            pass  # a rank was lost within MPI_Init: Open MPI ended the other ranks and the shell, or lost their output (docs/user/cluster.md)
        elif len(code) != 1 or code[0] not in codes:
            problem = f"it ended with {code}, not one of {codes}"
        elif code[0] == codes[1] and took > TIMEOUT + 12:
            problem = f"it got the error after {took:.1f} s"
        elif code[0] == codes[1] and f"rank {victim} " not in said and f"MPI{victim}:" not in said and not any(why in said for why in NOT_JOINED):
            problem = f"rank {victim} was not named"
    if problem is not None:
        raise SystemExit(f"seed {seed}, {what}: {problem}\n{said}")
    print(f"{what}: {took:.2f} s{', mpirun was stuck' if is_launcher_stuck else ''}; {[line for line in said.splitlines() if 'rank' in line][:1]}")


# A rank that is lost between MPI_Init and its first message: the program continues without it and names it. If Open MPI is still
# starting, Open MPI may end the program, or mpirun may not end (docs/user/cluster.md).
def lost_before_first_words():
    command = MPIRUN + ["-n", "1", "sh", "-c", '"$@"; echo "code $?"', "sh", f"{build}/tests/mpi-steps", "3", "3",
                        ":", "-n", "1", f"{build}/tests/mpi-gone"]
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60,
                             env=dict(os.environ, BERTH_MPI_TIMEOUT=str(TIMEOUT)))
    except subprocess.TimeoutExpired:
        print("lost before its first message: mpirun was stuck")
        return
    said = run.stdout.decode(errors="replace")
    is_named = "rank 1 " in said or any(why in said for why in NOT_JOINED)
    if "code 1\n" not in said and not ("code 5\n" in said and is_named):
        raise SystemExit(f"lost before its first message: rank 1 was not named\n{said}")


print(f"lost: seed {seed}", flush=True)
lost_before_first_words()
for i in range(n_cases):
    case(i)
