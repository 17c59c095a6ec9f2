# SPDX-License-Identifier: BSD-2-Clause
"""The figures that `make bench` writes, of measurements that are made up: names that others rely on, ratios, bars."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"))

import bench  # noqa: E402
from contenders import Failed, Runner  # noqa: E402

# Microseconds of 4 KiB; others are in proportion.
TIMES = {"udp": 40, "afxdp": 30, "xdp": 20, "mpi-ring": 200, "gloo-ring": 160, "mpi-default": 50, "gloo-bcube": 60}
LOSS = {0.01: 1.6}
LIMITED_US = 400_000  # 4 MiB: 84 Mbit/s of tensor


class Pretended(Runner):
    def __init__(self, build, failing=()):
        super().__init__(build)
        self.failing = failing

    def missing(self, contender):
        return ""

    def allreduce(self, contender, network, size, iterations):
        transport, _, more = contender.partition("+")
        if transport in self.failing:
            raise Failed("it does not run here")
        if network.rate:
            return LIMITED_US * (1 if transport in bench.TRANSPORTS else 2)
        return TIMES[transport] * (size / 4096) * (2 if more == "fresh" else 1) * LOSS.get(network.loss, 1)

    def ping_pong(self, mtu):
        if "ping-pong" in self.failing:
            raise Failed("it does not run here")
        return 10

    def tcp(self, switch, seconds):
        return {"none": 40, "inaggd": 4}[switch]

    def script(self, name, *_):
        assert name == "stragglers"
        return [{"window": 20, "expiry_ms": expiry, "sweeps": 4, "median_ms": 3, "p99_ms": 9, "most_ms": 12, "bound_ms": 2 * expiry + 1,
                 "sweep_median_ms": 3, "sweep_p99_ms": 4, "overflows": 0} for expiry in (2, 10)]

    def script_command(self, name, *_):
        return ["tools/bench/" + name]

    def switch(self, rounds):
        return [{"dtype": "fixed32", "elements": elements, "ranks": 8, "checked": False, "switch_ns_per_element": 0.25,
                 "copy_ns_per_element": 0.1, "ratio": 2.5, "ratio_with_driver": 1.6} for elements in (256, 352, 832)]


@pytest.fixture(autouse=True)
def _nothing_is_sampled(monkeypatch):
    monkeypatch.setattr(bench, "busy_fraction", lambda: 0)


def measured(folder, failing=()):
    """The bench, and what it has written, by name."""
    one = bench.Bench(folder, bench.QUICK, bench.PARTS)
    one.runner = Pretended(folder, failing)
    for part in ("switch", "free", "limited", "loss", "tcp", "stragglers"):
        getattr(one, part)()
    rows = json.loads(one.write().read_text())
    assert one.write() == folder / "bench" / "results.json"
    return one, {row["name"]: row for row in rows}


def test_names_that_others_rely_on(tmp_path):
    one, rows = measured(tmp_path)
    assert all({"name", "value", "unit", "peer", "ratio", "command"} <= row.keys() for row in rows.values())
    assert rows["switch_add_vs_copy_352"]["value"] == 1.6
    assert rows["switch_add_vs_copy_352_net"]["value"] == 2.5
    assert rows["allreduce_4K_n8_vs_best_ring"]["value"] == 160 / 20
    assert rows["allreduce_4K_n8_fresh_vs_best_ring"]["value"] == 160 / 40
    assert rows["allreduce_4K_n8_vs_best_peer"]["value"] == 50 / 20
    assert rows["allreduce_64M_n8_vs_best_ring"]["value"] == 160 / 20
    assert rows["allreduce_4K_n8_vs_ping_pong"]["value"] == 20 / 10
    assert rows["allreduce_4K_n8_mtu1500_ping-pong"]["value"] == 10
    # 4 MiB in 0.4 s: 84 of the 100 Mbit/s, of which headers have a part
    assert rows["limited_link_n8_fraction"]["value"] == pytest.approx(0.84 / bench.payload_share(1500), rel=0.01)
    assert rows["limited_link_n8_fraction"]["ratio"] == 2
    assert rows["loss_1pct_inflation"]["value"] == pytest.approx(1.6)
    assert rows["tcp_with_switch_vs_without"]["ratio"] == pytest.approx(0.1)
    assert one.summary()


def test_bars(tmp_path, capsys):
    one, _ = measured(tmp_path)
    one.summary()
    lines = {line.split()[0]: line for line in capsys.readouterr().out.split("== summary")[1].splitlines() if line.strip()}
    assert "meets at most 1.8" in lines["switch_add_vs_copy_352"]
    assert "meets at least 5" in lines["allreduce_4K_n8_vs_best_ring"]
    assert "meets at most 3" in lines["allreduce_4K_n8_vs_ping_pong"]
    assert "MISSES at most 1.5" in lines["loss_1pct_inflation"]
    assert "MISSES at least 1, as a ratio" in lines["straggler_20_p99_ms_2"]
    assert "meets at least 1, as a ratio" in lines["straggler_20_p99_ms_10"]


def test_what_does_not_run_is_said(tmp_path):
    """Without one of the peers the other is not called the best of them."""
    one, rows = measured(tmp_path, failing={"gloo-ring"})
    assert rows["allreduce_4K_n8_vs_best_ring"]["value"] is None and "gloo-ring" in rows["allreduce_4K_n8_vs_best_ring"]["peer"]
    assert rows["allreduce_4K_n8_mtu1500_gloo-ring"]["error"]
    assert not one.summary()


def test_without_a_ping_pong(tmp_path):
    one, rows = measured(tmp_path, failing={"ping-pong"})
    assert rows["allreduce_4K_n8_vs_ping_pong"]["value"] is None
    assert rows["allreduce_4K_n8_mtu1500_ping-pong"]["error"]
    assert rows["allreduce_4K_n8_vs_best_ring"]["value"] == 160 / 20
    assert not one.summary()
