# SPDX-License-Identifier: BSD-2-Clause
"""The plans of the chaos runner are its seeds', and its checks can fail."""

import dataclasses
import json
import os
import subprocess
import types

import pytest

import checks
from faults import KEPT, REFUSED
from plan import FATAL_WITH_SERVER, LINKS, SHAPES, SURVIVED, Fault, plan

SEEDS = range(1, 400)
FINE = {"rounds": 3, "tensors": 5, "elements": 99, "wrong": 0}


def test_a_seed_is_a_plan():
    assert [plan(seed) for seed in SEEDS] == [plan(seed) for seed in SEEDS]
    assert len({plan(seed) for seed in SEEDS}) == len(SEEDS)


def test_everything_happens():
    plans = [plan(seed) for seed in SEEDS]
    assert {fault.kind for one in plans for fault in one.faults} == {*SURVIVED, *FATAL_WITH_SERVER}
    assert {name for one in plans for name, _ in one.links} == set(LINKS)
    assert {one.algorithm for one in plans} == {algorithm for algorithm, _, _ in SHAPES}


def scenario(*kinds):
    """Of two ranks and a job, whose rank 1 is hit."""
    return dataclasses.replace(plan(1), algorithm="switchml", workers=2, jobs=1, trees=1,
                               faults=tuple(Fault(kind, 2, 3, "1") for kind in kinds))


def judged(one, *ranks, status=0, more=""):
    """Violations if each rank has printed these objects."""
    output = "".join(f"[{rank}] {json.dumps(entry)}\n" for rank, entries in enumerate(ranks) for entry in entries) + more
    lines = lambda rank: [line[4:] for line in output.splitlines() if line.startswith(f"[{rank}] ")]  # noqa: E731
    return checks.judge(one, types.SimpleNamespace(status=status, output=output, error="", lines=lines), 5)


def error(text, after=1):
    return {**FINE, "error": text, "after": after}


def test_exact_sums_are_fine():
    assert judged(scenario("upgrade"), [FINE], [FINE]) == []


@pytest.mark.parametrize("ranks", [
    ([FINE], [{**FINE, "wrong": 1}]),
    ([FINE], []),
    ([FINE], [{**FINE, "rounds": 0}]),
    ([FINE], [error("job 10: data block 7 waits for rank 1")]),
])
def test_what_must_survive_and_does_not_is_said(ranks):
    assert judged(scenario("upgrade"), *ranks)


def test_a_run_that_hangs_is_said():
    assert judged(scenario("upgrade"), [FINE], [FINE], status=124)


def test_jobs_that_stay_are_said():
    assert judged(scenario("upgrade"), [FINE], [FINE], more=f"[0] switch {KEPT}\n")


def test_a_fault_that_could_not_be_is_said():
    line = f"[switch] {REFUSED} upgrade 1\n"
    assert judged(scenario("upgrade"), [FINE], [FINE], more=line)
    assert judged(scenario("agent-killed", "upgrade"), [FINE], [FINE], more=line) == []


NAMED = "job 10: no progress for 5000 ms: data block 7 waits for rank 1"


@pytest.mark.parametrize("entry, fine", [
    (error(NAMED), True),
    (error(NAMED, after=60), False),
    (error("job 10: no progress for 5000 ms: data block 7 waits for rank 0"), False),
    (error("job 99: data block 7 waits for rank 1"), False),
    (error("bad file descriptor"), False),
    ({**error(NAMED), "wrong": 1}, False),
    (FINE, False),
])
def test_who_loses_a_rank_is_told_so_in_time(entry, fine):
    assert (judged(scenario("worker-killed"), [entry], [], status=137) == []) == fine


def test_after_a_restart_all_must_be_exact():
    told = error("the switch at 10.77.0.1 ended job 10: the job was restarted by another run")
    assert judged(scenario("worker-restarted"), [told, FINE], [FINE]) == []
    assert judged(scenario("worker-restarted"), [told], [FINE])


def test_a_server_may_take_some_jobs_with_it():
    lost = error("the server or switch at 10.77.0.1, which the switch at 10.77.0.2 is behind, ended job 10: no such job")
    assert judged(scenario("server-restarted"), [lost], [FINE]) == []
    assert judged(scenario("server-restarted"), [lost], [])
    assert judged(scenario("server-restarted"), [lost], [{**FINE, "wrong": 2}])
    assert judged(scenario("server-restarted"), [lost], [error("no reason")])


def test_a_process_that_stays_is_found():
    token = f"test-{os.getpid()}"
    leaks = checks.Leaks(patience=0)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, checks.TOKEN: token}) as process:
        try:
            while not checks.processes(token):  # until it has its environment
                pass
            assert leaks.found(token, set()) == [f"left: process {process.pid}"]
        finally:
            process.kill()
    assert leaks.found(token, set()) == []


def test_a_process_that_ends_while_it_is_looked_at_holds_nothing(monkeypatch):
    def ended(*_):
        raise FileNotFoundError

    monkeypatch.setattr(os, "scandir", ended)
    assert checks.held_by([os.getpid()]) == set()
