# SPDX-License-Identifier: BSD-2-Clause
"""Jobs with canary as agents see them: all spines know them, and leaves know which spines do. No data."""

import json
import re

import pytest

from netns import HERE, PYTHON, netns

JOB = 7
TREE, CANARY, UNLINKED = 2, 4, 32


def ranks(tmp_path, workers, seconds, *options, leaves=2, spines=2):
    """Ranks that join and stay; what rank 0 has seen, and the rest of what it has printed."""
    run = netns(tmp_path, "--workers", workers, "--topology", "leaf-spine", "--leaves", leaves, "--spines", spines, "--job", JOB,
                "--algorithm", "canary", "--trees", 1, *options, "--", PYTHON, "-B", HERE / "canary_rank.py", seconds,
                environment={"LEAVES": str(leaves), "SPINES": str(spines)})
    assert run.status == 0
    return run, [seen for seen in run.json(0) if "time" in seen]


def changes(seen, leaf):
    """The values of `up` of that leaf's route, one behind the other."""
    ups = [entry["routes"][leaf] and entry["routes"][leaf]["up"] for entry in seen]
    return [up for i, up in enumerate(ups) if i == 0 or ups[i - 1] != up]


def assert_one_generation(run, seen):
    generation = run.json(0)[0]["config"]["generation"]
    for entry in seen:
        for place in (*entry["routes"], *entry["spines"]):
            assert place is None or place["generation"] == generation


def assert_nothing_left(run):
    end = next(entry["end"] for entry in run.json(0) if "end" in entry)
    assert end["routes"] == [None] * len(end["routes"]) and end["spines"] == [None] * len(end["spines"])


@pytest.mark.parametrize("workers, leaves, spines, options", [(4, 2, 2, ()), (6, 3, 4, ("--ipv6",)), (4, 2, 8, ("--loss", 0.2))])
def test_all_spines_know_the_job(tmp_path, workers, leaves, spines, options):
    run, seen = ranks(tmp_path, workers, 3 + spines, *options, leaves=leaves, spines=spines)  # a look takes a while

    def all_know(look):
        return ([route and route["up"] for route in look["routes"]] == [2**spines - 1] * leaves and
                [spine and spine["joined"] for spine in look["spines"]] == [workers] * spines)

    assert any(all_know(look) for look in seen)  # at last some rank may have left already
    assert_one_generation(run, seen)
    for rank in range(workers):
        config = run.json(rank)[0]["config"]
        assert (config["size"], config["algorithm"], config["flags"]) == (workers, CANARY, TREE)
    if "--loss" not in options:  # or spines notice after a minute that nobody has the job any more
        assert_nothing_left(run)


def test_what_the_maps_hold(tmp_path):
    """Up ports, a job's route, and its entries of the devmap."""
    dump = ("dump() { bpftool -j map dump pinned /sys/fs/bpf/inagg-leaf0/$1; }; "
            "until dump routes | grep -q '\"up\":3,'; do sleep 0.1; done; dump up_ports; dump routes")
    run, _ = ranks(tmp_path, 2, 6, "--inaggd-arg=--canary-timeout=700", "--inaggd-arg=--up-port=least", "--also-in-switch", dump)
    up_ports, routes = [json.loads(line) for line in run.lines("switch")]
    ports = [entry["formatted"]["value"] for entry in up_ports]
    addresses = [[int(str(byte), 0) for byte in port["address"][:4]] for port in ports]
    assert [port["ifindex"] > 0 for port in ports] == [True, True] + [False] * 6
    assert sorted(addresses[:2]) == [[10, 77, 0, 1], [10, 77, 0, 2]]
    assert all(bytes(int(str(byte), 0) for byte in port["own_address"][:4]) == bytes([10, 77, 0, 130]) for port in ports[:2])
    used = [entry["formatted"]["value"] for entry in routes if entry["formatted"]["value"]["up"]]
    assert [(route["up"], route["policy"], route["timeout_us"]) for route in used] == [(3, 3, 700)]


def test_a_job_of_one_leaf_and_of_one_rank(tmp_path):
    for workers, leaves in ((2, 2), (1, 2)):
        hosts = ("--ranks-per-host", 1) if workers == 2 else ()
        run = netns(tmp_path, "--workers", workers, "--topology", "rack", "--job", JOB, "--algorithm", "canary", *hosts, "--",
                    PYTHON, "-B", HERE / "canary_rank.py", 1)
        assert run.status == 0
        assert all(run.json(rank)[0]["config"]["algorithm"] == CANARY for rank in range(workers))


