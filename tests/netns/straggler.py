# SPDX-License-Identifier: BSD-2-Clause
"""A rank of test_exclusion.py: `straggler.py kill|stop|back|judged DIRECTORY`. Rank 2 is lost in the third step, comes back as
another process (back) or wakes up, and all finish together. With `judged` nobody is excluded: all say what they hear of rank 2.

Each step is an allreduce of ones; step numbers and sums are printed. Nobody comes back before the others have said, by a file each
in DIRECTORY, that they know of the exclusion. Who comes back learns from a broadcast where the others are."""

import os
import pathlib
import signal
import sys
import time

import numpy

import inagg

LOST, STEPS_AFTER = 2, 5
PATIENCE = 60  # seconds until who waits for the others gives up


def wait_until_out(directory, others):
    deadline = time.monotonic() + PATIENCE
    while not all((directory / str(rank)).exists() for rank in others):
        if time.monotonic() > deadline:
            sys.exit("the others never said that a rank is excluded")
        time.sleep(0.05)


def lose(how, directory, size):
    others = [rank for rank in range(size) if rank != LOST]
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    rank = os.getpid()
    if os.fork() == 0:
        try:
            wait_until_out(directory, others)
        finally:
            os.kill(rank, signal.SIGCONT)
            os._exit(0)
    os.kill(rank, signal.SIGSTOP)


def run(comm, role, directory):
    step, last = 0, None
    returned = role == "back"
    while last is None or step < last:
        if returned:  # also the others come here, after renew()
            where = comm.broadcast(numpy.array([step], dtype=numpy.int32), root=0)
            step, last, returned = int(where[0]), int(where[0]) + STEPS_AFTER, False
        if comm.rank == LOST and step == 2 and role in ("kill", "stop"):
            lose(role, directory, comm.size)
        total = comm.allreduce(numpy.ones(1000, dtype=numpy.int32))
        print("step", step, "sum", int(total.min()), int(total.max()), "excluded", comm.excluded(), flush=True)
        if total.max() < comm.size and comm.excluded():
            (directory / str(comm.rank)).touch()
        comm.barrier()
        step += 1
        if last is None:
            returned = comm.renew()
            time.sleep(0.02)
    print("done", flush=True)


def judgement(comm):
    temporary, permanent = comm.stragglers()
    return "permanent" if permanent >> LOST & 1 else "temporary" if temporary >> LOST & 1 else "none"


def run_judged(comm, directory):
    others = [rank for rank in range(comm.size) if rank != LOST]
    step, heard, deadline = 0, ["none"], time.monotonic() + PATIENCE
    while not all((directory / f"{rank}.over").exists() for rank in others):
        if time.monotonic() > deadline:
            sys.exit("the others never heard what they wait for")
        if comm.rank == LOST and step == 2:
            lose("stop", directory, comm.size)
        comm.allreduce(numpy.ones(1000, dtype=numpy.int32))
        if (now := judgement(comm)) != heard[-1]:
            print("heard", now, flush=True)
            heard.append(now)
        if now == "permanent":
            (directory / str(comm.rank)).touch()  # let it wake up
        elif now == "none" and "permanent" in heard:
            (directory / f"{comm.rank}.over").touch()
        step += 1
        time.sleep(0 if comm.blocks_ahead() else 0.02)  # who is behind catches up


def main():
    role, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    if role == "back":
        wait_until_out(directory, [rank for rank in range(int(os.environ["INAGG_SIZE"])) if rank != LOST])
    try:
        with inagg.Communicator() as comm:
            if role == "judged":
                run_judged(comm, directory)
            else:
                run(comm, role, directory)
    except inagg.Error as error:
        print("error", error, flush=True)
        if role != "stop" or "excluded" not in str(error):
            raise
        with inagg.Communicator() as comm:
            run(comm, "back", directory)


main()
