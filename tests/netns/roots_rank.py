# SPDX-License-Identifier: BSD-2-Clause
"""A rank of test_canary.py: reductions to each rank, broadcasts from each, barriers. Prints how many calls were exact."""

import json

import numpy as np

import inagg

COUNT = 5000


def elements(rank, root):
    return np.random.default_rng([rank, root]).integers(-1000, 1000, COUNT, dtype=np.int32)


with inagg.Communicator() as comm:
    exact = 0
    for root in range(comm.size):
        total = comm.reduce(elements(comm.rank, root), root=root)
        wanted = sum(elements(rank, root) for rank in range(comm.size))
        exact += (total == wanted).all() if comm.rank == root else total is None
        comm.barrier()
        exact += (comm.broadcast(elements(comm.rank, root), root=root) == elements(root, root)).all()
    print(json.dumps({"exact": int(exact)}), flush=True)
