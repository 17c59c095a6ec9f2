# SPDX-License-Identifier: BSD-2-Clause
"""The PyTorch backend against a switch in user space, one forked process a rank.

Usage: torch_test.py SWITCH_PROGRAM; the environment sets INAGG_LIBRARY and PYTHONPATH.
"""

import contextlib
import datetime
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
import unittest

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import inagg.torch

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LIMIT = 60  # seconds for the ranks of a test
FORK = multiprocessing.get_context("fork")  # importing torch again takes seconds


def join(folder, rank, size, **more):
    dist.init_process_group("inagg", init_method=f"file://{folder}/store", rank=rank, world_size=size, **more)


def carried(what, group=None):
    """Calls that the switch has carried."""
    return inagg.torch.stats(group)["carried"].get(what, {"calls": 0})["calls"]


def delegated(group=None):
    """Calls that went to Gloo, by operation and reason."""
    return {what: row["calls"] for what, row in inagg.torch.stats(group)["gloo"].items()}


class Ranks(unittest.TestCase):
    """Runs a function on each rank, with a switch of its own."""

    def setUp(self):
        self.switch = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.environment = {"INAGG_SWITCH": self.switch.stdout.readline().strip(), "INAGG_TRANSPORT": "udp",
                            "INAGG_TIMEOUT_MS": "20000", "GLOO_SOCKET_IFNAME": "lo"}

    def tearDown(self):
        self.switch.communicate()

    def run_ranks(self, size, body, init=True, **environment):
        """body(rank, size) on each rank, in a process group unless not `init`: body(rank, size, folder) then."""
        with tempfile.TemporaryDirectory(prefix="inagg-torch-") as folder:
            problems = FORK.SimpleQueue()
            arguments = (body, init, folder, {**self.environment, **environment}, problems)
            processes = [FORK.Process(target=self.rank_main, args=(rank, size, *arguments)) for rank in range(size)]
            for process in processes:
                process.start()
            end = time.monotonic() + LIMIT
            for process in processes:
                process.join(max(0, end - time.monotonic()))
            late = [rank for rank, process in enumerate(processes) if process.is_alive()]
            for rank in late:
                processes[rank].kill()
            found = []
            while not problems.empty():
                found.append(problems.get())
            if found:
                self.fail("\n".join(found))
            self.assertEqual((late, [process.exitcode for process in processes]), ([], [0] * size))

    @staticmethod
    def rank_main(rank, size, body, init, folder, environment, problems):
        os.environ.update(environment)
        try:
            if init:
                join(folder, rank, size)
                body(rank, size)
                dist.destroy_process_group()
            else:
                body(rank, size, folder)
        except BaseException:  # pylint: disable=broad-except
            problems.put(f"rank {rank}: {traceback.format_exc()}")


