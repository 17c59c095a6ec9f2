# SPDX-License-Identifier: BSD-2-Clause
"""inagg-sim: sums are exact, a seed says all, and rates are what the links carry. The program checks each sum itself."""

from pathlib import Path

import pytest
from packets import PAYLOAD, outcome, simulate

FABRIC = ["--leaves", "4", "--spines", "4", "--hosts", "4", "--elements", "832"]
CONTENDERS = [["--algorithm", "switchml"], ["--algorithm", "switchml", "--trees", "4"], ["--algorithm", "canary"],
              ["--algorithm", "ring"], ["--algorithm", "panama", "--trees", "4"], ["--algorithm", "atp"], ["--algorithm", "trio"]]
SWITCHED = [CONTENDERS[0], CONTENDERS[2], *CONTENDERS[4:]]  # all but the ring, each once


@pytest.mark.parametrize("contender", CONTENDERS, ids=" ".join)
def test_a_seed_says_all(contender):
    options = [*FABRIC, *contender, "--ranks", "8", "--background", "uniform", "--size", "128K", "--buffer", "64K"]
    first, again, other = (simulate(*options, "--seed", seed) for seed in "112")
    assert outcome(first) == outcome(again)
    assert first["events"] != other["events"]


@pytest.mark.parametrize("workers", [2, 16])
def test_a_rack_keeps_the_line_rate(workers):
    row = simulate("--hosts", str(workers), "--elements", "832", "--size", "4M")
    assert 0.97 * PAYLOAD < float(row["gbps_mean"]) <= PAYLOAD
    assert int(row["blocks"]) == workers * 1261  # each rank took each result once
    assert row["drops"] == row["resends"] == "0"


def test_fewer_blocks_than_trees():
    assert simulate(*FABRIC, "--trees", "4", "--size", "4K")["blocks"] == "32"  # two, which 16 ranks take


def test_racks_below_a_spine_are_as_fast():
    row = simulate("--leaves", "8", "--spines", "1", "--hosts", "16", "--elements", "832", "--size", "1M")
    assert 0.94 * PAYLOAD < float(row["gbps_mean"]) <= PAYLOAD


@pytest.mark.parametrize("contender", CONTENDERS, ids=" ".join)
def test_no_link_carries_more_than_it_can(contender):
    row = simulate(*FABRIC, *contender, "--ranks", "8", "--background", "permutation", "--size", "1M", "--buffer", "64K")
    assert 0.1 < float(row["utilisation"]) < float(row["utilisation_max"]) <= 1.001


@pytest.mark.parametrize("contender", SWITCHED, ids=" ".join)
def test_what_is_dropped_is_sent_again(contender):
    """Slow links up with queues of four packets: the sums are still exact, or the program would fail."""
    row = simulate(*FABRIC, *contender, "--ranks", "14", "--size", "256K", "--queue", "16K", "--link-rate", "25gbit", "--slots", "64",
                   "--placement", "scattered", "--uncontrolled")
    assert int(row["drops"]) > 0 and int(row["resends"]) > 0
    assert int(row["blocks"]) == 14 * 79


LOSSY = ["--hosts", "7", "--ranks", "6", "--size", "4M", "--uncontrolled", "--loss", "0.01"]


@pytest.mark.parametrize("algorithm", ["switchml", "panama", "canary", "atp", "trio"])
def test_what_links_lose_is_sent_again(algorithm):
    row = simulate(*LOSSY, "--algorithm", algorithm)
    assert int(row["blocks"]) == 6 * 4096
    assert row["drops"] == "0" and 50 < int(row["lost"]) < 200  # 1 % of two packets a block
    assert int(row["resends"]) + int(row["requests"]) > 0


def test_without_later_results_a_loss_costs_a_timer():
    row, other = (simulate(*LOSSY, "--algorithm", "switchml", *more) for more in ([], ["--timers-only"]))
    assert float(other["gbps_mean"]) < float(row["gbps_mean"]) / 2


def test_with_credits_nothing_is_lost():
    row = simulate(*FABRIC, "--algorithm", "canary", "--ranks", "8", "--background", "uniform", "--queue", "16K", "--buffer", "16K",
                   "--size", "512K")
    assert row["drops"] == "0"


