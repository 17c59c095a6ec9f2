# SPDX-License-Identifier: BSD-2-Clause
"""coarse.py: rates that can be worked out by hand, a seed says all, and it agrees with inagg-sim."""

import sys
from pathlib import Path

import pytest
from packets import PAYLOAD, outcome, simulate

numpy = pytest.importorskip("numpy")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import coarse  # noqa: E402

FABRIC = ["--leaves", 8, "--spines", 8, "--hosts", 8]
CONTENDERS = [["--algorithm", "switchml"], ["--algorithm", "switchml", "--trees", 4], ["--algorithm", "canary"], ["--algorithm", "ring"]]


def model(*options):
    return coarse.run(coarse.parse(options))


def shares(capacity, demand, *uses):
    """Rates of flows; each use: flow, link, weight."""
    flow, link, weight = (numpy.array(column) for column in zip(*uses))
    return coarse.max_min(numpy.array(capacity, float), numpy.array(demand, float), flow, link, weight.astype(float))[0].tolist()


def test_two_flows_share_a_link():
    assert shares([100], [1000, 1000], (0, 0, 1), (1, 0, 1)) == [50, 50]


def test_who_asks_for_little_gets_it():
    assert shares([100], [10, 1000], (0, 0, 1), (1, 0, 1)) == [10, 90]


def test_a_tree_is_as_fast_as_its_slowest_link_and_others_get_the_rest():
    """Flow 0 uses both links, flows 1 and 2 the first, flow 3 the second."""
    assert shares([90, 100], [1000] * 4, (0, 0, 1), (0, 1, 1), (1, 0, 1), (2, 0, 1), (3, 1, 1)) == [30, 30, 30, 70]


def test_a_flow_of_two_ways_takes_half_of_each():
    assert shares([100, 10], [1000, 1000], (0, 0, 0.5), (0, 1, 0.5), (1, 0, 1)) == [20, 90]


def test_a_burst_meets_what_others_take():
    """One that takes 70 of 100 gives way to half, one that takes 10 keeps it."""
    link, load = numpy.array([0, 1, 0, 1]), numpy.array([70, 10, 5, 5]) * 1e9
    got = coarse.burst_share(100e9, numpy.array([0, 1]), numpy.array([5e9, 5e9]), link, load)
    assert got == pytest.approx([50e9, 90e9], rel=1e-6)


@pytest.mark.parametrize("trees", [1, 4])
def test_an_empty_network_carries_what_its_links_do(trees):
    row = model(*FABRIC, "--trees", trees, "--size", "16M")
    assert 0.99 * PAYLOAD < row["gbps_mean"] <= PAYLOAD


def test_links_between_switches_have_a_rate_of_their_own():
    slow = model(*FABRIC, "--link-rate", "25gbit", "--size", "16M")
    assert 0.99 * PAYLOAD / 4 < slow["gbps_mean"] <= PAYLOAD / 4


def test_a_tree_beside_another_has_half():
    """One spine, two jobs of two leaves each: all share both leaves' links."""
    row = model("--leaves", 2, "--spines", 1, "--hosts", 4, "--jobs", 2, "--placement", "scattered", "--size", "16M")
    assert row["gbps_each"].split()[0] == row["gbps_each"].split()[1]
    assert row["gbps_mean"] == pytest.approx(PAYLOAD / 2, rel=0.01)


def test_a_slow_tree_keeps_others_waiting_when_windows_are_longer_than_buffers():
    options = [*FABRIC, "--ranks", 32, "--trees", 4, "--background", "permutation"]
    assert model(*options, "--slots", 256)["gbps_mean"] < 0.9 * model(*options, "--slots", 16)["gbps_mean"]


@pytest.mark.parametrize("hosts", [2, 4, 16])
def test_the_ring_is_bound_by_what_each_host_sends(hosts):
    """The tensor nearly twice; each segment has 86 bytes of headers, and its acknowledgement as many."""
    bound = 100 * 3328 / (3328 + 2 * 86) * hosts / (2 * (hosts - 1))
    row = model("--hosts", hosts, "--algorithm", "ring", "--size", "64M")
    assert 0.99 * bound < row["gbps_mean"] <= bound


def test_canary_waits_for_a_window_at_first():
    """A leader's results leave behind its own elements: 64 more slots cost the time of 64 frames, once."""
    times = [model(*FABRIC, "--algorithm", "canary", "--size", "4M", "--slots", slots)["us_mean"] for slots in (64, 128)]
    assert times[1] - times[0] == pytest.approx(64 * 3458 * 8 / 100e9 * 1e6, rel=0.01)


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda options: " ".join(map(str, options)))
def test_a_seed_says_all(contender):
    options = [*FABRIC, *contender, "--ranks", 32, "--background", "permutation", "--size", "256K"]
    rows = [model(*options, "--seed", seed) for seed in (1, 1, 2)]
    first, again, other = map(outcome, rows)
    assert first == again
    assert first["background_gbps"] != other["background_gbps"]


def test_hosts_are_those_of_inagg_sim(tmp_path):
    """The draws are ns-3's: the same hosts sum."""
    links = tmp_path / "links"
    simulate(*FABRIC, "--elements", 832, "--ranks", 32, "--size", "64K", "--seed", 3, "--links", links)
    used = {host for host, load in enumerate(links.read_text().split()[:64]) if float(load) > 0}
    jobs, idle = coarse.place(coarse.parse([*FABRIC, "--ranks", 32, "--seed", 3]), coarse.Draws(3))
    assert used == set(jobs[0]["hosts"].tolist()) == set(range(64)) - set(idle)


@pytest.mark.parametrize("traffic", ["none", "permutation"])
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda options: " ".join(map(str, options)))
def test_it_agrees_with_packets(contender, traffic):
    """Of 64 hosts half sum. Beside other traffic canary is the worst (docs/SCALING.md)."""
    canary = "canary" in contender
    off = 0.04 if traffic == "none" else 0.25 if canary else 0.12
    options = [*FABRIC, *contender, "--ranks", 32, "--background", traffic, "--size", "1M", "--elements", 832, "--slots", 64]
    fixed = ["--buffer", "64K", *(["--canary-timeout", "0ns"] if canary else [])]
    assert model(*options)["gbps_mean"] == pytest.approx(float(simulate(*options, *fixed)["gbps_mean"]), rel=off)


@pytest.mark.parametrize("options, what", [
    (["--leaves", 2], "--leaves 2: need --spines"),
    (["--hosts", 4, "--ranks", 5], "--ranks 5: there are only 4 hosts"),
    (["--hosts", 4, "--jobs", 3], "--jobs 3: 4 ranks are fewer than 2 each"),
    (["--algorithm", "ring", "--trees", 2], "--trees 2: only switchml has several"),
    (["--trees", 2], "--trees 2: there are only 0 spines"),
    (["--elements", 0], "--elements 0: at least 1"),
    (["--spines", -1], "--spines -1: at least 0"),
    (["--size", "4X"], "4X: a number of bytes"),
    (["--link-rate", "fast"], "fast: a rate, such as 100gbit"),
    (["--algorithm", "canary", "--ranks", 128, "--hosts", 128], "--ranks 128: canary's jobs have at most 64 ranks; take --jobs 2"),
], ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None)
def test_refusals_name_the_value(options, what, capsys):
    with pytest.raises(SystemExit):
        coarse.parse(options)
    assert what in capsys.readouterr().err