class Collectives(Ranks):
    def test_every_type_and_operator(self):
        def body(rank, size):
            for dtype in (*INTEGERS, *FLOATS):
                inputs = [torch.arange(3000) * (other + 3) % 61 - (dtype != torch.uint8) * 7 * other
                          for other in range(size)]
                exact = torch.stack(inputs)
                for op, expected in ((dist.ReduceOp.SUM, exact.sum(0)), (dist.ReduceOp.MIN, exact.amin(0)),
                                     (dist.ReduceOp.MAX, exact.amax(0))):
                    tensor = inputs[rank].clone().to(dtype)
                    dist.all_reduce(tensor, op)
                    torch.testing.assert_close(tensor, expected.to(dtype), rtol=0, atol=0)
            for dtype in FLOATS:
                tensor = torch.full((30, 10), float(rank), dtype=dtype)
                dist.all_reduce(tensor, dist.ReduceOp.AVG)
                torch.testing.assert_close(tensor, torch.full_like(tensor, (size - 1) / 2), rtol=0, atol=0)
            self.assertEqual(carried("all_reduce"), 3 * 9 + 4)
            self.assertEqual(delegated(), {})

        self.run_ranks(3, body)

    def test_integers_wrap(self):
        def body(rank, size):
            for dtype in INTEGERS:
                tensor = torch.full((100,), torch.iinfo(dtype).max - rank, dtype=dtype)
                dist.all_reduce(tensor)
                expected = (torch.full((100,), torch.iinfo(dtype).max, dtype=dtype) - 1 +
                            torch.full((100,), torch.iinfo(dtype).max, dtype=dtype))
                torch.testing.assert_close(tensor, expected)
            self.assertEqual(delegated(), {})

        self.run_ranks(2, body)

    def test_booleans(self):
        def body(rank, size):
            for op, expected in ((dist.ReduceOp.SUM, [False, True, True]), (dist.ReduceOp.MAX, [False, True, True]),
                                 (dist.ReduceOp.MIN, [False, False, True])):
                tensor = torch.tensor([False, rank == 1, True])
                dist.all_reduce(tensor, op)
                self.assertEqual(tensor.tolist(), expected)

        self.run_ranks(2, body)

    def test_any_tensor(self):
        def body(rank, size):
            whole = torch.zeros(40, 30)
            column = whole[:, 3]
            column += rank + 1
            dist.all_reduce(column)
            self.assertTrue((column == 3).all())
            self.assertEqual(whole.sum(), 3 * 40)

            turned = torch.arange(600.0).view(20, 30).t()
            dist.all_reduce(turned)
            torch.testing.assert_close(turned, 2 * torch.arange(600.0).view(20, 30).t())

            scalar, empty = torch.tensor(4.0), torch.empty(0)
            dist.all_reduce(scalar)
            dist.all_reduce(empty)
            dist.broadcast(empty, 0)
            self.assertEqual((scalar.item(), empty.numel()), (8, 0))

            leaf = torch.ones(10, requires_grad=True)
            dist.all_reduce(leaf)
            (leaf * 2).sum().backward()
            self.assertEqual(leaf.grad.tolist(), [2] * 10)
            with torch.inference_mode():
                inferred = torch.ones(10, 10)[:, ::2]
                dist.all_reduce(inferred)
                self.assertTrue((inferred == 2).all())

            complex_numbers = torch.full((5,), 1 + 2j)
            dist.all_reduce(complex_numbers)
            self.assertEqual(complex_numbers.tolist(), [2 + 4j] * 5)
            self.assertEqual(delegated(), {})

        self.run_ranks(2, body)

    def test_handles(self):
        def body(rank, size):
            tensors = [torch.full((20000 + number,), float(number)) for number in range(12)]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            works += [dist.barrier(async_op=True), dist.broadcast(tensors[0], 1, async_op=True)]
            doubled = works[5].get_future().then(lambda future: future.value()[0] * 2)
            for number, work in reversed(list(enumerate(works[:12]))):
                self.assertTrue(work.wait(datetime.timedelta(seconds=20)))
                self.assertTrue(work.is_completed())
                self.assertEqual(work.result()[0].data_ptr(), tensors[number].data_ptr())
                self.assertTrue((tensors[number] == number * size).all())
            self.assertTrue((doubled.wait() == 5 * size * 2).all())
            for work in works:
                work.wait()

            def nested(future):  # which runs in a thread of ours
                return dist.all_reduce(future.value()[0], async_op=True).get_future()

            def waiting(future):  # in a thread that is needed for what it waits for, were it the only one
                return dist.all_reduce(future.value()[0], async_op=True).get_future().then(
                    lambda inner: dist.all_reduce(inner.value()[0]) or inner.value()[0]).wait()

            time.sleep(dist.get_rank() * 0.3)  # so that the future is not done when the callback is added
            deep = dist.all_reduce(torch.ones(100), async_op=True).get_future().then(waiting).wait()
            self.assertTrue((deep == size ** 3).all())

            tensor = torch.ones(100, dtype=torch.float64)
            again = dist.all_reduce(tensor, async_op=True).get_future().then(nested).wait().wait()
            self.assertTrue((again[0] == size * size).all())

        self.run_ranks(3, body)

    def test_a_handle_keeps_its_tensor(self):
        def body(rank, size):
            works = [dist.all_reduce(torch.full((50000,), float(number)), async_op=True) for number in range(5)]
            for number, work in enumerate(works):
                work.wait()
                self.assertTrue((work.result()[0] == number * size).all())

        self.run_ranks(2, body)

    def test_broadcast_reduce_barrier(self):
        def body(rank, size):
            for dtype in (*INTEGERS, *FLOATS, torch.bool, torch.complex64):
                for count in (1, 2, 3, 1001):
                    tensor = torch.arange(count).to(dtype) if rank == 1 else torch.zeros(count, dtype=dtype)
                    dist.broadcast(tensor, 1)
                    self.assertEqual(tensor.tolist(), torch.arange(count).to(dtype).tolist())
            tensor = torch.full((6, 5), float("nan")) if rank == 2 else torch.zeros(6, 5)
            dist.broadcast(tensor[:, 1], 2)
            self.assertEqual(tensor.isnan().sum(), 30 if rank == 2 else 6)

            for dtype in (torch.float32, torch.int64, torch.uint8, torch.float64):
                tensor = torch.full((77,), rank + 1, dtype=dtype)
                dist.reduce(tensor, 1)
                self.assertTrue((tensor == (6 if rank == 1 else rank + 1)).all())
            dist.barrier()
            self.assertEqual((carried("reduce"), carried("barrier")), (4, 1))
            self.assertEqual(delegated(), {})

        self.run_ranks(3, body)

    def test_coalesced(self):
        def body(rank, size):
            tensors = [torch.full((number + 1, 3), float(number)) for number in range(5)]
            dist.all_reduce_coalesced(tensors)
            for number, tensor in enumerate(tensors):
                self.assertTrue((tensor == 2 * number).all() and tensor.shape == (number + 1, 3))
            self.assertEqual((carried("all_reduce_coalesced"), delegated()), (1, {}))

        self.run_ranks(2, body)