def test_the_ring_is_bound_by_its_steps():
    """Each host sends the tensor nearly twice: at most n / 2(n - 1) of the rate."""
    row = simulate("--hosts", "4", "--elements", "832", "--algorithm", "ring", "--size", "4M")
    assert 0.85 * PAYLOAD * 4 / 6 < float(row["gbps_mean"]) <= PAYLOAD * 4 / 6


def test_a_congested_tree_is_slower():
    options = ["--leaves", "8", "--spines", "8", "--hosts", "8", "--elements", "832", "--ranks", "32", "--size", "1M", "--buffer", "64K"]
    quiet, busy = (float(simulate(*options, "--background", traffic)["gbps_mean"]) for traffic in ("none", "permutation"))
    assert busy < 0.95 * quiet


EIGHT = ["--leaves", "8", "--spines", "8", "--hosts", "8", "--elements", "832", "--algorithm", "canary", "--size", "1M", "--buffer", "64K"]


def test_results_that_overtake_come_sooner():
    """A leader's result does not wait behind its own window."""
    options = [*EIGHT, "--slots", "128", "--canary-timeout", "0ns"]
    waits, overtakes = (float(simulate(*options, *flags)["gbps_mean"]) for flags in ([], ["--overtake"]))
    assert waits * 1.2 < overtakes <= PAYLOAD


def test_noise_makes_stragglers():
    """What is a microsecond late comes after a timer of one (Canary Figure 11), and a seed says which packets these are."""
    options = [*EIGHT, "--slots", "32", "--canary-timeout", "1us"]
    clean, noisy, again = (simulate(*options, "--noise", share) for share in ("0", "0.1", "0.1"))
    assert int(noisy["stragglers"]) > 1.2 * int(clean["stragglers"])
    assert outcome(noisy) == outcome(again)


TEN = ["--elements", "352", "--host-rate", "10gbit", "--link-rate", "10gbit", "--delay", "5us", "--mark", "125K"]


def rates_of(path, ranks):
    """Of a job and of flows, Gbit/s, since the line before."""
    rows = [[int(cell) for cell in line.split(",")] for line in Path(path).read_text().splitlines()[1:]]
    return [((b[1] - a[1]) / ranks * 352 * 32 / (b[0] - a[0]), (b[2] - a[2]) * 8 / (b[0] - a[0])) for a, b in zip(rows, rows[1:])]


@pytest.mark.parametrize("control, least, most", [([], 0.7, 1.5), (["--uncontrolled"], 5, 100)], ids=["heeds marks", "does not"])
def test_a_flow_beside_panama(tmp_path, control, least, most):
    """Both have one link; the job has so many times the flow's rate (PANAMA Figure 10)."""
    samples = tmp_path / "samples"
    simulate("--hosts", "5", *TEN, "--algorithm", "panama", "--ranks", "4", "--background", "rank", "--dctcp", "--message", "1M", "--size",
             "4M", "--warm-up", "10ms", "--duration", "80ms", "--sample", "10ms", "--samples", samples, *control)
    job, flow = (sum(rates) for rates in zip(*rates_of(samples, 4)[-4:]))
    assert least < job / flow < most
    assert job + flow > 0.9 * 4 * 9.1


def test_flows_come_as_the_load_says(tmp_path):
    """Poisson, and of web search half below 80 KB; what they took is written down."""
    times = tmp_path / "flows"
    row = simulate("--leaves", "2", "--spines", "4", "--hosts", "8", *TEN, "--algorithm", "ring", "--ranks", "2", "--size", "4K", "--flows",
                   "websearch", "--largest-flow", "1M", "--load", "0.3", "--duration", "30ms", "--flow-times", times)
    flows = [[int(cell) for cell in line.split(",")] for line in times.read_text().splitlines()[1:]]
    assert len(flows) == int(row["flows_counted"]) and row["drops"] == "0"
    carried = sum(flow[0] for flow in flows) * 8 / 30e-3 / (16 * 10e9)
    assert 0.2 < carried < 0.4
    assert 0.4 < sum(flow[0] < 80e3 for flow in flows) / len(flows) < 0.65
    assert all(took >= size * 0.8 for size, _, took in flows)  # 10 Gbit/s


