# SPDX-License-Identifier: BSD-2-Clause
"""trio: the others go on without a rank that is gone, and take it back, or hear at least that it is a straggler."""

import pathlib

import pytest

from netns import PYTHON as INTERPRETER, netns

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parent.parent / "userspace" / "python"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_rank_is_lost_and_comes_back(tmp_path, how):
    """Killed, it comes back as another process; stopped, it learns that it is out and joins again. No block has an expiry, so
    that only its exclusion lets the others go on, also in barriers."""
    known = tmp_path / "known"
    known.mkdir()
    rank = f"{INTERPRETER} -B {HERE / 'straggler.py'}"
    run = netns(tmp_path, "--workers", 4, "--algorithm", "trio", "--transport", "udp", "--loss", 0.01, "--", "sh", "-c",
                f"{rank} {how} {known} || exec {rank} back {known}",
                environment={"PYTHONPATH": str(PYTHON), "INAGG_EXCLUDE_AFTER": "2s", "INAGG_TIMEOUT_MS": "60000"})
    for rank in (0, 1, 3):
        lines = run.lines(rank)
        sums = [line.split()[3] for line in lines if line.startswith("step")]
        assert "done" in lines
        assert "3" in sums, "without the one that is lost"
        assert sums[-1] == "4" and sums[:2] == ["4", "4"]
        assert any(line.endswith("excluded 4") for line in lines)
    assert run.lines(0).count("done") == 1
    back = run.lines(2)
    assert "done" in back and (how == "kill" or any("excluded from job" in line for line in back))


def test_where_nobody_is_excluded_stragglers_are_told_of(tmp_path):
    """A rank that is stopped is a straggler, after 5 s one for good, and when it goes on none any more. So the others hear."""
    known = tmp_path / "known"
    known.mkdir()
    run = netns(tmp_path, "--workers", 3, "--algorithm", "trio", "--transport", "udp", "--expiry", "10ms", "--",
                INTERPRETER, "-B", HERE / "straggler.py", "judged", known,
                environment={"PYTHONPATH": str(PYTHON), "INAGG_EXPIRY": "10ms"})
    assert run.status == 0, run.error
    for rank in (0, 1):
        heard = [line for line in run.lines(rank) if line.startswith("heard")]
        assert heard.index("heard temporary") < heard.index("heard permanent")
        assert "heard none" in heard[heard.index("heard permanent"):]