class ByGloo(Ranks):
    def test_what_inagg_has_no_call_for(self):
        def body(rank, size):
            tensor = torch.full((4,), rank + 2.0)
            dist.all_reduce(tensor, dist.ReduceOp.PRODUCT)
            self.assertEqual(tensor.tolist(), [6] * 4)
            bits = torch.tensor([1 << rank])
            with self.assertRaisesRegex(RuntimeError, "BOR|bitwise|reduce"):
                dist.all_reduce(bits.to(torch.float32), dist.ReduceOp.BOR)
            lines = [torch.zeros(4) for _ in range(size)]
            dist.all_gather(lines, tensor)
            self.assertEqual(lines[1 - rank].tolist(), [6] * 4)
            objects = [None] * size
            dist.all_gather_object(objects, {"rank": rank})
            self.assertEqual(objects[1], {"rank": 1})
            both = [{"from": 0}] if rank == 0 else [None]
            dist.broadcast_object_list(both, 0)
            self.assertEqual(both, [{"from": 0}])
            dist.gather(tensor, lines if rank == 0 else None, 0)
            dist.scatter(tensor, [torch.full((4,), 1.0), torch.full((4,), 2.0)] if rank == 0 else None, 0)
            self.assertEqual(tensor.tolist(), [rank + 1] * 4)
            received = torch.zeros(2 * size)
            dist.all_to_all_single(received, torch.arange(2.0 * size) + 10 * rank)
            self.assertEqual(received.tolist(), [2 * rank, 2 * rank + 1, 2 * rank + 10, 2 * rank + 11])
            if rank == 0:
                dist.send(tensor, 1, tag=3)
            else:
                dist.recv(tensor, 0, tag=3)
                self.assertEqual(tensor.tolist(), [1] * 4)
            sparse = torch.sparse_coo_tensor([[rank]], [1.0], (3,))
            dist.all_reduce(sparse)
            self.assertEqual(sparse.to_dense().tolist(), [1, 1, 0])
            found = delegated()
            for what in ("all_reduce: PRODUCT", "all_reduce: sparse", "all_gather", "gather", "scatter",
                         "all_to_all_single", "send" if rank == 0 else "recv"):
                self.assertIn(what, found)
            self.assertEqual(carried("all_reduce"), 0)

        self.run_ranks(2, body)

    def test_float64_that_has_no_exact_sum(self):
        """Their sums are Gloo's, in the order of the calls, whatever else goes there meanwhile."""
        def doubles(*values):  # so many that they do not fit one packet, which sums any
            return torch.tensor(values, dtype=torch.float64).repeat(50)

        def body(rank, size):
            wide = [doubles(1e30, rank + 1e-30, number) for number in range(6)]
            works, lines = [], [torch.zeros(1) for _ in range(size)]
            for number, tensor in enumerate(wide):
                works.append(dist.all_reduce(tensor, async_op=True))
                dist.all_gather(lines, torch.full((1,), 10.0 * number + rank))
                self.assertEqual([line.item() for line in lines], [10 * number + other for other in range(size)])
            for number, (work, tensor) in enumerate(zip(works, wide)):
                work.wait()
                torch.testing.assert_close(tensor, doubles(1e30 * size, sum(range(size)), number * size))
            mean, part = doubles(3e30, 3e-30 * (rank == 0)), doubles(3e30, 3e-30 * (rank == 0))
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            torch.testing.assert_close(mean, doubles(3e30, 1e-30))
            dist.reduce(part, 1)
            if rank == 1:
                torch.testing.assert_close(part, doubles(9e30, 3e-30))
            whole = torch.zeros(150, 3, dtype=torch.float64)  # of which one column takes part
            column = whole[:, 1]
            column.copy_(doubles(1e30, rank + 1e-30, 7))
            dist.all_reduce(column)
            torch.testing.assert_close(column, doubles(1e30 * size, sum(range(size)), 7 * size))
            self.assertFalse(whole[:, [0, 2]].any(), "columns that nobody has passed")
            self.assertEqual(delegated(), {"all_gather": 6, "all_reduce: float64 of too many magnitudes": 8,
                                           "reduce: float64 of too many magnitudes": 1})

        self.run_ranks(3, body)

    def test_trio_has_no_64_bits(self):
        def body(rank, size):
            tensor = torch.ones(10, dtype=torch.int64)
            dist.all_reduce(tensor)
            dist.all_reduce(tensor.float())
            self.assertEqual((tensor[0], delegated(), carried("all_reduce")), (2, {"all_reduce: Long": 1}, 1))

        self.run_ranks(2, body, INAGG_ALGORITHM="trio")

    def test_every_float_is_verified(self):
        def body(rank, size):
            for dtype in (torch.int32, *FLOATS):
                tensor = torch.full((3000,), rank + 1, dtype=dtype)
                dist.all_reduce(tensor)
                torch.testing.assert_close(tensor, torch.full_like(tensor, size * (size + 1) / 2), rtol=0, atol=0)
            mean = torch.full((3000,), float(rank))
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            torch.testing.assert_close(mean, torch.full_like(mean, (size - 1) / 2), rtol=0, atol=0)
            self.assertEqual((delegated(), carried("all_reduce")), ({}, 2 + len(FLOATS)))

        for job, algorithm in enumerate(("switchml", "panama", "canary")):
            with self.subTest(algorithm):
                self.run_ranks(3, body, INAGG_ALGORITHM=algorithm, INAGG_JOB=str(job), INAGG_KEY="5e" * 16)

    def test_group_of_one(self):
        def body(rank, size):
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
            dist.broadcast(tensor, 0)
            dist.barrier()
            self.assertEqual(tensor.tolist(), [1] * 3)
            self.assertEqual(delegated(), {"all_reduce: group of one": 2, "broadcast: group of one": 1, "barrier": 1})
            self.assertEqual(inagg.torch.stats()["transport"], "")

        self.run_ranks(1, body, INAGG_SWITCH="")


