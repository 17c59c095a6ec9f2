# SPDX-License-Identifier: BSD-2-Clause
"""Contributions to several blocks in one packet, where frames have several buffers."""

import pytest

from allreduce import QUICK, allreduce, assert_lossy

SIZES = ("-b", "4K", "-e", "1M", "-f", 16)
JUMBO = ("--mtu", 9000)
BAD_LINKS = ("--loss", 0.01, "--dup", 0.02, "--reorder", 0.02)


def several(tmp_path, workers, elements=832, options=(), **more):
    """All is exact; the job's counters, packets among them, each of which may bring several additions."""
    blocks = 8900 // (elements * 4)
    return allreduce(tmp_path, workers, *SIZES, *QUICK, "-d", "int32,float32", options=(*JUMBO, *options),
                     settings=f",elements={elements},blocks={blocks}", **more)


@pytest.mark.parametrize("algorithm", ["switchml", "trio"])
@pytest.mark.parametrize("elements", [832, 512])
def test_exact(tmp_path, algorithm, elements):
    switch = several(tmp_path, 4, algorithm=algorithm, elements=elements).switch
    assert switch["packets"] < switch["additions"] / (1.3 if elements == 832 else 2), "two blocks, or four, in most"


def test_ipv6_and_two_ranks_a_host(tmp_path):
    switch = several(tmp_path, 4, options=("--ipv6", "--ranks-per-host", 2)).switch
    assert switch["packets"] < switch["additions"] / 1.3


@pytest.mark.parametrize("algorithm", ["switchml", "trio"])
def test_bad_links(tmp_path, algorithm):
    assert_lossy(several(tmp_path, 4, algorithm=algorithm, options=BAD_LINKS))


def test_elements_that_come_with_their_scale(tmp_path):
    """Small sums of floats use control blocks, which are no data blocks: each comes by itself."""
    result = allreduce(tmp_path, 4, "-b", 13312, "-e", 13312, "-n", 20, options=JUMBO)
    assert result.switch["drops"] == 0
    assert result.counters["retransmissions"] == 0


def test_a_path_that_carries_one(tmp_path):
    """One link is shorter than its ends: rank 0 stops to send what does not pass."""
    shorter = "sleep 0.5; ip link set p0 mtu 3600"
    result = several(tmp_path, 4, options=("--also-in-switch", shorter), command="sleep 1.5; {}")
    assert 0 < result.counters["retransmissions"] < result.switch["additions"] / 4
