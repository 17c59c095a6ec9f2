# SPDX-License-Identifier: BSD-2-Clause
"""Small tensors by a ring of the hosts, large ones through the switch."""

import re

import pytest

from allreduce import DTYPES, QUICK, TRANSPORTS, allreduce, assert_lossy
from netns import netns

SIZES = ("-b", "4K", "-e", "1M", "-f", 16, *QUICK)  # 4K, 64K, 1M
RING = {"INAGG_AGGREGATE_FROM": "256K"}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_small_tensors_do_not_take_the_switchs_time(tmp_path, transport):
    def additions(first, last):
        return allreduce(tmp_path, 4, "-b", first, "-e", last, "-f", 16, *QUICK, transport=transport,
                         environment=RING).switch["additions"]

    few = 4 * 10  # of 4 ranks: where the hosts are, and barriers; without a ring, the 64K alone would be 1500
    small, large, both = additions("4K", "64K"), additions("1M", "1M"), additions("4K", "1M")
    assert small <= few
    assert large <= both <= large + few


def test_types(tmp_path):
    allreduce(tmp_path, 3, *SIZES, "-d", DTYPES, "--inflight", 4, environment=RING)


@pytest.mark.parametrize("options", [("--ipv6",), ("--ranks-per-host", 2), ("--topology", "two-level")])
def test_networks(tmp_path, options):
    allreduce(tmp_path, 4, *SIZES, options=options, environment=RING, sources=2 if "two-level" in options else None)


def test_loss(tmp_path):
    assert_lossy(allreduce(tmp_path, 4, *SIZES, options=("--loss", 0.01), environment=RING))


# A killed rank's connections close; of one that is stopped, or whose host has gone, nothing tells but its silence.
@pytest.mark.parametrize("signal, error", [("KILL", "rank 2 has left the ring"), ("STOP", r"tensor \d+ of the ring waits for rank 2")])
def test_a_rank_that_is_gone_is_named(tmp_path, signal, error):
    perf = "inagg-perf allreduce -b 1M -e 1M -n 100000"
    script = f"test $RANK = 2 || exec {perf}; {perf} & sleep 1.5; kill -{signal} $!; sleep 6; kill -KILL $!"
    run = netns(tmp_path, "--workers", 4, "--transport", "udp", "--grace", "20s", "--job", 9, "--", "sh", "-c", script,
                environment={"INAGG_AGGREGATE_FROM": "1G", "INAGG_TIMEOUT_MS": "3000"})
    assert "others still run" not in run.error
    for rank in (0, 1, 3):
        message = next(line for line in run.error.splitlines() if line.startswith(f"[{rank}] "))
        assert re.search(rf"\bjob 9: .*{error}", message), message
