# SPDX-License-Identifier: BSD-2-Clause
"""The guard against regressions: what tools/bench/compare says of figures that are made up."""

import importlib.machinery
import importlib.util
import json
import pathlib

import pytest

PATH = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench" / "compare"
LOADER = importlib.machinery.SourceFileLoader("compare", str(PATH))
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", LOADER))
LOADER.exec_module(compare)

RATIO, LOSS, TIME = "their time over ours", "time over time without loss", "us"


def results(**figures):
    """name=(value, unit)"""
    measured = [{"name": name, "value": value, "unit": unit, "command": "repeat " + name} for name, (value, unit) in figures.items()]
    return [{"name": "conditions", "value": 2.0, "unit": "cores", "command": ""}, *measured]


def recorded(cores=2.0, **figures):
    return {"commit": "", "conditions": {"cores": cores}, "figures": figures}


@pytest.mark.parametrize("value, unit, before, is_worse", [
    (1.0, RATIO, 1.2, False), (1.0, RATIO, 1.3, True), (2.0, RATIO, 1.0, False),
    (1.2, LOSS, 1.0, False), (1.3, LOSS, 1.0, True), (1.0, LOSS, 2.0, False),
    (100, TIME, 1, False), (None, RATIO, 1.3, False)])
def test_what_is_worse(value, unit, before, is_worse, capsys):
    assert compare.compare(results(figure=(value, unit)), recorded(figure=before)) == (["figure"] if is_worse else [])
    assert ("repeat figure" in capsys.readouterr().out) == is_worse


def test_other_cores_and_other_figures_are_told(capsys):
    compare.compare(results(new=(1, RATIO)), recorded(cores=16.0, old=1))
    text = capsys.readouterr().out
    assert "16.0" in text and "1 recorded, and not measured now" in text and "1 measured, and not recorded" in text


def test_what_was_not_measured_stays_recorded():
    assert compare.record(results(a=(2, RATIO), b=(3, TIME)), recorded(a=1, c=4))["figures"] == {"a": 2, "c": 4}


def test_from_a_build_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "RECORD", PATH.parent / "recorded.json")
    monkeypatch.setattr("sys.argv", ["compare", str(tmp_path)])
    with pytest.raises(SystemExit, match="run tools/bench/run"):
        compare.main()
    then = json.loads(compare.RECORD.read_text())
    (tmp_path / "bench").mkdir()
    for factor, status in ((1, 0), (10, 1)):
        measured = results(**{name: (value / factor, RATIO) for name, value in then["figures"].items()})
        (tmp_path / "bench" / "results.json").write_text(json.dumps(measured))
        assert compare.main() == status
