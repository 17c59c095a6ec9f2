# SPDX-License-Identifier: BSD-2-Clause
"""A rank that sums 64-bit elements and compares with exact arithmetic; prints the transport."""

import fractions
import os

import numpy

import inagg

with inagg.Communicator() as comm:
    data = numpy.random.default_rng(1).normal(size=(comm.size, 3000))
    exact = [float(sum(map(fractions.Fraction, column))) for column in data.T]  # float() rounds once
    for count in (3000, 2):  # in two steps, in one
        numpy.testing.assert_array_equal(comm.allreduce(data[comm.rank, :count]), exact[:count])
        if "INAGG_KEY" not in os.environ:  # maxima cannot be verified
            numpy.testing.assert_array_equal(comm.allreduce(data[comm.rank, :count], op=inagg.MAX), data[:, :count].max(0))
    integers = data.view(numpy.int64)
    numpy.testing.assert_array_equal(comm.allreduce(integers[comm.rank]), integers.sum(0))  # wraps, as NumPy's does
    print(comm.transport)
