# SPDX-License-Identifier: BSD-2-Clause
"""Jobs with a join key: who does not know it can neither join, nor take a rank's place, nor end the job."""

import pytest

from allreduce import QUICK, allreduce, are_exact, miss_the_end, objects, sums_of
from netns import HERE, PYTHON, netns

KEY, OTHER = "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"
RANKS = {"INAGG_JOIN_KEY": KEY}
LIBRARY = HERE.parent.parent / "userspace" / "python"
PERF = "inagg-perf allreduce --check --json"
SIZES = ("-b", "4K", "-e", "64K", "-f", 4)
CHALLENGE, KEY_REASON, WRONG_PORT = 35, 34, 8


def key_file(tmp_path, text=KEY, mode=0o600):
    file = tmp_path / "join.key"
    file.write_text(text + "\n")
    file.chmod(mode)
    return file


def agents(tmp_path, *more):
    """Every switch has the key."""
    words = ("--key-file", key_file(tmp_path), *more)
    return tuple(word for each in words for word in ("--inaggd-arg", each))


@pytest.mark.parametrize("algorithm, transport, more", [
    ("switchml", "udp", {}),
    ("switchml", "afxdp", {}),
    ("switchml", "xdp", {}),
    ("trio", "udp", {"options": ("--loss", 0.01)}),
    ("switchml", "udp", {"options": ("--topology", "two-level"), "sources": 2}),
    ("atp", "udp", {"options": ("--topology", "two-level"), "server": True, "sources": 2, "restarts": True}),
])
def test_ranks_with_the_key_join(tmp_path, algorithm, transport, more):
    more = dict(more)
    options = (*more.pop("options", ()), *agents(tmp_path))
    if more.get("server"):
        options += ("--root-arg", "--key-file", "--root-arg", tmp_path / "join.key")
    allreduce(tmp_path, 4, *SIZES, *QUICK, "-d", "float32", algorithm=algorithm, transport=transport, environment=RANKS,
              options=options, **more)


@pytest.mark.parametrize("topology, link", [("star", "host1"), ("two-level", "leaf1/uplink")])
def test_who_missed_the_end_is_told_with_a_proof(tmp_path, topology, link):
    miss_the_end(tmp_path, link, "--topology", topology, *agents(tmp_path), environment=RANKS)


def test_ranks_with_the_key_join_where_all_spines_know_the_job(tmp_path):
    run = netns(tmp_path, "--workers", 4, "--topology", "leaf-spine", "--algorithm", "canary", *agents(tmp_path), "--",
                *PERF.split(), *map(str, SIZES), "-n", 3, "-d", "int32", environment=RANKS)
    assert run.status == 0
    assert sums_of(run) and are_exact(sums_of(run))


def test_an_agent_that_is_started_again_asks_again(tmp_path):
    """It knows no challenge of its former self's; the ranks of the next generation answer its own."""
    known = tmp_path / "known"
    known.mkdir()
    run = netns(tmp_path, "--workers", 4, "--algorithm", "trio", "--transport", "udp", "--kill-inaggd", "600ms", "--restart-inaggd",
                "1s", *agents(tmp_path, "-v"), "--", PYTHON, "-B", HERE / "straggler.py", "stop", known,
                environment={**RANKS, "PYTHONPATH": str(LIBRARY), "INAGG_EXCLUDE_AFTER": "2s", "INAGG_TIMEOUT_MS": "60000"})
    for rank in range(4):
        assert "done" in run.lines(rank)
    sums = [line.split()[3] for line in run.lines(0) if line.startswith("step")]
    assert "3" in sums and sums[-1] == "4", "the next generation has all of them again"
    challenged = [line for line in run.error.splitlines() if "JOIN of rank 0" in line and "put off, CHALLENGE" in line]
    assert len(challenged) >= 2, "at first, and by the new agent"


@pytest.mark.parametrize("switch, ranks, message", [
    (KEY, None, "refuses rank 0 of job 1 (size 1): ranks and switches need the same join key"),
    (KEY, OTHER, "does not prove that it knows INAGG_JOIN_KEY, it refuses: ranks and switches need the same join key"),
    (None, KEY, "does not prove that it knows INAGG_JOIN_KEY, it refuses: ranks and switches need the same join key"),
])
def test_both_need_it(tmp_path, switch, ranks, message):
    options = ("--inaggd-arg", "--key-file", "--inaggd-arg", key_file(tmp_path, switch)) if switch else ()
    environment = {"INAGG_TIMEOUT_MS": "1500", **({"INAGG_JOIN_KEY": ranks} if ranks else {})}
    run = netns(tmp_path, "--workers", 1, *options, "--", *PERF.split(), "-b", "4K", "-e", "4K", environment=environment)
    assert run.status != 0
    assert message in run.error, run.error
    assert KEY not in run.error and OTHER not in run.error


def test_a_file_that_others_may_read_is_none(tmp_path):
    run = netns(tmp_path, "--workers", 1, "--inaggd-arg", "--key-file", "--inaggd-arg", key_file(tmp_path, mode=0o644), "--", "true")
    assert run.status != 0
    assert "others than its owner may use it (mode 0644): chmod 600" in run.error


def test_keys_are_not_alike(tmp_path):
    run = netns(tmp_path, "--workers", 1, "--", *PERF.split(), environment={"INAGG_KEY": KEY.upper(), **RANKS})
    assert run.status != 0 and "INAGG_KEY and INAGG_JOIN_KEY are the same" in run.error


