# SPDX-License-Identifier: BSD-2-Clause
"""A rank of test_exclusion.py. Rank 2 is lost in the third step, comes back as another process, and all finish together.

Each step is an allreduce of ones; step numbers and sums are printed. Who comes back learns from a broadcast where
the others are."""

import os
import subprocess
import sys
import time

import numpy

import inagg

LOST, STEPS_AFTER = 2, 5


def lose(how):
    if how == "kill":
        subprocess.Popen(["sh", "-c", f"sleep 2; exec {sys.executable} {__file__} back"])
        os.kill(os.getpid(), 9)
    subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), 19)


def run(comm, role, step=0):
    last = None
    returned = role == "back"
    while last is None or step < last:
        if returned:  # also the others come here, after renew()
            where = comm.broadcast(numpy.array([step], dtype=numpy.int32), root=0)
            step, last, returned = int(where[0]), int(where[0]) + STEPS_AFTER, False
        if comm.rank == LOST and step == 2 and role in ("kill", "stop"):
            lose(role)
        total = comm.allreduce(numpy.ones(1000, dtype=numpy.int32))
        print("step", step, "sum", int(total.min()), int(total.max()), "excluded", comm.excluded(), flush=True)
        comm.barrier()
        step += 1
        if last is None:
            returned = comm.renew()
            time.sleep(0.02)
    print("done", flush=True)


def main():
    role = sys.argv[1]
    try:
        with inagg.Communicator() as comm:
            run(comm, role)
    except inagg.Error as error:
        print("error", error, flush=True)
        if role != "stop" or "excluded" not in str(error):
            raise
        with inagg.Communicator() as comm:
            run(comm, "back")


main()
