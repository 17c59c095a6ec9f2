# SPDX-License-Identifier: BSD-2-Clause
"""The Python module against a switch in user space, one thread a rank.

Usage: inagg_test.py SWITCH_PROGRAM; the environment sets INAGG_LIBRARY and PYTHONPATH.
"""

import fractions
import os
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import numpy

import inagg


class Ranks(unittest.TestCase):
    """Runs a function for each rank against a switch of its own."""

    def setUp(self):
        self.switch = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.switch.stdout.readline().strip()

    def tearDown(self):
        self.switch.communicate()

    def run_ranks(self, size, body, **options):
        results, errors = [None] * size, []

        def run(rank):
            try:
                with inagg.Communicator(switch_address=self.address, rank=rank, size=size, transport="udp",
                                        **options) as comm:
                    results[rank] = body(comm)
            except Exception as error:  # pylint: disable=broad-except
                errors.append(error)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results

    def test_allreduce_of_every_type(self):
        def body(comm):
            for dtype in ("int32", "float32", "float16", "int64", "float64"):
                data = numpy.arange(3000, dtype=dtype).reshape(30, 100) % 64
                total = comm.allreduce(data)
                numpy.testing.assert_array_equal(total, data * comm.size)
                self.assertEqual(total.dtype, data.dtype)
            self.assertEqual(comm.allreduce(numpy.array(1.5)), numpy.array(4.5))
            self.assertEqual(comm.allreduce(numpy.array(1.5)).shape, ())
            ones = numpy.full(100, 0x3F80, dtype=numpy.uint16)
            numpy.testing.assert_array_equal(comm.allreduce(ones, dtype=inagg.BFLOAT16), 0x4040)

        self.run_ranks(3, body)

    def test_sums_of_float64_are_exact(self):
        tensors = numpy.random.default_rng(1).normal(size=(5, 200)) * 10.0 ** numpy.arange(-6, 4).repeat(20)
        exact = [float(sum(map(fractions.Fraction, column))) for column in tensors.T]  # float() rounds once

        def body(comm):
            numpy.testing.assert_array_equal(comm.allreduce(tensors[comm.rank]), exact)
            with self.assertRaisesRegex(inagg.Error, "more than the 112 bits"):
                comm.allreduce(numpy.repeat([1e-30, 1e30], 100))

        self.run_ranks(5, body)

    def test_operators_and_out(self):
        def body(comm):
            data = numpy.full(50, comm.rank, dtype=numpy.float32)
            self.assertEqual(comm.allreduce(data, op=inagg.MIN)[0], 0)
            self.assertIs(comm.allreduce(data, op=inagg.MAX, out=data), data)
            self.assertEqual(data[49], comm.size - 1)

        self.run_ranks(3, body)

    def test_requests_in_flight(self):
        def body(comm):
            requests = [comm.iallreduce(numpy.full(1000 + i, i, dtype=numpy.int32)) for i in range(8)]
            for i, request in enumerate(requests):
                numpy.testing.assert_array_equal(request.wait(), numpy.full(1000 + i, 2 * i))

        self.run_ranks(2, body)

    def test_requests_of_all_kinds_in_flight(self):
        def body(comm):
            data = numpy.full(1000, comm.rank, dtype=numpy.int32)
            copy, doubles = data.copy(), data + 0.5
            requests = [comm.ibroadcast(copy, root=1), comm.ibarrier(), comm.ireduce(doubles, root=1), comm.iallreduce(data)]
            results = [request.wait() for request in reversed(requests)][::-1]
            numpy.testing.assert_array_equal(copy, 1)
            self.assertIs(results[0], copy)
            self.assertIsNone(results[1])
            self.assertEqual(None if comm.rank == 0 else 2.0, None if results[2] is None else results[2][999])
            numpy.testing.assert_array_equal(results[3], 1)

        self.run_ranks(2, body)

    def test_requests_outlive_their_communicator(self):
        comms = []
        data = numpy.arange(1000, dtype=numpy.int32)

        def body(comm):
            comms.append(comm)
            return comm.iallreduce(data), comm.iallreduce(data + 1)

        (first, second), = self.run_ranks(1, body)
        with self.assertRaisesRegex(inagg.Error, "has left"):
            comms[0].barrier()
        self.assertTrue(first.test())
        numpy.testing.assert_array_equal(first.wait(), data)
        numpy.testing.assert_array_equal(second.wait(), data + 1)

    def test_request_keeps_its_communicator(self):
        data = numpy.arange(1000, dtype=numpy.int32)

        def request():
            return inagg.Communicator(switch_address=self.address, rank=numpy.int64(0), size=numpy.int64(1),
                                      transport="udp").iallreduce(data)

        numpy.testing.assert_array_equal(request().wait(), data)

    def test_a_failed_request_fails_at_every_wait(self):
        def body(comm):
            request = comm.iallreduce(numpy.full(100, 3e38, dtype=numpy.float32))
            for _ in range(2):
                with self.assertRaisesRegex(inagg.Error, "scale"):
                    request.wait()

        self.run_ranks(1, body, scale=20)

    def test_broadcast_reduce_barrier_stats(self):
        def body(comm):
            data = numpy.full(77, comm.rank, dtype=numpy.float32)
            comm.broadcast(data, root=1)
            self.assertEqual(data[76], 1)
            total = comm.reduce(data, root=0)
            if comm.rank == 0:
                self.assertEqual(total[0], 2)
            else:
                self.assertIsNone(total)
            comm.barrier()
            self.assertEqual(comm.transport, "udp")
            self.assertGreater(comm.stats()["blocks"], 2)

        self.run_ranks(2, body)

    def test_trio_goes_on_without_a_straggler(self):
        ahead = threading.Semaphore(0)

        def body(comm):
            comm.barrier()  # two suffice for a result: it must not come before the third has joined
            data = numpy.full(2000, comm.rank, dtype=numpy.float32)
            if comm.rank == 2:
                ahead.acquire()
                ahead.acquire()
                end = time.monotonic() + 10
                while not comm.blocks_ahead() and time.monotonic() < end:
                    time.sleep(0.001)  # the others have their copies of the results, ours may be on its way
                self.assertGreater(comm.blocks_ahead(), 0)
            mean = comm.allreduce(data, op=inagg.AVG)
            outcome = inagg.last_outcome()
            numpy.testing.assert_array_equal(mean, 0.5)
            self.assertEqual((outcome.in_all, outcome.in_any, outcome.fewest), (3, 3, 2))
            self.assertEqual(outcome.degraded_blocks, outcome.blocks)
            self.assertEqual(inagg.last_contributors(0), 3)
            self.assertEqual(inagg.last_contributors(outcome.blocks), 0)
            ahead.release()
            comm.barrier()
            self.assertEqual(inagg.last_outcome().in_all, 7)
            return comm.stats()["skipped"]

        self.assertGreater(self.run_ranks(3, body, algorithm="trio", quorum=2)[2], 0)

    def test_trio_is_asked_for(self):
        with self.assertRaisesRegex(inagg.Error, "INAGG_ALGORITHM=trio"):
            inagg.Communicator(switch_address=self.address, rank=0, size=1, expiry_us=1000)
        with self.assertRaisesRegex(inagg.Error, "use afxdp, kernel, udp"):
            inagg.Communicator(switch_address=self.address, rank=0, size=1, algorithm="trio", transport="xdp")

    def test_what_is_not_given_is_the_environments(self):
        alone = {"rank": 0, "size": 1}
        with mock.patch.dict(os.environ, INAGG_TRANSPORT="pigeon"), self.assertRaisesRegex(inagg.Error, "pigeon"):
            inagg.Communicator(switch_address=self.address, **alone)
        with mock.patch.dict(os.environ, INAGG_KEY="zz"), self.assertRaisesRegex(inagg.Error, "INAGG_KEY"):
            inagg.Communicator(switch_address=self.address, **alone)
        launched = {"INAGG_SWITCH": self.address, "INAGG_TRANSPORT": "udp", "OMPI_COMM_WORLD_RANK": "99",
                    "OMPI_COMM_WORLD_SIZE": "128"}
        with mock.patch.dict(os.environ, launched), inagg.Communicator(**alone) as comm:
            self.assertEqual((comm.rank, comm.size), (0, 1))
        with mock.patch.dict(os.environ, INAGG_SWITCH=""), self.assertRaisesRegex(inagg.Error, "INAGG_SWITCH is not set"):
            inagg.Communicator(**alone)

    def test_errors(self):
        with self.assertRaisesRegex(inagg.Error, "rank 2"):
            inagg.Communicator(switch_address=self.address, rank=2, size=2)
        with self.assertRaisesRegex(TypeError, "unknown options"):
            inagg.Communicator(ranks=2)
        good = {"switch_address": self.address, "rank": 0, "size": 1}
        for name, value in {"job": 65543, "rank": 65536, "size": -65534, "timeout_ms": 2**32, "scale": 2**31}.items():
            with self.assertRaisesRegex(ValueError, f"{name} {value}: it must be"):
                inagg.Communicator(**{**good, name: value})

        def body(comm):
            with self.assertRaises(TypeError):
                comm.allreduce(numpy.zeros(3, dtype=complex))
            with self.assertRaises(ValueError):
                comm.allreduce(numpy.zeros(3, dtype=numpy.float32), out=numpy.zeros(2, dtype=numpy.float32))
            other = numpy.dtype(numpy.float32).newbyteorder()
            with self.assertRaisesRegex(TypeError, r"astype\('float32'\)"):
                comm.allreduce(numpy.array([1, 2, 3], dtype=other))
            data = numpy.zeros(3, dtype=numpy.float32)
            for call in (comm.broadcast, comm.reduce):
                with self.assertRaisesRegex(ValueError, "root -65536: it must be 0 to 65535"):
                    call(data, root=-65536)
            with self.assertRaisesRegex(ValueError, "operator 4294967296"):
                comm.allreduce(data, op=2**32)
            with self.assertRaisesRegex(TypeError, "operator 'sum': it must be inagg.SUM"):
                comm.allreduce(data, op="sum")

        self.run_ranks(1, body)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
