# SPDX-License-Identifier: BSD-2-Clause
"""inagg-sim: sums are exact, a seed says all, and rates are what the links carry. The program checks each sum itself."""

import os
import subprocess
from pathlib import Path

import pytest

SIM = Path(os.environ["INAGG_BUILD"]) / "bin" / "inagg-sim"
FABRIC = ["--leaves", "4", "--spines", "4", "--hosts", "4", "--elements", "832"]
PAYLOAD = 100 * 3328 / (3328 + 130)  # Gbit/s: what 100 Gbit/s carry of elements
THIS_RUN = {"wall_s", "memory_mib"}  # depend on the machine


def simulate(*options, fails=False):
    done = subprocess.run([SIM, *options], capture_output=True, text=True, timeout=60)
    if fails:
        assert done.returncode == 1, done.stdout
        return done.stderr
    assert done.returncode == 0, done.stderr
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def outcome(row):
    return {name: value for name, value in row.items() if name not in THIS_RUN}


CONTENDERS = [["--algorithm", "switchml"], ["--algorithm", "switchml", "--trees", "4"], ["--algorithm", "canary"],
              ["--algorithm", "ring"]]


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


def test_racks_below_a_spine_are_as_fast():
    row = simulate("--leaves", "8", "--spines", "1", "--hosts", "16", "--elements", "832", "--size", "1M")
    assert 0.94 * PAYLOAD < float(row["gbps_mean"]) <= PAYLOAD


@pytest.mark.parametrize("contender", CONTENDERS, ids=" ".join)
def test_no_link_carries_more_than_it_can(contender):
    row = simulate(*FABRIC, *contender, "--ranks", "8", "--background", "permutation", "--size", "1M", "--buffer", "64K")
    assert 0.1 < float(row["utilisation"]) < float(row["utilisation_max"]) <= 1.001


@pytest.mark.parametrize("contender", [CONTENDERS[0], CONTENDERS[2]], ids=" ".join)
def test_what_is_dropped_is_sent_again(contender):
    """Slow links up with queues of four packets: the sums are still exact, or the program would fail."""
    row = simulate(*FABRIC, *contender, "--size", "256K", "--queue", "16K", "--link-rate", "25gbit", "--slots", "64")
    assert int(row["drops"]) > 0 and int(row["resends"]) > 0
    assert int(row["blocks"]) == 16 * 79


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


@pytest.mark.parametrize("options, what", [
    (["--leaves", "2"], "--leaves 2: need --spines"),
    (["--hosts", "4", "--ranks", "5"], "--ranks 5: there are only 4 hosts"),
    (["--slots", "3"], "--slots 3: must be a power of two"),
    (["--leaves", "3", "--spines", "1", "--hosts", "32", "--algorithm", "canary"], "take --jobs 2"),
    (["--trees", "2"], "--trees 2: there are only 0 spines"),
    (["--leaves", "2", "--spines", "1", "--hosts", "64", "--size", "4K"], "64 children of job 0: 1 to 63"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_refusals_name_the_value(options, what):
    assert what in simulate(*options, fails=True)
