# SPDX-License-Identifier: BSD-2-Clause
"""A rank that sums tensors of random sizes and types for a time, several in flight, and compares every element.

Arguments: SECONDS SEED ELEMENTS (at most, of a tensor). It prints one JSON object: what was checked, what was wrong, or
the error that ended the job and how long the call had lasted. Status: 0, 1 after an error of inagg, 3 if a sum is wrong.
"""

import json
import os
import random
import sys
import time

import numpy

import inagg

# Integers below the limit times the unit: any sum of them is exact in the type and on any scale that fits them.
TYPES = {"int32": (2**26, 1), "int64": (2**57, 1), "float16": (2**6, 1), "float32": (2**15, 2**-8), "float64": (2**40, 2**-20)}
OPS = {inagg.SUM: numpy.add, inagg.MIN: numpy.minimum, inagg.MAX: numpy.maximum}


def data_of(seed, dtype, size, count):
    """What all ranks send: a row each."""
    limit, unit = TYPES[dtype]
    rows = numpy.random.default_rng(seed).integers(-limit, limit, (size, count))
    return (rows * unit).astype(dtype) if unit != 1 else rows.astype(dtype)


class Rank:
    def __init__(self, comm, seconds, seed, most):
        self.comm, self.most = comm, most
        self.types = [name for name in TYPES if not (name.endswith("64") and os.environ["INAGG_ALGORITHM"] == "trio")]
        self.choices = random.Random(seed)  # the same on all ranks
        self.end = time.monotonic() + seconds
        self.seen = {"rounds": 0, "tensors": 0, "elements": 0, "wrong": 0}

    def begin(self):
        """Start a tensor; returns its request and what its result has to be."""
        dtype, op = self.choices.choice(self.types), self.choices.choice(list(OPS))
        rows = data_of(self.choices.getrandbits(32), dtype, self.comm.size, self.choices.randint(1, self.most))
        return self.comm.iallreduce(rows[self.comm.rank], op=op), OPS[op].reduce(rows, axis=0, dtype=dtype)

    def round(self):
        """Some tensors at once; false when rank 0 has had enough."""
        for request, wanted in [self.begin() for _ in range(self.choices.randint(1, 4))]:
            self.seen["tensors"] += 1
            self.seen["elements"] += wanted.size
            self.seen["wrong"] += int(numpy.count_nonzero(request.wait() != wanted))
        self.seen["rounds"] += 1
        late = self.comm.rank == 0 and time.monotonic() > self.end
        return not self.comm.allreduce(numpy.array([late], numpy.int32))[0]


def say(what):
    """One line at once: another job's process writes there, too."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main():
    seconds, seed, most = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    seen, begun = {}, time.monotonic()
    try:
        with inagg.Communicator() as comm:
            rank = Rank(comm, seconds, seed, most)
            seen, begun = rank.seen, time.monotonic()
            while rank.round():
                begun = time.monotonic()
    except inagg.Error as error:
        say({**seen, "error": str(error), "after": round(time.monotonic() - begun, 3)})
        sys.exit(1)
    say(seen)
    sys.exit(3 if seen["wrong"] else 0)


if __name__ == "__main__":
    main()
