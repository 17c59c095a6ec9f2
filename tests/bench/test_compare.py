# SPDX-License-Identifier: BSD-2-Clause
"""The guard against regressions: what tools/bench/compare says of figures that are made up."""

import importlib.machinery
import importlib.util
import json
import pathlib
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"
sys.path.insert(0, str(TOOLS))

LOADER = importlib.machinery.SourceFileLoader("compare", str(TOOLS / "compare"))
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", LOADER))
LOADER.exec_module(compare)

RATIO, LOSS, TIME = "their time over ours", "time over time without loss", "us"


def results(cores=2.0, rounds=3, mtus=(1500,), **figures):
    """name=(value, unit)"""
    measured = [{"name": name, "value": value, "ratio": value, "unit": unit, "command": "repeat " + name}
                for name, (value, unit) in figures.items()]
    return [{"name": "conditions", "value": cores, "unit": "cores", "command": "", "plan": {"rounds": rounds, "mtus": list(mtus)}}, *measured]


def recorded(**figures):
    return {"commit": "", "conditions": {"cores": 2.0, "mtus": [1500]}, "figures": figures}


@pytest.mark.parametrize("name, value, unit, before, is_bad", [
    ("figure", 1.0, RATIO, 1.3, False), ("figure", 1.0, RATIO, 1.5, True), ("figure", 2.0, RATIO, 1.0, False),
    ("figure", 1.3, LOSS, 1.0, False), ("figure", 1.5, LOSS, 1.0, True), ("figure", 1.0, LOSS, 2.0, False),
    ("figure", None, RATIO, 1.0, True), ("figure", 1, "ns/element", 100, False),
    ("a_mtu1500_udp", 1.0, TIME, 1.5, True), ("a_xdp+fresh", 1.0, TIME, 1.5, True), ("a_mpi-ring", 1.0, TIME, 1.5, False)])
def test_what_is_worse(name, value, unit, before, is_bad, capsys):
    assert compare.compare(results(**{name: (value, unit)}), recorded(**{name: before})) == ([name] if is_bad else [])
    assert (f"repeat {name}" in capsys.readouterr().out) == is_bad


@pytest.mark.parametrize("other", [{"cores": 16.0}, {"mtus": (3498,)}])
def test_other_conditions_are_not_compared(other, capsys):
    now = results(**other, figure=(1, RATIO))
    assert compare.compare(now, recorded(figure=9)) == [] and "nothing can be compared" in capsys.readouterr().out
    assert compare.record(now, recorded(figure=9, old=1))["figures"] == {"figure": 1}


def test_other_figures_are_told(capsys):
    assert compare.compare(results(rounds=1, new=(1, RATIO)), recorded(old=1)) == []
    text = capsys.readouterr().out
    assert "1 recorded, and not measured now" in text and "1 measured, and not recorded" in text


def test_what_was_not_measured_stays_recorded():
    now = results(a=(2, RATIO), b=(3, "ns/element"), d=(None, RATIO))
    assert compare.record(now, recorded(a=1, c=4, d=5))["figures"] == {"a": 2, "c": 4, "d": 5}


def test_from_a_build_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["compare", str(tmp_path)])
    with pytest.raises(SystemExit, match="run tools/bench/run"):
        compare.main()
    monkeypatch.setattr(compare, "RECORD", tmp_path / "recorded.json")
    (tmp_path / "bench").mkdir()
    for value, rounds, arguments, status in ((2, 3, ["--record"], 0), (2, 1, [], 0), (1, 1, [], 1)):
        (tmp_path / "bench" / "results.json").write_text(json.dumps(results(rounds=rounds, figure=(value, RATIO))))
        monkeypatch.setattr("sys.argv", ["compare", str(tmp_path), *arguments])
        assert compare.main() == status
    monkeypatch.setattr("sys.argv", ["compare", str(tmp_path), "--record"])
    with pytest.raises(SystemExit, match="of 1 rounds"):
        compare.main()


def test_what_is_recorded_can_be_compared():
    then = json.loads((TOOLS / "recorded.json").read_text())
    assert then["commit"] and then["conditions"]["cores"] and all(value > 0 for value in then["figures"].values())
