# SPDX-License-Identifier: BSD-2-Clause
"""A rank of test_guess.py: sums whose scales stay and change. Prints the blocks that calls took, and a hash."""

import hashlib
import json
import os
import sys

import numpy as np

import inagg

COUNT = 1000  # three blocks at MTU 1500
RANK = int(os.environ["INAGG_RANK"])


def elements(exponent, seed, count=COUNT):
    """Magnitudes below 2^exponent, the largest of them just below."""
    values = np.random.default_rng([seed, RANK]).uniform(-1, 1, count).astype(np.float32)
    values[seed % count] = 0.99
    return values * np.float32(2.0**exponent)


def one_at_a_time(comm, digest):
    """Blocks of each call."""
    inputs = [elements(0, seed) for seed in range(8)]
    inputs += [elements(3 if RANK == 1 else 0, seed) for seed in range(8, 16)]  # one rank's grow
    inputs += [elements(-20, seed) for seed in range(16, 24)]                   # all shrink
    inputs += [elements(-20, seed) for seed in range(24, 30)]
    if RANK == 2:
        inputs[24][17] = np.inf
    taken = []
    for i, values in enumerate(inputs):
        before = comm.stats()["blocks"]
        total = comm.allreduce(values, out=values if i % 2 else None)  # in place, too
        taken.append(comm.stats()["blocks"] - before)
        digest.update(total.tobytes())
    return taken


def queued(comm, digest):
    """Small and large ones, and other types, on their way at once, with scales that change."""
    requests = [comm.iallreduce(elements(seed % 5 // 2, seed, [1, 352, 1000, 1409, 20000][seed % 7 % 5])
                                .astype([np.float32, np.float16, np.float32, np.int32][seed % 4]))
                for seed in range(100, 140)]
    for request in requests:
        digest.update(request.wait().tobytes())


with inagg.Communicator(transport=sys.argv[1 + RANK]) as comm:
    digest = hashlib.sha256()
    blocks = one_at_a_time(comm, digest)
    queued(comm, digest)
    comm.barrier()
    print(json.dumps({"transport": comm.transport, "blocks": blocks, "hash": digest.hexdigest()}), flush=True)
