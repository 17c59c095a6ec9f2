# SPDX-License-Identifier: BSD-2-Clause
"""panama: floats are added in the switch, in an order that depends on nothing but who is where."""

import re

import pytest

from allreduce import DTYPES, QUICK, THREE_A_JOB, TRANSPORTS, allreduce, assert_lossy, compared, objects
from netns import HERE, PYTHON, netns


def panama(tmp_path, workers, *perf, options=(), **more):
    return allreduce(tmp_path, workers, *perf, algorithm="panama", options=options, **more)


@pytest.mark.parametrize("transport", [name for name in TRANSPORTS if name != "xdp"])
def test_types(tmp_path, transport):
    panama(tmp_path, 4, "-b", "4K", "-e", "256K", "-f", 8, *QUICK, "-d", DTYPES, transport=transport)


def test_operators(tmp_path):
    panama(tmp_path, 3, "-b", "64K", "-e", "64K", *QUICK, "-o", "min,max,avg", options=("--ipv6",))


def test_bad_links_and_damage(tmp_path):
    assert_lossy(panama(tmp_path, 5, "-b", "64K", "-e", "64K", *QUICK, options=("--loss", 0.02, "--dup", 0.05, "--reorder", 0.1)))
    assert_lossy(panama(tmp_path, 4, "-b", "64K", "-e", "64K", *QUICK, options=("--corrupt", 0.01)))


def test_switch_that_forgets(tmp_path):
    panama(tmp_path, 4, "-b", "256K", "-e", "256K", *compared(40), restarts=True,
           options=("--also-in-switch", "while inaggctl slots clear; do sleep 0.1; done"))


def tree_sums(tmp_path, workers, *arguments, options=()):
    run = netns(tmp_path, "--workers", workers, "--algorithm", "panama", "--transport", "udp", *options, "--",
                PYTHON, HERE / "tree_sums.py", *arguments, environment={"PYTHONPATH": str(HERE.parents[1] / "userspace/python")})
    assert run.status == 0
    uneven = re.search(r"(\d+) of \d+ elements depend on the order", "\n".join(run.lines(0)))
    assert int(uneven[1]) > 0  # else the order would not matter


@pytest.mark.parametrize("options", [(), ("--loss", 0.01, "--dup", 0.02, "--reorder", 0.1)])
def test_same_bits_in_every_round(tmp_path, options):
    tree_sums(tmp_path, 8, 100, 10_000, 8, options=options)


def test_same_bits_in_a_tree_of_switches(tmp_path):
    tree_sums(tmp_path, 7, 20, 10_000, 2, 2, 3, options=("--topology", "two-level", "--loss", 0.01))


def test_caps_keep_memory_in_bounds(tmp_path):
    """Eight jobs of 3 ranks share 72 buffers, one for each of their blocks in flight: eight each, with one job's part left
    for the next. The blocks of rank 2 wait for those of rank 0; of jobs that do not heed the caps some are refused."""
    jobs = [f"--inaggd-arg=--job={job}:size=3,algorithm=panama" for job in range(1, 9)]  # their counters stay

    def refused(environment):
        run = netns(tmp_path, "--workers", 24, "--algorithm", "panama", "--transport", "udp", "--inaggd-arg=--buffers=72", *jobs, "--",
                    "sh", "-c", THREE_A_JOB +
                    "inagg-perf allreduce -b 128K -e 128K -n 5 -w 1 --straggle 0:20ms --check && "
                    "{ test $INAGG_JOB$INAGG_RANK != 10 || { sleep 1; inaggctl --json drops; }; }", environment=environment)
        assert run.status == 0
        rows = next(value for value in objects("\n".join(run.lines(0)) + "\n") if isinstance(value, list))
        return sum(row["packets"] for row in rows if row["reason"] == "FULL")
    assert refused({}) == 0
    assert refused({"INAGG_CONGESTION_CONTROL": "0"}) > 0


def test_few_buffers_slow_a_job_down_and_stop_none(tmp_path):
    """Two for each block of six ranks, which all send 128 at once, and four in all: blocks begin only if they can end."""
    panama(tmp_path, 6, "-b", "64K", "-e", "64K", *QUICK, options=("--inaggd-arg=--buffers=4",), restarts=True,
           environment={"INAGG_CONGESTION_CONTROL": "0"})


def test_what_the_dead_waited_for_is_free_after_a_while(tmp_path):
    """Job after job loses a rank in mid-block, and its others give up. Then there is one that needs their buffers."""
    perf = "inagg-perf allreduce -b 1M -e 1M -n 10000 >&2"
    lost = "; ".join(f"export INAGG_JOB={job} INAGG_CONGESTION_CONTROL=0; if test $INAGG_RANK = 2; then timeout -s KILL 2 {perf}; sleep 3.5; "
                     f"else INAGG_TIMEOUT_MS=2500 {perf}; sleep 1; fi" for job in (2, 3, 4))
    panama(tmp_path, 6, "-b", "256K", "-e", "256K", *QUICK, restarts=True, command=f"({lost}); {{}}",
           options=("--inaggd-arg=--buffers=100",))


def test_a_job_that_fills_the_buffers_takes_none_of_anothers(tmp_path):
    """Two jobs of 3 ranks, one buffer for each of their blocks, and 60: the switch has memory for 20 of either. Ranks 1 and 2 of the
    second ignore that, and send 128 blocks each time before rank 0 comes: no more than 40 begin."""
    jobs = [f"--inaggd-arg=--job={job}:size=3,algorithm=panama,slots={slots}" for job, slots in ((1, 8), (2, 128))]
    heedful = "inagg-perf allreduce -b 512K -e 512K -n 30 -w 1 --check && { test $INAGG_RANK != 0 || inaggctl --json drops; }"
    greedy = "INAGG_CONGESTION_CONTROL=0 inagg-perf allreduce -b 256K -e 256K -n 5 -w 1 --straggle 0:20ms --check"
    run = netns(tmp_path, "--workers", 6, "--algorithm", "panama", "--transport", "udp", "--inaggd-arg=--buffers=60", *jobs, "--",
                "sh", "-c", THREE_A_JOB + f"if test $INAGG_JOB = 1; then {heedful}; else {greedy}; fi")
    assert run.status == 0
    rows = next(value for value in objects("\n".join(run.lines(0)) + "\n") if isinstance(value, list))
    full = {row["job"]: row["packets"] for row in rows if row["reason"] == "FULL"}
    assert full.get(2, 0) > 0 and full.get(1, 0) == 0