def test_a_job_of_its_own_key(tmp_path):
    """inaggctl names the file, and nothing shows what is in it."""
    file = key_file(tmp_path)
    script = (f"inaggctl job add 9:size=1 --key-file {file} && {PERF} -b 4K -e 4K -n 1 --job 9 && inaggctl job show 9 && "
              f"! INAGG_TIMEOUT_MS=1000 INAGG_JOIN_KEY={OTHER} {PERF} -b 4K -e 4K -n 1 --job 9 && inaggctl --json job list")
    run = netns(tmp_path, "--workers", 1, "--inaggd-arg", "-v", "--", "sh", "-c", script, environment=RANKS)
    assert run.status == 0
    assert sums_of(run)[0]["wrong"] == 0
    assert KEY not in run.output + run.error


# Two ranks run twice, and the third is not one of them.
def spoofed(tmp_path, environment, *options, also=(), count=100_000):
    file = tmp_path / "said"
    script = (f"if [ $RANK = 2 ]; then sleep 2; exec {PYTHON} {HERE}/spoofer.py attack {file} 5 {count}; fi; "
              f"run='{PERF} -b 1M -e 1M --job 5 --rank '$RANK' --size 2'; "
              f"if [ $RANK = 0 ]; then {PYTHON} {HERE}/spoofer.py capture {file} & sniffer=$!; sleep 0.5; fi; "
              f"$run -n 1 && $run -n 0 --check-iterations 200; status=$?; "
              f"if [ $RANK = 0 ]; then kill $sniffer; inaggctl --json drops; inaggctl --json stats; fi; exit $status")
    return netns(tmp_path, "--workers", 3, "--transport", "udp", *options, *also, "--", "sh", "-c", script,
                 environment={"INAGG_TIMEOUT_MS": "10000", **environment})


def test_a_host_without_the_key_changes_nothing(tmp_path):
    count = 100_000
    run = spoofed(tmp_path, RANKS, *agents(tmp_path, "--job", f"5:size=2,key-file={tmp_path / 'join.key'}"), count=count)
    assert run.status == 0
    assert len(sums_of(run)) == 2 and are_exact(sums_of(run))
    attack = run.json(2)[0]
    unproven = [KEY_REASON, False]
    assert attack["said"] == {"join 0": unproven, "join 1": unproven, "copy": [CHALLENGE, True]}
    assert attack["copies"] >= 4 and attack["same_members"], attack
    drops, stats = (value for value in objects("\n".join(run.lines(0)) + "\n") if isinstance(value, list))
    dropped = {row["number"]: row["packets"] for row in drops if row["job"] == 5}
    assert dropped.get(WRONG_PORT, 0) >= 0.9 * count, dropped
    job, strangers = stats
    honest = sum(job[name] for name in ("additions", "duplicates", "replies", "waits", "restores")) + job["drops"] - dropped[WRONG_PORT]
    assert job["packets"] <= honest, stats
    assert {name for name, value in strangers.items() if value} <= {"drops"}, strangers


@pytest.mark.parametrize("transport, switch, count", [("udp", "inaggd", 600), ("xdp", "inaggd", 2000), ("udp", "inagg-ps", 600)])
def test_what_icmp_says_of_the_way_is_not_believed(tmp_path, transport, switch, count):
    """Any host can send it. Neither the job that runs nor the next one, after other sockets of rank 0's host have believed it."""
    other = f"{PYTHON} -c 'import socket, time; s = socket.socket(2, 2); s.bind((str(), 0)); time.sleep(60)'"
    perf = f"{PERF} -b 1M -e 1M --rank $RANK --size 2"
    script = (f"echo 40000 40999 > /proc/sys/net/ipv4/ip_local_port_range; "
              f"if [ $RANK = 2 ]; then sleep 1; exec {PYTHON} {HERE}/spoofer.py icmp 3; fi; "
              f"if [ $RANK = 0 ]; then {other} & other=$!; fi; {perf} -n {count} && ip route get $INAGG_SWITCH && {perf} -n 1; "
              f"status=$?; [ -z $other ] || kill $other; exit $status")
    run = netns(tmp_path, "--workers", 3, "--transport", transport, "--switch", switch, "--", "sh", "-c", script,
                environment={"INAGG_TIMEOUT_MS": "5000"})
    assert run.status == 0 and "error" not in run.error, run.error
    assert run.json(2)[0]["rounds"] >= 1
    assert any("mtu 600" in line for line in run.lines(0)), "somebody did believe it"
    assert len(sums_of(run)) == 2 and are_exact(sums_of(run))


def test_a_false_switch_ends_nothing(tmp_path):
    false_switch = f"{PYTHON} {HERE}/spoofer.py false-switch {tmp_path / 'said'}"
    also = ("--also-in-switch", false_switch)
    script = (f"{PYTHON} {HERE}/spoofer.py capture {tmp_path / 'said'} & sniffer=$!; sleep 0.5; "
              f"{PERF} -b 1M -e 1M -n 0 --check-iterations 100; status=$?; kill $sniffer; exit $status")

    def run(environment, *options):
        return netns(tmp_path, "--workers", 2, "--transport", "udp", "--quiet-ranks", *options, *also, "--", "sh", "-c",
                     f"if [ $RANK = 0 ]; then {script}; else exec {PERF} -b 1M -e 1M -n 0 --check-iterations 100; fi",
                     environment={"INAGG_TIMEOUT_MS": "5000", **environment})

    assert run({}).status != 0, "without the key it is believed"
    keyed = run(RANKS, *agents(tmp_path))
    assert keyed.status == 0
    assert sums_of(keyed) and are_exact(sums_of(keyed))
