# SPDX-License-Identifier: BSD-2-Clause
"""Allreduce through the P4 switch in BMv2's simple_switch, with inaggd as its agent."""

import itertools
import shutil

import pytest

from allreduce import allreduce, assert_lossy
from netns import BUILD, HERE, PYTHON, netns
from test_atp import additions_a_block
from test_canary import canary

SMALL = ("-b", "4K", "-e", "8K", "-f", 2, "-n", 2, "-w", 1)
BMV2 = ("--switch", "bmv2")


def missing():
    """Why there is no P4 switch here, or an empty text."""
    for program in ("simple_switch", "simple_switch_CLI", "p4c-bm2-ss"):
        if not shutil.which(program):
            return f"{program} is not on the PATH"
    if not (BUILD / "share/inagg/p4/canary.json").exists():
        return "the P4 switch was not built: p4c-bm2-ss was not there when CMake looked for it"
    return ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("loss", [0, 0.01])
@pytest.mark.parametrize("workers, dtype", [*itertools.product([2, 3], ["int32", "float32", "float16"]), (8, "float32")])
def test_allreduce(tmp_path, workers, dtype, loss):
    result = allreduce(tmp_path, workers, *SMALL, "-d", dtype, options=(*BMV2, *(("--loss", loss) if loss else ())))
    if loss:
        assert_lossy(result)


@pytest.mark.parametrize("loss", [0, 0.01])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_trio(tmp_path, workers, loss):
    """A lost packet may cost a record its place, and the block is recovered."""
    result = allreduce(tmp_path, workers, *SMALL, algorithm="trio", restarts=loss > 0,
                       options=(*BMV2, *(("--loss", loss) if loss else ())))
    assert result.switch["degraded"] == 0
    if loss:
        assert_lossy(result)


@pytest.mark.parametrize("loss", [0, 0.01])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_canary(tmp_path, workers, loss):
    """With two ranks, nothing need meet on the way to the leader."""
    result = canary(tmp_path, workers, *SMALL, options=(*BMV2, "--loss", loss))
    assert result.total("packets") > 0
    assert workers == 2 or result.total("additions") > 0
    if loss:
        assert_lossy(result)


@pytest.mark.parametrize("loss", [0, 0.01])
@pytest.mark.parametrize("workers, dtype", [(2, "int32"), (3, "float32"), (3, "bfloat16"), (8, "float32")])
def test_panama(tmp_path, workers, dtype, loss):
    """Floats travel in fixed point: the P4 switch cannot add them."""
    result = allreduce(tmp_path, workers, *SMALL, "-d", dtype, algorithm="panama",
                       options=(*BMV2, *(("--loss", loss) if loss else ())))
    if loss:
        assert_lossy(result)


@pytest.mark.parametrize("loss", [0, 0.01])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_atp(tmp_path, workers, loss):
    """The P4 switch stands before a server, which gets the sums of blocks."""
    result = allreduce(tmp_path, workers, *SMALL, algorithm="atp", server="bmv2", stragglers=",elements=64",
                       options=("--topology", "rack", *(("--loss", loss) if loss else ())))
    assert additions_a_block(result) < 0.7 * workers
    if loss:
        assert_lossy(result)


@pytest.mark.parametrize("option, value", [("expiry", "100ms"), ("quorum", 3)])
def test_trio_goes_on_without_a_straggler(tmp_path, option, value):
    result = allreduce(tmp_path, 4, "-b", "4K", "-e", "4K", "-n", 4, "--straggle", "2:2s:2", algorithm="trio",
                       stragglers=f",{option}={value}", options=(*BMV2, f"--{option}", value))
    assert result.switch["degraded"] > 0
    assert (result.switch["expired"] > 0) == (option == "expiry")
    assert result.counters["skipped"] > 0


def test_ipv6_and_two_ranks_behind_a_port(tmp_path):
    allreduce(tmp_path, 4, *SMALL, options=(*BMV2, "--ipv6", "--ranks-per-host", 2))


