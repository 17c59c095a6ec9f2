# SPDX-License-Identifier: BSD-2-Clause
"""The full matrix of data types, transports, links, numbers of workers and sizes. About half an hour on two cores."""

import pytest

from allreduce import DTYPES, TRANSPORTS, allreduce, assert_lossy, compared

HOUR = 3600
LINKS = {
    "loss 1%": ("--loss", 0.01),
    "loss 10%": ("--loss", 0.1),
    "duplicates and reordering": ("--dup", 0.05, "--reorder", 0.1),
    "corruption": ("--corrupt", 0.01),
    "everything": ("--loss", 0.02, "--dup", 0.02, "--reorder", 0.02, "--corrupt", 0.01, "--delay", "200us", "--rate", "1gbit"),
}

transports = pytest.mark.parametrize("transport", TRANSPORTS)


@transports
def test_sizes(tmp_path, transport):
    allreduce(tmp_path, 4, "-b", "4K", "-e", "64M", "-f", 4, "-n", 5, "-w", 1, "-d", DTYPES, transport=transport, limit=HOUR)


@transports
@pytest.mark.parametrize("links", LINKS)
def test_links(tmp_path, transport, links):
    result = allreduce(tmp_path, 4, "-b", "4K", "-e", "64M", "-f", 4, "-n", 2, "-w", 0, "-d", DTYPES, transport=transport,
                       options=LINKS[links], limit=HOUR)
    if "duplicates" not in links:
        assert_lossy(result)


@transports
@pytest.mark.parametrize("workers", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("loss", [0, 0.01])
def test_workers(tmp_path, transport, workers, loss):
    result = allreduce(tmp_path, workers, "-b", "4K", "-e", "4M", "-f", 4, "-n", 3, "-w", 1, "-d", DTYPES, transport=transport,
                       options=("--loss", loss), limit=HOUR)
    if loss:
        assert_lossy(result)


@transports
@pytest.mark.parametrize("workers", [2, 3, 7, 16])
@pytest.mark.parametrize("links", ["duplicates and reordering", "corruption"])
def test_workers_on_bad_links(tmp_path, transport, workers, links):
    allreduce(tmp_path, workers, "-b", "4K", "-e", "1M", "-f", 4, "-n", 2, "-w", 0, "-d", DTYPES, transport=transport,
              options=LINKS[links], limit=HOUR)


@transports
@pytest.mark.parametrize("links", LINKS)
def test_ipv6_on_bad_links(tmp_path, transport, links):
    allreduce(tmp_path, 4, "-b", "4K", "-e", "4M", "-f", 4, "-n", 2, "-w", 0, "-d", DTYPES, transport=transport,
              options=("--ipv6", *LINKS[links]), limit=HOUR)


@transports
@pytest.mark.parametrize("mtu", [1280, 1500, 3498])
@pytest.mark.parametrize("family", [(), ("--ipv6",)])
def test_odd_sizes(tmp_path, transport, mtu, family):
    around = {count + more for count in (32, 288, 320, 352, 704, 832, 128 * 320, 128 * 352) for more in (-1, 0, 1)}
    counts = ",".join(map(str, sorted(around | {1, 2, 10007})))
    allreduce(tmp_path, 3, "--count", counts, "-n", 1, "-w", 0, "-d", DTYPES, "-o", "sum,min,max", transport=transport,
              options=("--mtu", mtu, *family), limit=HOUR)


@transports
@pytest.mark.parametrize("inflight", [2, 8, 64])
@pytest.mark.parametrize("loss", [0, 0.01])
def test_tensors_in_flight(tmp_path, transport, inflight, loss):
    result = allreduce(tmp_path, 4, "-b", "4K", "-e", "1M", "-f", 4, "-n", 3, "-w", 1, "-d", DTYPES, "--inflight", inflight,
                       transport=transport, options=("--loss", loss), limit=HOUR)
    if loss:
        assert_lossy(result)


SHAPES = (("--ranks-per-host", 2), ("--ranks-per-host", 4), ("--topology", "bridge"), ("--topology", "bridge", "--ranks-per-host", 2))


@pytest.mark.parametrize("transport, shape", [
    (transport, shape) for shape in SHAPES for transport in TRANSPORTS
    if transport != "afxdp" or "--ranks-per-host" not in shape])  # a device's queue has one AF_XDP socket
@pytest.mark.parametrize("loss", [0, 0.01, 0.1])
def test_shapes(tmp_path, transport, shape, loss):
    result = allreduce(tmp_path, 7, "-b", "4K", "-e", "1M", "-f", 4, "-n", 3, "-w", 1, "-d", DTYPES, transport=transport,
                       options=(*shape, "--loss", loss), limit=HOUR)
    if loss:
        assert_lossy(result)


@transports
@pytest.mark.parametrize("seed", range(1, 11))
def test_switch_forgets_on_bad_links(tmp_path, transport, seed):
    clear = "sleep 0.5; for i in $(seq 10000); do inaggctl slots clear || exit; echo cleared; sleep 0.2; done"
    result = allreduce(tmp_path, 4, "-b", "1M", "-e", "1M", *compared(30), transport=transport, restarts=True, limit=HOUR,
                       options=("--also-in-switch", clear, "--loss", 0.01, "--dup", 0.01, "--reorder", 0.01, "--seed", seed))
    assert result.run.lines("switch").count("cleared") >= 3
