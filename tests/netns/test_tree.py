# SPDX-License-Identifier: BSD-2-Clause
"""Trees of switches: racks and a spine, each with its own agent and its own slots."""

import re

import pytest

from allreduce import QUICK, allreduce, assert_lossy, compared
from netns import HERE, PYTHON, netns

SIZES = ("-b", "4K", "-e", "1M", "-f", 16)
LEAF0 = "--bpffs /sys/fs/bpf/inagg-leaf0"


def tree(tmp_path, workers, sources, *perf, topology="two-level", options=(), **more):
    """`sources`: children of the root."""
    return allreduce(tmp_path, workers, *perf, sources=sources, options=("--topology", topology, *options), **more)


@pytest.mark.parametrize("transport, dtype", [("udp", "int32"), ("afxdp", "float16"), ("xdp", "float32")])
def test_two_levels(tmp_path, transport, dtype):
    result = tree(tmp_path, 5, 3, *SIZES, *QUICK, "-d", dtype, transport=transport)
    assert result.switch["restores"] == 0


@pytest.mark.parametrize("topology, sources", [("two-level", 4), ("three-level", 3)])
def test_sixteen_workers_with_loss(tmp_path, topology, sources):
    result = tree(tmp_path, 16, sources, "-b", "64K", "-e", "256K", "-f", 4, *QUICK, topology=topology,
                  options=("--loss", 0.01))
    assert_lossy(result)


def test_bad_links_and_ipv6(tmp_path):
    assert_lossy(tree(tmp_path, 4, 2, *SIZES, *QUICK, options=("--ipv6", "--loss", 0.01, "--dup", 0.05, "--reorder", 0.1)))


def test_damaged_frames(tmp_path):
    assert_lossy(tree(tmp_path, 4, 2, *SIZES, *QUICK, options=("--corrupt", 0.01)))


def test_minimum_and_odd_sizes(tmp_path):
    tree(tmp_path, 4, 2, "-b", 4, "-e", 1412, "-f", 353, *QUICK, "-o", "min")  # an element; a block and one more


@pytest.mark.parametrize("where", ["", LEAF0])
def test_a_switch_forgets_many_times(tmp_path, where):
    clear = f"while inaggctl {where} slots clear; do echo cleared; sleep 0.05; done"
    result = tree(tmp_path, 4, 2, "-b", "1M", "-e", "1M", *compared(60), restarts=True,
                  options=("--also-in-switch", clear))
    assert result.run.lines("switch").count("cleared") >= 3


def test_a_leaf_is_restarted(tmp_path):
    """Its agent is killed and its slots are gone; the next agent serves the next job."""
    result = tree(tmp_path, 4, 2, "-b", "1M", "-e", "1M", *compared(60), restarts=True,
                  options=("--loss", 0.01, "--kill-inaggd", "leaf0@500ms", "--restart-inaggd", "leaf0@1500ms",
                           "--also-in-switch", f"sleep 1; inaggctl {LEAF0} slots clear && echo cleared"),
                  command="{0} && sleep 3 && inagg-perf allreduce -b 4K -e 4K --job 77 --check")
    starts = [match.start() for match in re.finditer(r"\[leaf0\].* boot id", result.run.error)]
    assert len(starts) == 2 and result.run.lines("switch") == ["cleared"]
    assert "job 77: generation" in result.run.error[starts[1]:]


def test_the_next_run_takes_over(tmp_path):
    """A run that is killed leaves its ranks behind at every level; the next one of the same job replaces them."""
    script = ("timeout -s KILL 1 inagg-perf allreduce -b 16M -e 16M -n 1000; "
              "inagg-perf allreduce -b 64K -e 64K --check --json")
    run = netns(tmp_path, "--workers", 4, "--topology", "two-level", "--transport", "udp", "--", "sh", "-c", script)
    assert run.status == 0
    assert [entry["wrong"] for entry in run.json(0) if "size" in entry] == [0]


def test_worker_killed(tmp_path):
    """Those beside it can name it; those behind other switches name it among the ranks of its switch."""
    run = netns(tmp_path, "--workers", 4, "--topology", "two-level", "--transport", "udp", "--kill", "3@1500ms", "--grace",
                "20s", "--", "inagg-perf", "allreduce", "-b", "16M", "-e", "16M", "-n", "1000",
                environment={"INAGG_TIMEOUT_MS": "3000"})
    assert run.status == 128 + 9
    for rank, missing in ((0, r"ranks? 2, 3\b"), (2, r"\brank 3\b")):
        message = next(line for line in run.error.splitlines() if line.startswith(f"[{rank}] "))
        assert re.search(missing, message), message


@pytest.mark.parametrize("algorithm, topology", [("switchml", ("two-level",)),
                                                 ("canary", ("leaf-spine", "--leaves", "2", "--spines", "2"))])
def test_a_job_has_its_part_of_the_links_between_switches(tmp_path, algorithm, topology):
    """More is dropped and comes again, so that a sum takes as long as the rate demands, but for what may go at once."""
    rate, at_once = 10e6, 0.01  # bits a second; seconds
    size = 1 << 19
    run = netns(tmp_path, "--workers", 4, "--topology", *topology, "--algorithm", algorithm, "--transport", "udp",
                "--inaggd-arg=--job-uplink-rate=10mbit", "--", "inagg-perf", "allreduce", "-b", size, "-e", size, "-n", 2, "-w", 0,
                "--check", "--json", environment={"INAGG_TIMEOUT_MS": "60000"})
    assert run.status == 0
    [entry] = [value for value in run.json(0) if "size" in value]
    assert entry["wrong"] == 0
    assert entry["time_mean_us"] * 2 > (2 * size * 8 / rate - at_once) * 1e6


@pytest.mark.parametrize("rate", [None, "1mbit"])
def test_results_have_that_part_too(tmp_path, rate):
    """With canary they come from a rank, which may repeat them."""
    count, seconds, packet = 2000, 3, 1400
    quota = () if rate is None else (f"--inaggd-arg=--job-uplink-rate={rate}",)
    run = netns(tmp_path, "--workers", 4, "--topology", "leaf-spine", "--leaves", 2, "--spines", 1, "--algorithm", "canary", *quota,
                "--", PYTHON, "-B", HERE / "canary_leader.py", count, seconds)
    assert run.status == 0
    beside, *beyond = (run.json(rank)[-1]["heard"] for rank in (1, 2, 3))
    assert beside > 0.9 * count * packet
    for heard in beyond:
        assert (heard > 0.9 * count * packet) == (rate is None)
        assert rate is None or 0 < heard < 1.2 * seconds * 1e6 / 8
