# SPDX-License-Identifier: BSD-2-Clause
"""Links between leaves and spines that fail under a job: it goes on at another spine."""

import json
import re
import shlex

import pytest

from allreduce import assert_exact, compared, objects
from netns import netns

JOB = 1  # of the tree over spine0; the next is that over spine1
PINS = {"spine0": "inagg", "spine1": "inagg-spine1", "leaf0": "inagg-leaf0", "leaf1": "inagg-leaf1"}


def ctl(switch, *words):
    return f"inaggctl --bpffs /sys/fs/bpf/{PINS[switch]} {' '.join(words)}"


def cut_run(tmp_path, *options, iterations=40, then="true", at_the_end="true"):
    """A checked allreduce over two trees, of 400 ms a round, while links of the fabric fail; then a command on all ranks and
    one on rank 0."""
    perf = shlex.join(map(str, ("inagg-perf", "allreduce", "-b", "1M", "-e", "1M", *compared(iterations), "--check", "--json")))
    return netns(tmp_path, "--workers", 4, "--topology", "leaf-spine", "--leaves", 2, "--spines", 2, "--trees", 2,
                 "--job", JOB, "--transport", "udp", "--rate", "20mbit", *options, "--",
                 "sh", "-c", f"{perf} && {{ {then}; }} && {{ test $INAGG_RANK != 0 || {{ {at_the_end}; }}; }}")


def configured(algorithm="switchml"):
    """Options that keep the counters of both trees at the end, at both spines."""
    return ["--algorithm", algorithm, *(word for job in (JOB, JOB + 1) for word in
                                        ("--root-arg", "--job", "--root-arg", f"{job}:size=4,algorithm={algorithm}"))]


def moves(run):
    """(switch, job, from, to) of each move in the agents' logs."""
    return re.findall(r"\[(leaf\d)\].* job (\d+): goes from the root (\S+) to (\S+): ", run.error)


def uplinks(run, leaf):
    """The ports by which roots have answered for the first job, in turn."""
    return re.findall(rf"\[{leaf}\].* job {JOB}: parent's CONFIG of rank \d+ from (\w+)/", run.error)


def stats(run):
    """Of each spine in turn, the jobs' counters."""
    tables = [value for value in objects("\n".join(run.lines(0)) + "\n") if isinstance(value, list)]
    return [{row["job"]: row for row in table if row["job"] in (JOB, JOB + 1)} for table in tables]


BOTH_SPINES = " && ".join(ctl(spine, "--json", "stats") for spine in ("spine0", "spine1"))


@pytest.mark.parametrize("algorithm, loss", [("switchml", ()), ("switchml", ("--loss", "0.01")), ("panama", ())])
def test_a_link_takes_its_tree_to_the_other_spine(tmp_path, algorithm, loss):
    run = cut_run(tmp_path, *configured(algorithm), *loss, "--cut", "leaf1/uplink0@5s", at_the_end=BOTH_SPINES)
    assert_exact(run, jobs=1, ranks=4)
    assert sorted(move[:2] for move in moves(run)) == [("leaf0", str(JOB)), ("leaf1", str(JOB))]
    before, after = stats(run)
    assert before[JOB]["additions"] > 0 and after[JOB]["additions"] > 0
    assert before[JOB + 1]["additions"] == 0 < after[JOB + 1]["additions"]
    assert after[JOB]["additions"] + before[JOB]["additions"] >= after[JOB + 1]["additions"]


def test_a_job_that_nobody_configured_leaves_nothing_behind(tmp_path):
    """And where it is shows, too."""
    look = f"sleep 8; {ctl('leaf0', 'job', 'show', str(JOB))}; {ctl('spine0', '--json', 'job', 'list')}"
    run = cut_run(tmp_path, "--cut", "leaf1/uplink0@5s", "--also-in-switch", look)
    assert_exact(run, jobs=1, ranks=4)
    assert re.search(r"summed further at 10\.77\.0\.2,", run.output), run.output
    listed = next(value for value in objects(re.sub(r"(?m)^\[switch\] ", "", run.output)) if isinstance(value, list))
    assert listed == []


def test_a_link_that_returns_is_used_by_the_next_job(tmp_path):
    run = cut_run(tmp_path, "--cut", "leaf0/uplink0@5s", "--mend", "leaf0/uplink0@7s", iterations=30,
                  then="sleep 3 && inagg-perf allreduce -b 64K -e 64K --check")
    assert_exact(run, jobs=1, ranks=4)
    assert len(moves(run)) == 2
    ports = uplinks(run, "leaf0")
    assert (ports[0], ports[-1]) == ("uplink0", "uplink0") and "uplink1" in ports


def test_a_new_job_begins_where_all_can_be(tmp_path):
    run = cut_run(tmp_path, "--cut", "leaf1/uplink0@1ms", iterations=5)
    assert_exact(run, jobs=1, ranks=4)
    assert set(uplinks(run, "leaf0") + uplinks(run, "leaf1")) == {"uplink1"}
    assert not moves(run)


def test_a_leafs_agent_is_restarted_after_the_move(tmp_path):
    run = cut_run(tmp_path, "--cut", "leaf1/uplink0@5s", "--kill-inaggd", "leaf1@7s", "--restart-inaggd", "leaf1@8s")
    assert_exact(run, jobs=1, ranks=4)
    assert len(re.findall(r"\[leaf1\].* boot id", run.error)) == 2
    assert len(moves(run)) == 2


def test_the_old_spines_agent_is_dead(tmp_path):
    run = cut_run(tmp_path, "--kill-inaggd", "spine0@4s", "--cut", "leaf1/uplink0@5s")
    assert_exact(run, jobs=1, ranks=4)
    assert len(moves(run)) == 2


def test_an_outage_of_all_common_spines_is_waited_for(tmp_path):
    run = cut_run(tmp_path, "--cut", "leaf0/uplink0@5s", "--cut", "leaf1/uplink1@5500ms", "--mend", "leaf0/uplink0@7500ms")
    assert_exact(run, jobs=1, ranks=4)


def test_without_a_common_spine_the_ranks_are_told(tmp_path):
    run = cut_run(tmp_path, "--cut", "leaf0/uplink0@5s", "--cut", "leaf1/uplink1@5s", iterations=1000)
    assert run.status != 0
    assert "check the links between the switches" in run.error