class Groups(Ranks):
    def test_each_is_a_job(self):
        def body(rank, size):
            unused = dist.new_group([0, 1, 2, 3])
            pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
            mine = pairs[rank // 2]
            works = []
            for number in range(5):
                of_all, of_two = torch.full((5000,), 1.0), torch.full((3000,), float(rank))
                works += [(dist.all_reduce(of_two, group=mine, async_op=True), of_two, 1 if rank < 2 else 5),
                          (dist.all_reduce(of_all, async_op=True), of_all, 4)]
            for work, tensor, expected in works:
                work.wait()
                self.assertTrue((tensor == expected).all())
            dist.broadcast(of_two, 2 if rank >= 2 else 0, group=mine)
            self.assertEqual(inagg.torch.stats()["job"], 7)
            self.assertEqual(inagg.torch.stats(mine)["job"], 9 + rank // 2)
            self.assertEqual(inagg.torch.stats(mine)["transport"], "udp")
            self.assertEqual(inagg.torch.stats(unused)["transport"], "")  # it has not joined
            self.assertEqual((carried("all_reduce", mine), delegated(mine)), (5, {}))

        self.run_ranks(4, body, INAGG_JOB="7")

    def test_named_default_group(self):
        def body(rank, size, folder):
            join(folder, rank, size, group_name="mine")
            other = dist.new_group([0, 1])
            self.assertEqual([inagg.torch.stats(group)["job"] for group in (None, other)], [0, 1])
            dist.all_reduce(torch.ones(3), group=other)

        self.run_ranks(2, body, init=False)

    def test_destroyed_and_made_again(self):
        def body(rank, size, folder):
            models = []  # which hold on to their groups
            for attempt in range(3):
                join(f"{folder}/../{os.path.basename(folder)}", rank, size) if not attempt else dist.init_process_group(
                    "inagg", init_method=f"file://{folder}/store{attempt}", rank=rank, world_size=size)
                models.append(DistributedDataParallel(torch.nn.Linear(4, 4)))
                tensor = torch.full((1000,), float(attempt))
                dist.all_reduce(tensor)
                self.assertTrue((tensor == 2 * attempt).all())
                dist.destroy_process_group()

        self.run_ranks(2, body, init=False)


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(20, 1000), torch.nn.BatchNorm1d(1000), torch.nn.ReLU(),
                               torch.nn.Linear(1000, 300), torch.nn.ReLU(), torch.nn.Linear(300, 3))


def gradients(model, inputs):
    model.zero_grad()
    model(inputs).square().mean().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


class DataParallel(Ranks):
    def test_gradients_are_those_of_all(self):
        def body(rank, size):
            inputs = [torch.randn(8, 20, generator=torch.Generator().manual_seed(other)) for other in range(size)]
            expected = sum(gradients(network(), part) for part in inputs) / size
            model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
            for _ in range(3):  # buckets are made anew after the first
                torch.testing.assert_close(gradients(model, inputs[rank]), expected, rtol=1e-5, atol=1e-7)
            self.assertGreaterEqual(carried("all_reduce"), 3 * 2)  # several buckets each time

            def average_of_bfloat16(_, bucket):
                work = dist.all_reduce(bucket.buffer().bfloat16(), dist.ReduceOp.AVG, async_op=True)
                return work.get_future().then(lambda future: future.value()[0].float())

            for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, average_of_bfloat16):
                model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
                model.register_comm_hook(None, hook)
                torch.testing.assert_close(gradients(model, inputs[rank]), expected, rtol=3e-2, atol=1e-3)
            self.assertTrue(all(what.startswith("all_gather") for what in delegated()), delegated())

        self.run_ranks(3, body)

    def test_unused_parameters_and_float64(self):
        def body(rank, size):
            class Fork(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.ways = torch.nn.ModuleList(torch.nn.Linear(5, 5) for _ in range(size + 1)).double()

                def forward(self, inputs):
                    return self.ways[rank](inputs)

            model = DistributedDataParallel(Fork(), find_unused_parameters=True)
            for _ in range(2):
                model.zero_grad()
                model(torch.ones(2, 5, dtype=torch.float64)).sum().backward()
            grads = [way.weight.grad for way in model.module.ways]
            self.assertEqual([grad is not None and grad[0, 0].item() for grad in grads], [2 / size] * size + [False])

        self.run_ranks(2, body)


@contextlib.contextmanager
def raises(test, pattern):
    """RuntimeError, and how long it took."""
    start = time.monotonic()
    with test.assertRaisesRegex(RuntimeError, pattern):
        yield
    test.assertLess(time.monotonic() - start, 10)


class Errors(Ranks):
    def test_missing_rank(self):
        def body(rank, size):
            dist.barrier()
            if rank == 1:
                time.sleep(4)
                return
            works = [dist.all_reduce(torch.ones(5000), async_op=True) for _ in range(3)]
            for work in works:
                with raises(self, "job 4: no progress for 1500 ms: .*waits for rank 1$|closed: .*rank 1"):
                    work.wait()
                self.assertTrue(work.is_completed())
            with raises(self, "job 4: .* rank 1"):
                works[0].get_future().wait()
            with raises(self, "closed.*rank 1"):
                dist.all_reduce(torch.ones(1))
            with raises(self, "closed.*rank 1"):
                dist.barrier()

        self.run_ranks(3, body, INAGG_TIMEOUT_MS="1500", INAGG_JOB="4")

    def test_missing_rank_of_a_group(self):
        def body(rank, size):
            group = dist.new_group([1, 2])
            if rank == 2:
                with raises(self, r"waits for rank 0 \(ranks of a group: they are 1, 2 of all\)"):
                    dist.all_reduce(torch.ones(5), group=group)
            else:
                time.sleep(1)
            dist.barrier()

        self.run_ranks(3, body, INAGG_TIMEOUT_MS="1500")

    def test_timeout_of_the_group(self):
        def body(rank, size, folder):
            del os.environ["INAGG_TIMEOUT_MS"]
            join(folder, rank, size, timeout=datetime.timedelta(seconds=2))
            if rank == 0:
                with raises(self, "no progress for 2000 ms: .*rank 1"):
                    dist.all_reduce(torch.ones(5))
            else:
                time.sleep(3)

        self.run_ranks(2, body, init=False)

    def test_no_switch(self):
        def body(rank, size, folder):
            with raises(self, "no switch answers for job 0 at 127.0.0.9"):
                join(folder, rank, size)

        self.run_ranks(2, body, init=False, INAGG_SWITCH="127.0.0.9", INAGG_TIMEOUT_MS="500")

    def test_wrong_environment(self):
        for name, value, pattern in (("INAGG_SWITCH", "", "INAGG_SWITCH"), ("INAGG_SCALE", "big", "INAGG_SCALE"),
                                     ("INAGG_JOB", "-3", "INAGG_JOB"), ("INAGG_TRANSPORT", "pigeon", "pigeon")):
            def body(rank, size, folder):
                with raises(self, pattern):
                    join(folder, rank, size)

            with self.subTest(name):
                self.run_ranks(2, body, init=False, **{name: value})

    def test_bad_calls(self):
        def body(rank, size):
            with raises(self, "average of Long"):
                dist.all_reduce(torch.ones(3, dtype=torch.int64), dist.ReduceOp.AVG)
            with raises(self, "would be job 65536.*INAGG_JOB"):
                dist.new_group([0, 1])
            with self.assertRaisesRegex(ValueError, "pg_options"):
                dist.new_group([0, 1], pg_options=1)
            with self.assertRaisesRegex(TypeError, "gloo"):
                inagg.torch.stats(dist.new_group([0, 1], backend="gloo"))
            narrow = torch.zeros(1).expand(5)
            with raises(self, "single memory location"):
                dist.all_reduce(narrow)
            group = dist.distributed_c10d._get_default_group()
            group.leave()
            with raises(self, "left its job"):
                dist.all_reduce(torch.ones(3))
            group.leave()

        self.run_ranks(2, body, INAGG_JOB="65535")


PROGRAM_OF_OTHERS = textwrap.dedent("""
    import sys
    import torch.distributed as dist
    from torch.distributed import init_process_group

    init_process_group({backend} init_method="file://" + sys.argv[1], rank=0, world_size=1)
    groups = [dist.new_group([0]), dist.new_group([0], backend="gloo")]
    print(__name__, __file__, dist.get_backend(), *map(dist.get_backend, groups))
""")


class Launcher(unittest.TestCase):
    """python3 -m inagg.torch, with programs that know nothing of inagg."""

    def run_program(self, *command):
        return subprocess.run([sys.executable, "-m", "inagg.torch", *command], capture_output=True, text=True,
                              env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, timeout=LIMIT, check=False)

    def test_backends_are_replaced(self):
        with tempfile.TemporaryDirectory(prefix="inagg-torch-") as folder:
            for backend in ('"gloo",', 'backend="nccl",', ""):
                path = os.path.join(folder, "train.py")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(PROGRAM_OF_OTHERS.format(backend=backend))
                done = self.run_program(path, os.path.join(folder, f"store{len(backend)}"))
                self.assertEqual((done.stdout, done.returncode),
                                 (f"__main__ {path} inagg inagg inagg\n", 0), done.stderr)

    def test_no_program(self):
        done = self.run_program()
        self.assertIn("python3 -m inagg.torch train.py", done.stderr)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
