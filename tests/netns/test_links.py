# SPDX-License-Identifier: BSD-2-Clause
"""The impairments of inagg-netns happen: measured with plain UDP, which hides nothing.

Frames from rank 0 to rank 1 pass two links, so that what happens to one with probability p happens on the way with
1 - (1 - p)^2. Bounds are five standard deviations or more away.
"""

import pytest

from netns import BIN, HERE, PYTHON, netns

COUNT = 2000


def probe(tmp_path, *options, count=COUNT, gap=0.0001):
    run = netns(tmp_path, "--workers", 2, "--switch", "none", *options, "--", PYTHON, HERE / "udp_probe.py", count, gap)
    assert run.status == 0
    return run, run.json(1)[0]


def test_perfect_links(tmp_path):
    run, seen = probe(tmp_path)
    assert run.links == {}
    assert (seen["unique"], seen["received"], seen["damaged"]) == (COUNT, COUNT, 0)


@pytest.mark.parametrize("topology", ["star", "bridge"])
def test_loss(tmp_path, topology):
    run, seen = probe(tmp_path, "--loss", 0.1, "--topology", topology)
    assert 0.76 < seen["unique"] / COUNT < 0.86
    assert run.links["total"]["dropped"] >= COUNT - seen["unique"]
    assert f"dropped {run.links['total']['dropped']} " in run.error


def test_loss_of_everything(tmp_path):
    run = netns(tmp_path, "--workers", 2, "--switch", "none", "--loss", 1, "--", PYTHON, HERE / "udp_probe.py", 1, 0, limit=3)
    assert run.status == 124
    assert run.links["total"]["dropped"] == run.links["total"]["frames"] > 0


def test_seeds_choose(tmp_path):
    losses = {probe(tmp_path, "--loss", 0.1, "--seed", seed)[1]["unique"] for seed in (1, 2, 3)}
    assert len(losses) > 1


def test_duplicates(tmp_path):
    run, seen = probe(tmp_path, "--dup", 0.2)
    assert seen["unique"] == COUNT
    assert 1.36 < seen["received"] / COUNT < 1.52  # 1.2 squared
    assert run.links["to_switch"]["duplicated"] > 0 and run.links["to_hosts"]["duplicated"] > 0


def test_corruption(tmp_path):
    # Damage in the payload only: damaged headers would lose the datagram on its way.
    run, seen = probe(tmp_path, "--corrupt", 0.1, "--corrupt-offset", 60)
    assert 0.13 < seen["damaged"] / COUNT < 0.25
    assert run.links["total"]["corrupted"] >= seen["damaged"]


def test_corruption_of_headers(tmp_path):
    run, seen = probe(tmp_path, "--corrupt", 0.5, "--corrupt-bits", 64)
    assert run.links["total"]["corrupted"] > 0
    assert seen["unique"] < COUNT / 2


def test_reordering(tmp_path):
    run, seen = probe(tmp_path, "--reorder", 0.2)
    assert (seen["unique"], seen["received"]) == (COUNT, COUNT)
    assert seen["overtaken"] > COUNT / 100
    assert run.links["total"]["reordered"] > COUNT / 5


def test_delay(tmp_path):
    run, seen = probe(tmp_path, "--delay", "20ms")
    assert seen["unique"] == COUNT
    assert seen["shortest_delay"] >= 0.04
    assert seen["overtaken"] == 0


def test_rate(tmp_path):
    run, seen = probe(tmp_path, "--rate", "10mbit", gap=0)
    assert seen["unique"] > COUNT / 2
    # Above the limit only by what the bucket holds and two ends of the measured interval.
    assert (seen["bytes"] - 3 * 16384) * 8 / seen["seconds"] < 10e6


def test_rate_limits_xdp(tmp_path):
    """A flood below all sockets and queues passes only at the rate of the link."""
    count, size, rate = 1_000_000, 1000, 50e6
    script = f"test $RANK = 1 && exec {PYTHON} {HERE}/rx_rate.py; sleep 1; exec {BIN}/xdp-flood eth0 {count} {size}"
    run = netns(tmp_path, "--workers", 2, "--switch", "none", "--rate", "50mbit", "--", "sh", "-c", script)
    assert run.status == 0
    seen = run.json(1)[0]
    assert run.links["to_switch"]["frames"] >= count / 2  # the flood did reach the link
    assert 0 < seen["bytes"] < count * size / 4
    assert seen["bytes"] * 8 < rate * (seen["seconds"] + 0.1)


def test_everything_at_once(tmp_path):
    run, seen = probe(tmp_path, "--loss", 0.05, "--dup", 0.1, "--corrupt", 0.1, "--reorder", 0.1, "--delay", "2ms",
                      "--rate", "100mbit")
    assert all(run.links["total"][name] > 0 for name in ("dropped", "duplicated", "corrupted", "reordered"))
    assert seen["unique"] > COUNT / 2
    assert seen["shortest_delay"] >= 0.004
