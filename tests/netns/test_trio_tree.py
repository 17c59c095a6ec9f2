# SPDX-License-Identifier: BSD-2-Clause
"""trio in trees of switches: the root decides, the racks' switches only add."""

import re

import pytest

from allreduce import QUICK, allreduce, assert_lossy, compared
from netns import netns

SIZES = ("-b", "4K", "-e", "256K", "-f", 8)
SLOTS_CLEARED = "while inaggctl {} slots clear; do echo cleared; sleep 0.3; done"
LEAF0 = "--bpffs /sys/fs/bpf/inagg-leaf0"


def tree(tmp_path, workers, *perf, topology="two-level", expiry=None, options=(), **more):
    if expiry:
        options = ("--expiry", expiry, *options)
        more["stragglers"] = f",expiry={expiry}"
    return allreduce(tmp_path, workers, *perf, algorithm="trio", options=("--topology", topology, *options), **more)


@pytest.mark.parametrize("transport, dtype", [("udp", "bfloat16"), ("afxdp", "float32")])
def test_waits_for_all(tmp_path, transport, dtype):
    result = tree(tmp_path, 4, *SIZES, *QUICK, "-d", dtype, transport=transport, sources=2)
    assert result.switch["degraded"] == 0


def assert_racks_add(result, sources):
    """The root hears one sum a block from each of `sources`, switches and ranks below it, and what came late, but not each rank."""
    assert sources * result.switch["completions"] <= result.switch["additions"] + result.switch["degraded"] * sources
    assert result.switch["additions"] < 0.75 * 16 * result.switch["completions"]


@pytest.mark.parametrize("topology, sources", [("two-level", 4), ("three-level", 3)])
def test_sixteen_workers_with_loss(tmp_path, topology, sources):
    result = tree(tmp_path, 16, "-b", "64K", "-e", "64K", *QUICK, topology=topology, expiry="50ms",
                  options=("--loss", 0.01))
    assert_lossy(result)
    assert_racks_add(result, sources)


@pytest.mark.parametrize("topology", ["two-level", "three-level"])
def test_goes_on_without_a_straggler(tmp_path, topology):
    result = tree(tmp_path, 8, "-b", "64K", "-e", "64K", "-n", 10, "--straggle", "2:400ms:3", topology=topology,
                  expiry="20ms")
    assert result.switch["degraded"] > 0
    assert result.counters["skipped"] > 0


def test_goes_on_without_a_straggler_on_bad_links(tmp_path):
    result = tree(tmp_path, 4, "-b", "64K", "-e", "64K", "-n", 20, "--straggle", "2:200ms:3", expiry="10ms",
                  options=("--loss", 0.01, "--dup", 0.05, "--reorder", 0.1))
    assert_lossy(result)
    assert result.switch["degraded"] > 0


def test_a_quorum_decides_at_once(tmp_path):
    result = tree(tmp_path, 4, "-b", "64K", "-e", "64K", "-n", 10, "--straggle", "1:200ms:2", stragglers=",quorum=3",
                  options=("--quorum", 3))
    assert result.switch["degraded"] > 0
    assert result.switch["expired"] == 0


@pytest.mark.parametrize("where", ["", LEAF0])
def test_a_switch_forgets_many_times(tmp_path, where):
    """Also while a rank is late: still one result for each block, on all ranks."""
    result = tree(tmp_path, 4, "-b", "64K", "-e", "64K", *compared(60), "--straggle", "3:50ms:5", expiry="10ms",
                  options=("--loss", 0.01, "--also-in-switch", SLOTS_CLEARED.format(where)), restarts=True)
    assert result.run.lines("switch").count("cleared") >= 3


@pytest.mark.parametrize("topology, workers", [("two-level", 4), ("three-level", 8)])
def test_a_leaf_is_restarted(tmp_path, topology, workers):
    result = tree(tmp_path, workers, "-b", "64K", "-e", "64K", *compared(300), "--straggle", "3:20ms:5", topology=topology,
                  expiry="10ms", restarts=True,
                  options=("--loss", 0.01, "--kill-inaggd", "leaf0@500ms", "--restart-inaggd", "leaf0@1500ms",
                           "--also-in-switch", f"sleep 1; inaggctl {LEAF0} slots clear && echo cleared"))
    assert len(re.findall(r"\[leaf0\].* boot id", result.run.error)) == 2
    assert result.run.lines("switch") == ["cleared"]


def test_nobody_is_excluded(tmp_path):
    run = netns(tmp_path, "--workers", 2, "--topology", "two-level", "--algorithm", "trio", "--transport", "udp", "--",
                "inagg-perf", "allreduce", "-b", "4K", "-e", "4K", environment={"INAGG_EXCLUDE_AFTER": "5s"})
    assert run.status != 0
    assert "POLICY" in run.error and "no rank is excluded in a tree" in run.error
    assert re.search(r"^\[0\].* refuses rank 0 .*INAGG_EXCLUDE_AFTER", run.error, re.M)
