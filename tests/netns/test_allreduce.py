# SPDX-License-Identifier: BSD-2-Clause
"""Allreduce through the XDP switch, over links of every kind: the quick part of the matrix.

The rest is in test_matrix.py.
"""

from pathlib import Path

import pytest

from allreduce import DTYPES, QUICK, TRANSPORTS, allreduce, assert_lossy, compared, objects
from netns import PYTHON, netns

SIZES = ("-b", "4K", "-e", "256K", "-f", 8, *QUICK)
SMALL = ("-b", "4K", "-e", "64K", "-f", 16, *QUICK)
ODD = ("--count", "1,2,31,352,353,705,10007", *QUICK)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_types(tmp_path, transport):
    allreduce(tmp_path, 4, *SIZES, "-d", DTYPES, transport=transport)


def test_operators(tmp_path):
    allreduce(tmp_path, 3, *SMALL, "-d", DTYPES, "-o", "min,max")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("loss, sizes", [(0.01, SIZES), (0.1, SMALL)])
def test_loss(tmp_path, transport, loss, sizes):
    assert_lossy(allreduce(tmp_path, 4, *sizes, transport=transport, options=("--loss", loss)))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_duplicates_and_reordering(tmp_path, transport):
    result = allreduce(tmp_path, 4, *SMALL, transport=transport, options=("--dup", 0.05, "--reorder", 0.1))
    assert result.run.links["total"]["duplicated"] > 0 and result.run.links["total"]["reordered"] > 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_corruption(tmp_path, transport):
    assert_lossy(allreduce(tmp_path, 4, *SIZES, transport=transport, options=("--corrupt", 0.01)))


@pytest.mark.parametrize("workers, transport", [(2, "xdp"), (3, "afxdp"), (7, "udp"), (16, "udp"), (16, "xdp")])
def test_workers(tmp_path, workers, transport):
    allreduce(tmp_path, workers, *SMALL, transport=transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_odd_sizes(tmp_path, transport):
    allreduce(tmp_path, 3, *ODD, "-d", "float32,float16", transport=transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_eight_tensors_in_flight(tmp_path, transport):
    allreduce(tmp_path, 3, *SMALL, "--inflight", 8, transport=transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_ends_before_the_next_has_begun_elsewhere(tmp_path, transport):
    run = netns(tmp_path, "--workers", 2, "--transport", transport, "--", PYTHON, "-B", Path(__file__).with_name("order_rank.py"),
                tmp_path / "told", environment={"INAGG_POLL": "60s", "INAGG_TIMEOUT_MS": "15000"})
    assert run.status == 0
    assert [run.lines(rank) for rank in range(2)] == [[transport]] * 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ipv6(tmp_path, transport):
    allreduce(tmp_path, 3, *SMALL, transport=transport, options=("--ipv6",))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_large_mtu(tmp_path, transport):
    allreduce(tmp_path, 3, *SMALL, transport=transport, options=("--mtu", 3498))


@pytest.mark.parametrize("size, calls, privileges, few", [
    ("128K", 20, "setpriv --bounding-set=-net_raw", True), ("1K", 500, "", True), ("1K", 500, "setpriv --bounding-set=-net_raw", False)],
    ids=["live frames", "a packet socket", "datagrams for want of CAP_NET_RAW"])
def test_xdp_starts_blocks_below_ip(tmp_path, size, calls, privileges, few):
    """The datagrams of a rank stay a fraction of its blocks, also where a tensor fits the window and each block is a first one."""
    datagrams = """echo '{{"datagrams":' $(awk '/^Udp: [0-9]/ {{print $5}}' /proc/net/snmp) '}}'"""
    result = allreduce(tmp_path, 3, "-b", size, "-e", size, *compared(calls), transport="xdp",
                       command=f"{privileges} {{}} && {datagrams}")
    sent = next(value["datagrams"] for value in objects("\n".join(result.run.lines(0)) + "\n") if "datagrams" in value)
    assert result.counters["blocks"] // 3 >= calls
    assert (result.counters["blocks"] // 3 > 4 * sent) == few


@pytest.mark.parametrize("loss", [0, 0.02])
def test_two_ranks_behind_a_port(tmp_path, loss):
    allreduce(tmp_path, 5, *SMALL, options=("--ranks-per-host", 2, "--loss", loss))


def test_as_many_ranks_as_a_job_may_have(tmp_path):
    allreduce(tmp_path, 64, "-b", "64K", "-e", "64K", "-n", 2, "-w", 1, options=("--ranks-per-host", 4))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_behind_a_plain_bridge(tmp_path, transport):
    allreduce(tmp_path, 4, *SMALL, transport=transport, options=("--topology", "bridge"))


def test_all_behind_a_plain_bridge_with_loss(tmp_path):
    assert_lossy(allreduce(tmp_path, 4, *SIZES, options=("--topology", "bridge", "--loss", 0.02)))


def test_hashes_are_of_the_elements(tmp_path):
    """Of sums that are rounded test_guess.py compares the bits."""
    first, lossy, other = (allreduce(tmp_path, 4, *SMALL, "--seed", seed, options=options).hashes()
                           for seed, options in ((7, ()), (7, ("--loss", 0.05)), (8, ())))
    assert first == lossy != other


@pytest.mark.parametrize("arguments, complaint", [
    ("--straggle 2:1ms", "--straggle: there is no rank 2: give 0 to 1"),
    (">/dev/full", "not all results could be written to standard output"),
])
def test_what_cannot_be_is_said(tmp_path, arguments, complaint):
    run = netns(tmp_path, "--workers", 2, "--", "sh", "-c", f"exec inagg-perf allreduce -b 4K -e 4K -n 1 {arguments}")
    assert run.status == 1 and complaint in run.error
