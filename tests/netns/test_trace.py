# SPDX-License-Identifier: BSD-2-Clause
"""inaggctl trace and top: for whom blocks wait, in one switch and in those of a tree."""

import json
import re

import pytest

from netns import HERE, netns

ROOT, *LEAVES = (f"/sys/fs/bpf/inagg{name}" for name in ("", "-leaf0", "-leaf1"))
FOLLOWED = [word for leaf in LEAVES for word in ("--also", leaf)]


def looks(tmp_path, workers, command, *options, perf):
    """What `inaggctl COMMAND` prints again and again beside an allreduce."""
    folder = tmp_path / "looks"
    folder.mkdir(exist_ok=True)
    part = f"{folder}/$$.$look"
    script = f"for look in $(seq 1000); do {{ {command}; }} >{part} && mv {part} {part}.whole; sleep 0.1; done"
    run = netns(tmp_path, "--workers", workers, "--transport", "udp", "--also-in-switch", script, *options, "--",
                "inagg-perf", "allreduce", "-b", "4K", "-e", "4K", "-w", 0, "-d", "int32", *perf)
    assert run.status == 0
    return [path.read_text() for path in folder.glob("*.whole")]


def traces(tmp_path, workers, late, *options, also=()):
    """What trace says while rank `late` sleeps before a sum."""
    seen = looks(tmp_path, workers, f"inaggctl --json trace 1 --seconds 0.5 {' '.join(also)}", *options,
                 perf=("-n", 1, "--straggle", f"{late}:7s"))
    return [json.loads(text) for text in seen]


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

    seen = traces(tmp_path, 4, 3, "--topology", "two-level", also=FOLLOWED)
    assert any(map(shows_the_way, seen)), seen


def test_the_shell_completes_the_number_of_a_job(tmp_path):
    complete = (f"bash -c 'source {HERE.parents[1]}/tools/completion/inagg; COMP_WORDS=(inaggctl trace \"\") COMP_CWORD=2; "
                "_inagg inaggctl; echo ${COMPREPLY[*]}'")
    assert "7\n" in looks(tmp_path, 2, complete, "--job", 7, perf=("-n", 1, "--straggle", "1:3s"))


# top


def section(top, heading):
    """The lines below a heading, without the columns' padding."""
    found = re.search(rf"^{heading}\n((?:.+\n)*)", top, re.M)
    return [" ".join(line.split()) for line in found[1].splitlines()] if found else []


def top_of(pins):
    """Shell: top in the namespace of the agent with these pins, where its ports have names."""
    return f'nsenter --net --target $(pgrep -f "[i]naggd.*{pins}( |$)") inaggctl --bpffs {pins} top --once --interval 0.5'


def test_top_shows_for_whom_each_switch_of_a_tree_waits(tmp_path):
    root, leaf0, leaf1 = "10.77.0.1", "10.77.0.129", "10.77.0.130"
    command = " && echo ===== && ".join(["inaggctl top --once --interval 0.5", *map(top_of, LEAVES)])
    seen = [[(section(top, "STRAGGLERS"), section(top, "TREE")) for top in text.split("=====\n")]
            for text in looks(tmp_path, 4, command, "--topology", "two-level", perf=("-n", 1, "--straggle", "3:9s"))]
    children = [f"1 below {leaf} through {port}, rank {rank}" for leaf, port, rank in
                ((leaf0, "p0", 0), (leaf0, "p0", 1), (leaf1, "p1", 2), (leaf1, "p1", 3))]
    parent = [f"1 above {root} through uplink"]

    def names_rank_3(tops):
        (above, below_root), (beside, above_leaf0), (below, above_leaf1) = tops
        return (below_root == children and above_leaf0 == above_leaf1 == parent and len(above) == len(below) == 1 and not beside
                and re.fullmatch(rf"1 waits for ranks 2, 3 \(behind {leaf1}\) \(\d\.\d s\)", above[0])
                and re.fullmatch(r"1 waits for ranks 3 \(\d\.\d s\)", below[0]))
    assert any(map(names_rank_3, seen)), seen


def test_top_shows_what_trio_decides_without_a_straggler(tmp_path):
    seen = looks(tmp_path, 3, "inaggctl top --once --interval 0.5", "--algorithm", "trio", "--expiry", "20ms",
                 perf=("-n", 30, "--straggle", "1:200ms:2"))
    rows = [re.search(r"^ +1 +3/3 trio +\d+ +\d+ +[\d.]+ +(\d+) +\d+ +\d+$", top, re.M) for top in seen]
    degraded = sorted(int(row[1]) for row in rows if row)
    assert degraded and degraded[-1] > 0
    assert any(re.fullmatch(r"1 rank 1 (present|temporary) missed [1-9]\d* blocks, \d+ packets heard", line)
               for top in seen for line in section(top, "STRAGGLERS")), seen
