# SPDX-License-Identifier: BSD-2-Clause
"""Contributions to several blocks in one packet, where frames have several buffers."""

import pytest

from allreduce import QUICK, allreduce, assert_lossy

SIZES = ("-b", "4K", "-e", "1M", "-f", 16)
JUMBO = ("--mtu", 9000)
BAD_LINKS = ("--loss", 0.01, "--dup", 0.02, "--reorder", 0.02)
SOME_TOGETHER = 1.15  # blocks a packet: how many come together is up to the machine


def several(tmp_path, workers, *perf, elements=832, options=(), **more):
    """All is exact; the job's counters, packets among them, each of which may bring several additions."""
    blocks = 8900 // (elements * 4)
    return allreduce(tmp_path, workers, *(perf or (*SIZES, *QUICK)), "-d", "int32,float32", options=(*JUMBO, *options),
                     settings=f",elements={elements},blocks={blocks}", **more)


def blocks_a_packet(result):
    """Of contributions: what is asked for, or sent again, is asked and sent by itself."""
    return result.switch["additions"] / (result.switch["packets"] - result.counters["requests"] - result.counters["retransmissions"])


@pytest.mark.parametrize("algorithm", ["switchml", "trio"])
@pytest.mark.parametrize("elements", [832, 512])
def test_exact(tmp_path, algorithm, elements):
    assert blocks_a_packet(several(tmp_path, 4, algorithm=algorithm, elements=elements)) > SOME_TOGETHER


def test_ipv6_and_two_ranks_a_host(tmp_path):
    assert blocks_a_packet(several(tmp_path, 4, options=("--ipv6", "--ranks-per-host", 2))) > SOME_TOGETHER


@pytest.mark.parametrize("algorithm", ["switchml", "trio"])
def test_bad_links(tmp_path, algorithm):
    assert_lossy(several(tmp_path, 4, algorithm=algorithm, options=BAD_LINKS))


def test_elements_that_come_with_their_scale(tmp_path):
    """Small sums of floats use control blocks, which are no data blocks: each comes by itself."""
    result = allreduce(tmp_path, 4, "-b", 13312, "-e", 13312, "-n", 20, options=JUMBO)
    assert result.switch["drops"] == 0


def test_a_path_that_carries_one(tmp_path):
    """One link is shorter than its ends: rank 0 stops to send what does not pass."""
    shorter = "sleep 0.5; ip link set p0 mtu 3600"
    result = several(tmp_path, 4, options=("--also-in-switch", shorter), command="sleep 1.5; {}")
    assert 0 < result.counters["retransmissions"] < result.switch["additions"] / 4


def test_goes_on_without_a_straggler(tmp_path):
    result = several(tmp_path, 4, "-b", "256K", "-e", "256K", "-n", 10, "--straggle", "2:300ms:3", algorithm="trio", elements=512,
                     stragglers=",expiry=5ms", options=("--expiry", "5ms", "--loss", 0.01))
    assert result.switch["degraded"] > 0 and result.switch["expired"] > 0
    assert result.counters["skipped"] > 0
    assert blocks_a_packet(result) > SOME_TOGETHER