def test_a_switch_alone(tmp_path):
    run = netns(tmp_path, "--workers", 2, "--job", JOB, "--algorithm", "canary", "--", PYTHON, "-B", HERE / "canary_rank.py", 1)
    assert run.status == 0
    assert [run.json(rank)[0]["config"]["flags"] for rank in range(2)] == [TREE, TREE]


@pytest.mark.parametrize("spine", [0, 1])
def test_bits_fall_and_rise_with_a_link(tmp_path, spine):
    """Also at the leaf whose own links are well: packets by that spine would not arrive."""
    run, seen = ranks(tmp_path, 4, 15, "--cut", f"leaf0/uplink{spine}@6s", "--mend", f"leaf0/uplink{spine}@10s")
    without = changes(seen, 0)[-2]
    assert without in (1, 2)
    for leaf in range(2):
        assert changes(seen, leaf)[-3:] == [3, without, 3]
    assert_one_generation(run, seen)
    assert_nothing_left(run)


def test_a_spine_loses_power(tmp_path):
    run, seen = ranks(tmp_path, 6, 16, "--kill-spine", "0@5s", "--start-spine", "0@8s", leaves=3, spines=3)
    for leaf in range(3):
        ups = changes(seen, leaf)
        known = ups.index(7)  # all three; then for a while only two of them
        assert ups[-1] == 7 and any(up is not None and bin(up).count("1") == 2 for up in ups[known:])
    assert any(entry["spines"][0] is None for entry in seen)
    assert seen[-1]["spines"][0]["joined"] == 6
    assert_one_generation(run, seen)
    assert_nothing_left(run)


def test_agents_are_restarted(tmp_path):
    run, seen = ranks(tmp_path, 4, 20, *(word for name in ("leaf1", "spine0", "spine1") for word in
                                        ("--kill-inaggd", f"{name}@2s", "--restart-inaggd", f"{name}@2500ms")))
    assert {changes(seen, leaf)[-1] for leaf in range(2)} == {3}
    assert_one_generation(run, seen)
    assert_nothing_left(run)


def test_a_link_is_down_while_ranks_leave(tmp_path):
    run, seen = ranks(tmp_path, 4, 4, "--cut", "leaf1/uplink0@2s")
    assert_nothing_left(run)


def test_without_a_common_spine_the_ranks_are_told(tmp_path):
    run, seen = ranks(tmp_path, 2, 10, "--cut", "leaf0/uplink0@2s", "--cut", "leaf1/uplink1@2s")
    assert changes(seen, 0)[-2:] == [0, None]
    for rank in range(2):
        assert UNLINKED in [entry["told"] for entry in run.json(rank) if "told" in entry]


def test_a_job_begins_without_its_first_spine(tmp_path):
    run, seen = ranks(tmp_path, 4, 6, "--cut", "leaf1/uplink0@1ms", "--mend", "leaf1/uplink0@3s")
    assert {changes(seen, leaf)[-1] for leaf in range(2)} == {3}
    assert all(route["up"] != 3 for route in seen[0]["routes"] if route)
    assert_one_generation(run, seen)


def test_rates_of_uplinks_are_known(tmp_path):
    run, seen = ranks(tmp_path, 2, 1, "--spine-rate", "100mbit", "--also-in-switch",
                      "sleep 1; bpftool -j map dump pinned /sys/fs/bpf/inagg-leaf0/queues")
    assert len(json.loads(run.lines("switch")[0])) == 2


@pytest.mark.parametrize("status, options, complaint", [
    (2, ("--kill-spine", "2@1s"), "there is no switch spine2"),
    (2, ("--start-spine", "x@1s"), "'x@1s' is not SPINE@TIME"),
    (125, ("--inaggd-arg=--descriptors=3",), "descriptors"),
    (125, ("--inaggd-arg=--up-port=any",), "up-port"),
    (125, ("--inaggd-arg=--canary-timeout=2000000",), "canary-timeout"),
])
def test_complaints(tmp_path, status, options, complaint):
    run = netns(tmp_path, "--workers", 2, "--topology", "leaf-spine", *options, "--", "true")
    assert run.status == status
    assert re.search(complaint, run.error)
