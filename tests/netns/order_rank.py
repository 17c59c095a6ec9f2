# SPDX-License-Identifier: BSD-2-Clause
"""Ranks whose second call begins on rank 1 only when rank 0 has the result of its first: FILE tells."""

import pathlib
import sys
import time

import numpy

import inagg

told = pathlib.Path(sys.argv[1])
with inagg.Communicator() as comm:
    small, large = numpy.ones(8, numpy.float32), numpy.ones(2 << 20, numpy.float32)
    for turn in range(20):
        if comm.rank == 0:
            first = comm.iallreduce(small)
            second = comm.iallreduce(large)  # the first one's result comes while this one is prepared, or just before or after
            assert (first.wait() == comm.size).all()
            told.write_text(str(turn))
        else:
            time.sleep(turn * 2e-4)
            assert (comm.allreduce(small) == comm.size).all()
            while not told.exists() or told.read_text() != str(turn):
                time.sleep(1e-3)
            second = comm.iallreduce(large)
        assert (second.wait() == comm.size).all()
    print(comm.transport)
