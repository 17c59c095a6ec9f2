# SPDX-License-Identifier: BSD-2-Clause
"""atp: switches whose aggregators belong to nobody, with a server in the place of the root."""

import pytest

from allreduce import DTYPES, QUICK, THREE_A_JOB, allreduce, assert_exact, assert_lossy, compared, server_options, server_stats
from netns import netns

LEAF0 = "--bpffs /sys/fs/bpf/inagg-leaf0"


def atp(tmp_path, workers, *perf, topology="two-level", options=(), **more):
    """The server may get any part of a block in any way, so its additions follow no rule."""
    return allreduce(tmp_path, workers, *perf, algorithm="atp", server=True, restarts=True,
                     options=("--topology", topology, *options), **more)


def additions_a_block(result):
    return result.switch["additions"] / result.switch["completions"]


def test_racks_save_the_server_work(tmp_path):
    result = atp(tmp_path, 6, "-b", "256K", "-e", "256K", *QUICK, "-d", DTYPES)
    assert result.switch["reasons"] == {}
    assert additions_a_block(result) < 4  # three racks; six ranks without them


@pytest.mark.parametrize("transport", ["udp", "afxdp"])
def test_three_levels_with_loss(tmp_path, transport):
    assert_lossy(atp(tmp_path, 8, "-b", "64K", "-e", "256K", "-f", 4, *QUICK, topology="three-level",
                     options=("--loss", 0.01), transport=transport))


def test_bad_links_and_damage(tmp_path):
    assert_lossy(atp(tmp_path, 4, "-b", "64K", "-e", "64K", *QUICK,
                     options=("--ipv6", "--loss", 0.01, "--dup", 0.05, "--reorder", 0.1)))
    assert_lossy(atp(tmp_path, 4, "-b", "64K", "-e", "64K", *QUICK, options=("--corrupt", 0.01)))


@pytest.mark.parametrize("topology, options", [
    ("star", ()), ("rack", ("--inaggd-arg=--aggregators=16", "--loss", 0.01)), ("two-level", ("--ipv6",))])
def test_servers_share_a_job(tmp_path, topology, options):
    """Each is the root of a tree of its own and has half of the blocks."""
    atp(tmp_path, 4, "-b", "4K", "-e", "256K", "-f", 8, *QUICK, topology=topology, options=options, trees=2)
    first, second = (next(row["completions"] for row in server_stats(tmp_path, name) if row["job"] == job)
                     for name, job in (("switch", 1), ("server1", 2)))
    assert 0.8 < first / second < 1.25


def test_far_too_few_aggregators(tmp_path):
    """136 positions meet in 16; what finds no place is the server's."""
    result = atp(tmp_path, 4, "-b", "256K", "-e", "256K", *QUICK, options=("--inaggd-arg=--aggregators=16",))
    assert additions_a_block(result) > 2.5  # two racks


def test_positions_that_meet_move_apart(tmp_path):
    """256 for 136: many meet at first, but each moves until it is alone."""
    perf = ("-b", "256K", "-e", "256K", "-n", 40, "-w", 1)
    result = atp(tmp_path, 4, *perf, options=("--inaggd-arg=--aggregators=256",))
    assert additions_a_block(result) < 2.3


@pytest.mark.parametrize("loss", [0, 0.01])
def test_eight_jobs_on_slots_for_two(tmp_path, loss):
    """Of three ranks each, in one rack: windows of 128 blocks, and 256 aggregators for all."""
    jobs = [word for job in range(1, 9) for word in ("--root-arg", "--job", "--root-arg", f"{job}:size=3,algorithm=atp")]
    run = netns(tmp_path, "--workers", 24, "--topology", "rack", "--algorithm", "atp", "--transport", "udp", *server_options(tmp_path), *jobs,
                "--inaggd-arg=--aggregators=256", "--loss", loss, "--",
                "sh", "-c", THREE_A_JOB + "exec inagg-perf allreduce -b 256K -e 256K -n 10 -w 1 --check --json")
    assert_exact(run, jobs=8)
    rows = [row for row in server_stats(tmp_path) if row["completions"]]
    assert len(rows) == 8
    assert sum(row["additions"] for row in rows) > sum(row["completions"] for row in rows), "some meet at the server only"


@pytest.mark.parametrize("pause, shares, free", [(0, 1, False), (3, 1, True), (0, 2, True)])
def test_what_the_dead_held_is_free_after_a_while(tmp_path, pause, shares, free):
    """
    Job 1 has the 8 aggregators that job 2 will use when its ranks are killed, the first of them in mid-block; unless both have a
    share. Two racks.
    """
    killed = "INAGG_JOB=1 timeout -s KILL $((2 - (INAGG_RANK == 0))) inagg-perf allreduce -b 1M -e 1M -n 100000 >&2"
    result = atp(tmp_path, 4, "-b", "16K", "-e", "16K", "-n", 40, "-w", 1, job=2, command=f"{killed}; sleep {pause}; {{}}",
                 options=("--inaggd-arg=--aggregators=16", f"--inaggd-arg=--shares={shares}", "--root-arg=--aggregators=linear",
                          "--root-arg=--job-slots=8", "--root-arg=--control-slots=8"))
    assert (additions_a_block(result) < 2.7) == free


@pytest.mark.parametrize("perf", [(), ("--op", "avg", "--in-place")])
@pytest.mark.parametrize("loss", [0, 0.01])
def test_what_does_not_fit_the_scale_is_summed_as_floats(tmp_path, loss, perf):
    """13 of 205 blocks have an element that is far too large."""
    result = atp(tmp_path, 4, "-b", "256K", "-e", "256K", *QUICK, "--outliers", 5000, *perf, options=("--loss", loss),
                 environment={"INAGG_SCALE": "8"})
    assert result.switch["saturated"] == 13 * 3


def test_an_agreed_scale_never_saturates(tmp_path):
    result = atp(tmp_path, 4, "-b", "4K", "-e", "256K", "-f", 4, *QUICK)
    assert result.switch["saturated"] == 0


def test_a_rack_forgets_many_times(tmp_path):
    clear = f"while inaggctl {LEAF0} slots clear; do echo cleared; sleep 0.05; done"
    result = atp(tmp_path, 4, "-b", "1M", "-e", "1M", *compared(40), options=("--also-in-switch", clear))
    assert result.run.lines("switch").count("cleared") >= 3
