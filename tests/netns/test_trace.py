# SPDX-License-Identifier: BSD-2-Clause
"""inaggctl trace: for whom blocks wait, in one switch and in those of a tree."""

import json

import pytest

from netns import netns

LEAVES = ("--also", "/sys/fs/bpf/inagg-leaf0", "--also", "/sys/fs/bpf/inagg-leaf1")


def traces(tmp_path, workers, late, *options, also=()):
    """What trace says again and again, while rank `late` sleeps before a sum."""
    look = f"inaggctl --json trace 1 --seconds 0.5 {' '.join(also)} >{tmp_path}/$look && mv {tmp_path}/$look {tmp_path}/$look.trace"
    script = f"for look in $(seq 1000); do {look}; sleep 0.1; done"
    run = netns(tmp_path, "--workers", workers, "--transport", "udp", "--also-in-switch", script, *options, "--",
                "inagg-perf", "allreduce", "-b", "4K", "-e", "4K", "-n", 1, "-w", 0, "-d", "int32", "--straggle", f"{late}:7s")
    assert run.status == 0
    return [json.loads(path.read_text()) for path in tmp_path.glob("*.trace")]


def blocks(trace, number, state):
    return [block for block in trace["switches"][number]["blocks"] if block["state"] == state]


@pytest.mark.parametrize("options", [(), ("--algorithm", "trio"), ("--algorithm", "panama")])
def test_one_switch_waits_for_a_rank(tmp_path, options):
    seen = traces(tmp_path, 3, 1, *options)
    assert seen
    for trace in seen:
        (switch,) = trace["switches"]
        assert switch["parent"] == "none" and switch["children"] == [] and switch["here"] == [0, 1, 2]
    waiting = [block for trace in seen for block in blocks(trace, 0, "open")
               if block["waits_for"] == [1] and block["in"] == [0, 2] and block["seconds"] >= 0.4]
    assert waiting, seen


def test_a_tree_is_followed_to_the_rank(tmp_path):
    def shows_the_way(trace):
        root, leaf0, leaf1 = trace["switches"]
        assert leaf0["parent"] == leaf1["parent"] == root["address"] and root["parent"] == "none"
        return ({tuple(block["waits_for"]) for block in blocks(trace, 0, "open")} == {(2, 3)}
                and blocks(trace, 1, "sent up") and not blocks(trace, 1, "open")
                and {tuple(block["waits_for"]) for block in blocks(trace, 2, "open")} == {(3,)}
                and sorted(child["ranks"] for child in root["children"]) == [[0, 1], [2, 3]]
                and {child["address"] for child in root["children"]} == {leaf0["address"], leaf1["address"]})

    seen = traces(tmp_path, 4, 3, "--topology", "two-level", also=LEAVES)
    assert any(map(shows_the_way, seen)), seen
