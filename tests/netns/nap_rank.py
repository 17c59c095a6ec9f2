# SPDX-License-Identifier: BSD-2-Clause
"""A rank of test_canary.py: sums twice, and rank 1 is stopped for a moment in the first. Prints the stats of each rank."""

import json
import os
import signal
import time

import numpy as np

import inagg

COUNT = 1 << 18  # half a second at 20 Mbit/s
NAP = 0.3  # seconds


def stop_this_rank_soon():
    rank = os.getpid()
    if os.fork():
        return
    time.sleep(0.1)
    os.kill(rank, signal.SIGSTOP)
    time.sleep(NAP)
    os.kill(rank, signal.SIGCONT)
    os._exit(0)


with inagg.Communicator() as comm:
    comm.barrier()
    if comm.rank == 1:
        stop_this_rank_soon()
    for _ in range(2):
        assert (comm.allreduce(np.full(COUNT, 1 + comm.rank, np.int32)) == comm.size * (comm.size + 1) // 2).all()
    comm.barrier()
    if comm.rank == 1:
        os.wait()
    print(json.dumps(comm.stats()), flush=True)