@pytest.mark.parametrize("algorithm", ["switchml", "panama"])
def test_root_of_a_tree(tmp_path, algorithm):
    """XDP switches below sum what is behind them, with panama too as integers; the P4 switch sums their sums."""
    allreduce(tmp_path, 4, *SMALL, "-d", "float16", algorithm=algorithm, options=(*BMV2, "--topology", "two-level"),
              sources=2)


@pytest.mark.parametrize("operator", ["min", "max"])
def test_operators(tmp_path, operator):
    allreduce(tmp_path, 3, *SMALL, "-d", "int32", "-o", operator, options=BMV2)


def test_jobs_that_nobody_configured(tmp_path):
    """Their ranks create them, with what the P4 switch can do, and they go with their ranks."""
    run = netns(tmp_path, *BMV2, "--workers", 2, "--transport", "udp", "--", "sh", "-c",
                "for run in 1 2; do inagg-perf allreduce -b 4K -e 4K -n 2 --check || exit; done; sleep 0.5;"
                "test $INAGG_RANK != 0 || inaggctl --json job list; inaggctl --json status")
    assert run.status == 0
    assert "64 elements per packet" in run.error and run.error.count("job 1: removed") == 2
    assert run.lines(0).count("[]") == 1


def test_traffic_beside_it(tmp_path):
    """Ordinary frames find their way, and the jobs theirs."""
    run = netns(tmp_path, *BMV2, "--workers", 2, "--transport", "udp", "--background", "tcp", "--",
                "inagg-perf", "allreduce", "-b", "16K", "-e", "16K", "-n", 2, "--check")
    assert run.status == 0
    assert run.links["background"][0]["mbit_per_s"] > 0.1


def test_agent_that_starts_again_starts_anew(tmp_path):
    """A later run finds the tables empty, and joins."""
    run = netns(tmp_path, *BMV2, "--workers", 2, "--transport", "udp", "--kill-inaggd", "1s", "--restart-inaggd", "1100ms",
                "--", "sh", "-c", "inagg-perf allreduce -b 4K -e 4K -n 2 --check && sleep 3 &&"
                "inagg-perf allreduce -b 4K -e 4K -n 2 --check")
    assert run.status == 0
    assert run.error.count("BMv2 at Thrift port") == 2


def test_no_host_speaks_for_the_switch_to_its_agent(tmp_path):
    """Or it could join for ranks behind other ports."""
    run = netns(tmp_path, *BMV2, "--workers", 2, "--transport", "udp", "--", "sh", "-c",
                f"test $INAGG_RANK != 0 || {PYTHON} -B {HERE}/punted_rank.py 02:00:0a:4d:00:01; sleep 1; inaggctl --json job list")
    assert run.status == 0
    assert "JOIN" not in run.error
    assert run.lines(0) == ["[]"]


def test_end_of_simple_switch_ends_the_run(tmp_path):
    run = netns(tmp_path, *BMV2, "--workers", 1, "--also-in-switch", "sleep 0.5; kill -9 $(pgrep -x simple_switch); sleep 4",
                "--grace", "3s", "--", "sleep", 20)
    assert run.status == 125
    assert "simple_switch ended with status 137" in run.error
    assert "BMv2's simple_switch at Thrift port 9090 does not answer" in run.error


@pytest.mark.parametrize("options, what", [
    (("--topology", "leaf-spine"), "topology leaf-spine"),
    (("--algorithm", "atp"), "give --topology rack"),
    (("--topology", "two-level", "--algorithm", "trio"), "in a tree it runs switchml and panama"),
    (("--topology", "rack"), "topology rack is for atp"),
    (("--checked",), "payload checksums"), (("--corrupt", 0.1), "payload checksums")])
def test_what_it_cannot_do_is_said(tmp_path, options, what):
    run = netns(tmp_path, *BMV2, "--workers", 2, *options, "--", "true")
    assert run.status == 2 and what in run.error
