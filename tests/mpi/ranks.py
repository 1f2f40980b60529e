# SPDX-License-Identifier: MIT
"""ranks.py: the processes that an mpirun has started."""
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
