#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stuck.py BUILD: a worker whose thread hangs in an op while its other threads run (BERTH_MPI_STALL), and a worker that is stopped
completely (BERTH_MPI_TIMEOUT). The program must get an error in time that names the rank and the reason, and end by itself; no process
may be left running."""
import ctypes
import os
import signal
import subprocess
import sys
import time

from ranks import MPIRUN, is_there, ranks, report_and_end, until

build = sys.argv[1]
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_CONT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 7, 17, 0x40000000
SLACK = 10  # seconds, for a machine with much to do
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(what, tid):
    if libc.ptrace(what, tid, None, None) != 0:
        number = ctypes.get_errno()
        if what == PTRACE_SEIZE:
            print(f"stuck: SKIPPED: this system does not allow stopping a thread of another process: {os.strerror(number)}")
            sys.exit(77)
        raise SystemExit(f"ptrace {what:#x} of {tid}: {os.strerror(number)}")


# Returns true if the stopped thread is in a kernel of the CPU backend.
def is_in_op(pid):
    with open(f"/proc/{pid}/syscall") as file:
        words = file.read().split()
    if words[0] != "-1":
        return False
    at = int(words[-1], 16)
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            if begin <= at < end:
                return "libggml-cpu" in line
    return False


# Stops the thread that executes commands while it is inside an op. The other threads of the process continue.
def thread_stop(pid):
    ptrace(PTRACE_SEIZE, pid)
    for _ in range(10000):
        ptrace(PTRACE_INTERRUPT, pid)
        os.waitpid(pid, WALL)
        if is_in_op(pid):
            return
        ptrace(PTRACE_CONT, pid)
        time.sleep(0.002)
    raise SystemExit("stuck: the worker was never found in an op")


def thread_let_go(pid):
    if is_there(pid):
        libc.ptrace(PTRACE_DETACH, pid, None, None)


def process_stop(pid):
    os.kill(pid, signal.SIGSTOP)


def process_let_go(pid):
    if is_there(pid):
        os.kill(pid, signal.SIGCONT)


def case(name, net, stop, let_go, env, at_least, at_most, why):
    program = ["sh", "-c", '"$@"; echo "code $?"', "sh", f"{build}/tests/mpi-steps", "100000", "400"]
    path = f"{build}/tests/mpi-stuck.log"
    with open(path, "wb") as log:
        launcher = subprocess.Popen(MPIRUN + ["--mca", "btl", net, "-n", "1"] + program +
                                    [":", "-n", "2", f"{build}/bin/berth", "worker", "-t", "1"],
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ, **env))
        pids = ranks(launcher, 3)
        time.sleep(2)
        stop(pids[2])
        began = time.time()
        problem = None if until(lambda: not is_there(pids[0]), at_most + SLACK) else "the program hangs"
        took = time.time() - began
        let_go(pids[2])
        if problem is None and not until(lambda: not any(is_there(pid) for pid in pids.values()), SLACK + 5):
            problem = "a process is still running: " + ", ".join(f"rank {r}" for r, pid in pids.items() if is_there(pid))
        if problem is not None:
            report_and_end([launcher.pid, *pids.values()])
        launcher.wait()
    with open(path, "rb") as log:
        said = log.read().decode(errors="replace")
    if problem is None and "code 5" not in said:
        problem = "it did not end with exit code 5"
    if problem is None and not ("rank 2 " in said and why in said):
        problem = f"it did not report for rank 2: {why}"
    if problem is None and not at_least <= took <= at_most + SLACK:
        problem = f"reported after {took:.1f} s, not {at_least} to {at_most}"
    if problem is not None:
        raise SystemExit(f"stuck: {name}: {problem}\n{said}")
    print(f"stuck: {name}, {net}: reported after {took:.1f} s", flush=True)


for net in ["vader,self", "tcp,self"]:
    case("a thread that hangs", net, thread_stop, thread_let_go, {"BERTH_MPI_TIMEOUT": "60", "BERTH_MPI_STALL": "2"}, 1, 4,
         "it is alive, but has been in one op")
    case("a process that is stopped", net, process_stop, process_let_go, {"BERTH_MPI_TIMEOUT": "2", "BERTH_MPI_STALL": "60"},
         1, 3, "it has sent nothing")
