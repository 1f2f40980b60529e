# SPDX-License-Identifier: MIT
"""ranks.py: the processes that an mpirun has started."""
import os
import shutil
import signal
import subprocess
import time

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--enable-recovery", "-q"]


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def rank_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            for word in file.read().split(b"\0"):
                if word.startswith(b"OMPI_COMM_WORLD_RANK="):
                    return int(word.split(b"=")[1])
    except OSError:
        pass
    return None


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def ranks(launcher, n):
    end = time.time() + 20
    while time.time() < end:
        found = {rank_of(pid): pid for pid in children(launcher.pid)}
        if all(i in found for i in range(n)):
            return found
        time.sleep(0.005)
    raise SystemExit("the ranks did not start")


def until(what, seconds):
    end = time.time() + seconds
    while not what() and time.time() < end:
        time.sleep(0.01)
    return what()


# Returns the processes of the list that still exist, with all their descendants.
def with_children(pids):
    return [there for pid in pids if is_there(pid) for there in [pid, *with_children(children(pid))]]


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError as error:
        return error.strerror


# Describes each thread of a process: its stack if gdb is available, and its wait in the kernel.
def doing(pid):
    lines = [f"---- process {pid}, rank {rank_of(pid)}: {read(f'/proc/{pid}/cmdline')}"]
    for tid in sorted(os.listdir(f"/proc/{pid}/task"), key=int) if os.path.isdir(f"/proc/{pid}/task") else []:
        at = f"/proc/{pid}/task/{tid}/"
        state = read(at + "stat").rsplit(")", 1)[-1].split()[:1]
        lines.append(f"thread {tid} {read(at + 'comm')}: state {state}, in {read(at + 'wchan')}, call {read(at + 'syscall')}")
        lines.append(read(at + "stack"))
    if shutil.which("gdb") is not None:
        try:
            gdb = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set debuginfod enabled off", "-ex", "thread apply all bt 30"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=20)
            lines.append(gdb.stdout.decode(errors="replace")[-20000:])
        except subprocess.TimeoutExpired:
            lines.append("gdb did not return in time")
    return "\n".join(lines)


# After a timeout: prints what all processes are doing, and ends them.
def report_and_end(pids):
    there = list(dict.fromkeys(with_children(pids)))
    for pid in there:
        print(doing(pid), flush=True)
    for pid in there:
        for number in [signal.SIGCONT, signal.SIGKILL]:
            if is_there(pid):
                os.kill(pid, number)
