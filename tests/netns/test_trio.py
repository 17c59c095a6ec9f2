# SPDX-License-Identifier: BSD-2-Clause
"""trio: blocks that do not wait for stragglers, and jobs that wait for all as with switchml."""

import pytest

from allreduce import DTYPES, QUICK, allreduce, assert_lossy, compared, objects
from netns import netns

SIZES = ("-b", "4K", "-e", "1M", "-f", 16)
BAD_LINKS = ("--loss", 0.01, "--dup", 0.05, "--reorder", 0.1)
SLOTS_CLEARED = "while inaggctl slots clear; do echo cleared; sleep 0.3; done"


def trio(tmp_path, workers, *perf, **more):
    return allreduce(tmp_path, workers, *perf, algorithm="trio", **more)


@pytest.mark.parametrize("transport", ["udp", "afxdp"])
def test_waits_for_all(tmp_path, transport):
    result = trio(tmp_path, 4, *SIZES, *QUICK, "-d", DTYPES, transport=transport)
    assert result.switch["degraded"] == 0


@pytest.mark.parametrize("transport", ["udp", "afxdp"])
def test_bad_links(tmp_path, transport):
    result = trio(tmp_path, 4, *SIZES, *QUICK, transport=transport, options=BAD_LINKS)
    assert_lossy(result)
    assert result.switch["degraded"] == 0


def test_goes_on_without_a_straggler(tmp_path):
    result = trio(tmp_path, 4, "-b", "64K", "-e", "64K", "-n", 10, "-d", DTYPES, "--straggle", "2:300ms:3",
                  stragglers=",expiry=5ms", options=("--expiry", "5ms"))
    assert [entry["dtype"] for entry in result.sizes if entry["degraded_blocks"] > 0] == DTYPES.split(",")
    assert result.switch["degraded"] > 0
    assert result.counters["skipped"] > 0


def test_goes_on_without_a_straggler_on_bad_links(tmp_path):
    result = trio(tmp_path, 4, "-b", "64K", "-e", "64K", "-n", 20, "--straggle", "2:200ms:3", stragglers=",expiry=5ms",
                  options=("--expiry", "5ms", *BAD_LINKS))
    assert_lossy(result)
    assert result.switch["degraded"] > 0


def test_a_quorum_decides_at_once(tmp_path):
    result = trio(tmp_path, 4, "-b", "64K", "-e", "64K", "-n", 10, "--straggle", "1:200ms:2", stragglers=",quorum=3",
                  options=("--quorum", 3))
    assert result.switch["degraded"] > 0
    assert result.switch["expired"] == 0


def test_forgetting_switch(tmp_path):
    """Slots vanish in mid-run, and a rank is late: still one result for each block, on all ranks."""
    result = trio(tmp_path, 4, "-b", "64K", "-e", "64K", *compared(60), "--straggle", "3:50ms:5", stragglers=",expiry=5ms",
                  options=("--expiry", "5ms", "--loss", 0.01, "--also-in-switch", SLOTS_CLEARED), restarts=True)
    assert result.run.lines("switch").count("cleared") >= 3
    assert result.switch["recoveries"] > 0


def test_sweeps_without_an_agent(tmp_path):
    """inaggd stands still, as if bpftool had loaded the switch, and inagg-sweep does what is left to do."""
    expired = "inaggctl stats --job 1 | grep expired"
    sweep = (f"sleep 1; pkill -STOP inaggd; inagg-sweep --port p0 & sleep 0.2; {expired}; sleep 0.5; {expired}; "
             "pkill -CONT inaggd; sleep 60")
    result = trio(tmp_path, 4, "-b", "64K", "-e", "64K", *compared(200), "--straggle", "2:200ms:3", stragglers=",expiry=5ms",
                  options=("--expiry", "5ms", "--also-in-switch", sweep))
    before, after = (int(line.split()[1]) for line in result.run.lines("switch") if line.startswith("  expired"))
    assert after > before


def test_a_short_lived_job_does_not_age_the_blocks_of_another(tmp_path):
    """Blocks age by sweeps, so these do not become rarer when the job that they were so frequent for has gone."""
    perf, status = "inagg-perf allreduce -b 4K -e 4K -w 0", "inaggctl --json status"
    shown = tmp_path / "shown"
    first = f"until {status} | grep -q 250000; do sleep 0.1; done; {status}; touch {shown}"
    script = (f"INAGG_EXPIRY=1s {perf} -n 1000000 & test $INAGG_RANK = 1 || {{ {first}; }}; until test -e {shown}; do sleep 0.1; done; "
              f"INAGG_JOB=2 INAGG_EXPIRY=10ms {perf} -n 2; sleep 0.5; {status}; "
              f"test $INAGG_RANK = 1 || {{ inaggctl job del 1; {status}; }}; wait")
    run = netns(tmp_path, "--workers", 2, "--algorithm", "trio", "--", "sh", "-c", script)
    periods = [value["sweeps"]["period_us"] for value in objects("\n".join(run.lines(0)) + "\n") if "sweeps" in value]
    assert periods == [250000, 2500, 0]


@pytest.mark.parametrize("buckets, enough", [(2048, True), (512, False)])
def test_a_window_of_4096_blocks(tmp_path, buckets, enough):
    """With one rank asleep they are all open at once. Where the switch lacks room, its log says so, ranks slow down, and sums are the same."""
    watch = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; inaggctl --json status; done"
    result = trio(tmp_path, 3, "-b", "5632K", "-e", "5632K", *compared(3), "--straggle", "2:300ms:2", stragglers=",expiry=20ms",
                  options=("--expiry", "20ms", "--inaggd-arg=--job-slots", "--inaggd-arg=4096", "--inaggd-arg=--buckets",
                           f"--inaggd-arg={buckets}"), command=f"({watch}) > {tmp_path}/$INAGG_RANK & {{}} && wait && cat {tmp_path}/$INAGG_RANK")
    assert result.switch["degraded"] > 4096
    assert (result.counters["refused"] == 0) == enough
    assert ("ranks are told to slow down" in result.run.error) != enough
    sweeps = [value["sweeps"] for value in objects("\n".join(result.run.lines(0)) + "\n") if "sweeps" in value]
    for cost in ("cpu", "cpu_sending"):
        assert 0 < max(values[cost] for values in sweeps) < 1
    assert sweeps[-1]["longest_us"] > 0 and sweeps[-1]["expired"] > 4096