def test_panama_does_not_run_out_of_buffers():
    """Its cap sees to that; without room for a block there is no progress, and the program would fail."""
    row = simulate("--hosts", "8", "--elements", "832", "--algorithm", "panama", "--buffers", "64", "--size", "1M")
    assert row["unbuffered"] == "0" and int(row["blocks"]) == 8 * 316


def test_aggregators_are_shared():
    """Two jobs in turn do with less than two at once (ATP Figure 13)."""
    options = ["--hosts", "10", "--ranks", "8", "--jobs", "2", "--elements", "832", "--algorithm", "atp", "--mark", "200K", "--delay", "5us", "--size",
               "8M", "--iterations", "4", "--skip", "2", "--aggregators", "64"]
    in_turn = simulate(*options, "--compute", "900us", "--stagger", "800us")
    at_once = simulate(*options)
    assert float(in_turn["gbps_mean"]) > 1.1 * float(at_once["gbps_mean"])
    assert int(in_turn["collisions"]) < int(at_once["collisions"])


def test_control_keeps_an_incast_from_loss():
    """A quarter of the aggregators that a window takes, short queues (ATP Figure 15)."""
    options = ["--hosts", "9", "--ranks", "8", "--elements", "832", "--algorithm", "atp", "--delay", "5us", "--mark", "200K", "--queue", "1M",
               "--size", "2M", "--iterations", "12", "--slots", "256", "--aggregators", "64"]
    controlled, not_controlled = simulate(*options), simulate(*options, "--uncontrolled")
    assert int(controlled["drops"]) < int(not_controlled["drops"]) / 10  # of the first windows, mostly
    assert float(controlled["gbps_mean"]) > 1.5 * float(not_controlled["gbps_mean"])


@pytest.mark.parametrize("shape", [["--hosts", "4"], ["--leaves", "2", "--spines", "1", "--hosts", "4"]], ids=["switch", "tree"])
def test_trio_waits_for_stragglers_twice_the_expiry_at_most(shape):
    """All others are done without it, and it takes what they have (Trio-ML Figure 14)."""
    row = simulate(*shape, "--elements", "832", "--algorithm", "trio", "--slots", "1024", "--size", "832K", "--stragglers", "1", "--late", "50ms",
                   "--expiry", "5ms")
    assert row["degraded"] == row["expired"] == row["skipped"] == "256"
    assert 5000 < float(row["latency_us_max"]) < 10500


def test_all_at_once():
    names = "switchml,atp,trio,panama,canary,ring"
    row = simulate("--leaves", "4", "--spines", "4", "--hosts", "8", *TEN, "--algorithm", names, "--jobs", "6", "--ranks", "24", "--size", "128K",
                   "--flows", "both", "--largest-flow", "1M", "--load", "0.2", "--iterations", "2", "--dctcp", "--canary-timeout", "20us")
    assert len(row["gbps_each"].split()) == 6 and all(float(rate) > 0.1 for rate in row["gbps_each"].split())


@pytest.mark.parametrize("options, what", [
    (["--leaves", "2"], "--leaves 2: need --spines"),
    (["--hosts", "4", "--ranks", "5"], "--ranks 5: there are only 4 hosts"),
    (["--slots", "3"], "--slots 3: must be a power of two"),
    (["--leaves", "3", "--spines", "1", "--hosts", "32", "--algorithm", "canary"], "take --jobs 2"),
    (["--hosts", "4", "--algorithm", "atp"], "--ranks 4: of 4 hosts 1 have to be servers of atp"),
    (["--algorithm", "trio", "--records", "12"], "--records 12: must be a power of two"),
    (["--algorithm", "canary,ring", "--jobs", "2", "--trees", "2"], "--trees 2: only switchml and panama have several"),
    (["--trees", "2"], "--trees 2: there are only 0 spines"),
    (["--leaves", "2", "--spines", "1", "--hosts", "64", "--size", "4K"], "64 children of job 0: 1 to 63"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_refusals_name_the_value(options, what):
    assert what in simulate(*options, fails=True)
