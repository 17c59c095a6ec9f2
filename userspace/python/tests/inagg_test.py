# SPDX-License-Identifier: BSD-2-Clause
"""The Python module against a switch in user space, one thread a rank.

Usage: inagg_test.py SWITCH_PROGRAM; the environment sets INAGG_LIBRARY and PYTHONPATH.
"""

import subprocess
import sys
import threading
import unittest

import numpy

import inagg


class Ranks(unittest.TestCase):
    """Runs a function for each rank against a switch of its own."""

    def setUp(self):
        self.switch = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.switch.stdout.readline().strip()

    def tearDown(self):
        self.switch.communicate()

    def run_ranks(self, size, body):
        results, errors = [None] * size, []

        def run(rank):
            try:
                with inagg.Communicator(switch_address=self.address, rank=rank, size=size, transport="udp") as comm:
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
            for dtype in ("int32", "float32", "float16"):
                data = numpy.arange(3000, dtype=dtype).reshape(30, 100) % 64
                total = comm.allreduce(data)
                numpy.testing.assert_array_equal(total, data * comm.size)
                self.assertEqual(total.dtype, data.dtype)
            ones = numpy.full(100, 0x3F80, dtype=numpy.uint16)
            numpy.testing.assert_array_equal(comm.allreduce(ones, dtype=inagg.BFLOAT16), 0x4040)

        self.run_ranks(3, body)

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

    def test_errors(self):
        with self.assertRaisesRegex(inagg.Error, "rank 2"):
            inagg.Communicator(switch_address=self.address, rank=2, size=2)
        with self.assertRaisesRegex(TypeError, "unknown options"):
            inagg.Communicator(ranks=2)

        def body(comm):
            with self.assertRaises(TypeError):
                comm.allreduce(numpy.zeros(3))
            with self.assertRaises(ValueError):
                comm.allreduce(numpy.zeros(3, dtype=numpy.float32), out=numpy.zeros(2, dtype=numpy.float32))

        self.run_ranks(1, body)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
