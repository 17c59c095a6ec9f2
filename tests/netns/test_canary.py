# SPDX-License-Identifier: BSD-2-Clause
"""canary: sums where packets meet, a leader for each block, and ways that change."""

import json
import re

import pytest

from allreduce import DTYPES, QUICK, THREE_A_JOB, are_exact, assert_exact, compared, jobs_of, objects, operations
from netns import HERE, PYTHON, RUN_LIMIT, netns

FABRIC = ("--topology", "leaf-spine", "--leaves", 4, "--spines", 4)
SPINES = ("inagg", "inagg-spine1", "inagg-spine2", "inagg-spine3")
LEAVES = ("inagg-leaf0", "inagg-leaf1", "inagg-leaf2", "inagg-leaf3")


class Result:
    def __init__(self, run, workers, wanted):
        values = objects("\n".join(run.lines(0)) + "\n")
        self.run = run
        self.counters = next(value["counters"] for value in values if "counters" in value)
        self.switches = [next(row for row in value if row["job"] == 1) for value in values if isinstance(value, list)]
        sizes = [value for value in values if "size" in value]
        assert sizes and are_exact(sizes) and {(entry["dtype"], entry["op"]) for entry in sizes} == wanted
        for entry in sizes:
            assert entry["workers"] == workers

    def total(self, name):
        return sum(row[name] for row in self.switches)


def ask(switches, what):
    """Shell: what each of these agents answers, in JSON."""
    return "; ".join(f"inaggctl --bpffs /sys/fs/bpf/{name} --json {what}" for name in switches)


def canary(tmp_path, workers, *perf, options=(), switches=("inagg",), transport="udp", limit=RUN_LIMIT):
    """A checked allreduce of job 1, and the counters of these switches at its end, when it has been renewed: between, it is not there."""
    kept = ("--root-arg", f"--job=1:size={workers},algorithm=canary{',checked' if '--corrupt' in options else ''}")
    command = " ".join(map(str, ("inagg-perf", "allreduce", *perf, "--check", "--json")))
    run = netns(tmp_path, "--workers", workers, "--algorithm", "canary", "--transport", transport, *kept, *options, "--",
                "sh", "-c", f"{command} || exit; test $INAGG_RANK != 0 || {{ sleep 0.5; {ask(switches, 'stats')}; }}", limit=limit)
    assert run.status == 0
    return Result(run, workers, operations(perf))


def test_types(tmp_path):
    result = canary(tmp_path, 4, "-b", "4K", "-e", "256K", "-f", 8, *QUICK, "-d", DTYPES, options=("--ipv6",))
    # the leader's elements are not among them
    assert 0.8 * 3 / 4 < result.total("additions") / result.counters["blocks"] <= 3 / 4 * 1.2
    assert result.total("completions") > 0


def test_operators_by_af_xdp(tmp_path):
    canary(tmp_path, 3, "-b", "64K", "-e", "64K", *QUICK, "-o", "min,avg", transport="afxdp")


@pytest.mark.parametrize("options", [("--loss", 0.01, "--dup", 0.05, "--reorder", 0.1), ("--loss", 0.05), ("--corrupt", 0.01)])
def test_bad_links(tmp_path, options):
    result = canary(tmp_path, 4, "-b", "4K", "-e", "256K", "-f", 64, *QUICK, options=options)
    assert result.run.links["total"]["dropped"] + result.run.links["total"]["corrupted"] > 0
    assert result.counters["requests"] > 0 and result.counters["retransmissions"] > 0


def test_few_descriptors(tmp_path):
    result = canary(tmp_path, 4, "-b", "256K", "-e", "256K", *compared(6), options=("--inaggd-arg=--descriptors=16",))
    assert result.total("collisions") > 0 and result.total("additions") > 0


def test_no_patience(tmp_path):
    result = canary(tmp_path, 4, "-b", "256K", "-e", "256K", *compared(6), options=("--inaggd-arg=--canary-timeout=1", "--reorder", 0.05))
    assert result.total("late") > 0 and result.total("partials") > 0


@pytest.mark.parametrize("options, told, text", [((), 0, r"sums wait here for \S+ us, as learnt"),
                                                 (("--inaggd-arg=--canary-timeout=700",), 700, r"sums wait here for 700 us")])
def test_how_long_sums_wait(tmp_path, options, told, text):
    show = "inaggctl job show 1"
    run = netns(tmp_path, "--workers", 3, "--algorithm", "canary", "--transport", "udp", "--root-arg=--job=1:size=3,algorithm=canary", *options,
                "--", "sh", "-c", f"inagg-perf allreduce -b 64K -e 64K -n 3 || exit; "
                f"test $INAGG_RANK != 0 || {{ sleep 0.5; {show}; {show} --json; }}")
    assert run.status == 0
    lines = "\n".join(run.lines(0)) + "\n"
    assert re.search(f"^{text}$", lines, re.M)
    route = next(value for value in objects(lines) if "route" in value)["route"]
    assert route["timeout_us"] == told
    assert route["wait_us"] == told if told else 2 <= route["wait_us"] <= 20_000 and route["wait_us"] != 20


@pytest.mark.parametrize("policy", ["ecmp", "flowlet", "least"])
def test_ways_up(tmp_path, policy):
    result = canary(tmp_path, 4, "-b", "256K", "-e", "256K", *compared(10), switches=SPINES[:2], options=(
        "--topology", "leaf-spine", "--leaves", 2, "--spines", 2, "--rate", "200mbit", f"--inaggd-arg=--up-port={policy}"))
    assert all(row["replies"] > 0 for row in result.switches), "results come back by both spines"


def test_roots(tmp_path):
    """Any rank may be whom a sum is for, and who has what all want."""
    run = netns(tmp_path, "--workers", 8, "--algorithm", "canary", "--transport", "udp", *FABRIC, "--loss", 0.01, "--", PYTHON, HERE / "roots_rank.py")
    assert run.status == 0
    assert [json.loads(run.lines(rank)[-1]) for rank in range(8)] == 8 * [{"exact": 16}]


def test_two_jobs(tmp_path):
    """Of three ranks each, with few descriptors for both: they meet there."""
    kept = tuple(f"--root-arg=--job={job}:size=3,algorithm=canary" for job in (1, 2))
    run = netns(tmp_path, "--workers", 6, "--algorithm", "canary", "--transport", "udp", *kept, "--inaggd-arg=--descriptors=64", "--loss", 0.01,
                "--", "sh", "-c", THREE_A_JOB + "inagg-perf allreduce -b 64K -e 64K -n 3 -w 1 --check --json || exit; "
                f"test $INAGG_JOB$INAGG_RANK != 10 || {{ sleep 1; {ask(('inagg',), 'stats')}; }}")
    assert_exact(run, jobs=2)
    rows = next(value for value in objects("\n".join(run.lines(0)) + "\n") if isinstance(value, list))
    assert all(row["collisions"] > 0 and row["additions"] > 0 for row in rows if row["job"] in (1, 2)) and len(rows) > 1


def wait_for_none(switches):
    """Shell: until none of these holds a descriptor, for 15 s at most."""
    held = "{ " + ask(switches, "status") + "; } | sed -n 's/.*\"held\": *\\([0-9]*\\).*/\\1/p' | sort -u"
    return f"for i in $(seq 30); do test \"$({held})\" != 0 || break; sleep 0.5; done"


def test_no_descriptor_is_left(tmp_path):
    """Whatever is lost, and whichever way results take: soon after the last block none is held."""
    run = netns(tmp_path, "--workers", 8, "--algorithm", "canary", "--transport", "udp", "--root-arg", "--job=1:size=8,algorithm=canary",
                *FABRIC, "--loss", 0.02, "--rate", "200mbit", "--cut", "leaf0/uplink1@2s", "--mend", "leaf0/uplink1@4s", "--",
                "sh", "-c", f"inagg-perf allreduce -b 1M -e 1M -n 0 --check-iterations 30 --check --json || exit; test $INAGG_RANK != 0 || "
                f"{{ {wait_for_none(SPINES + LEAVES)}; {ask(SPINES + LEAVES, 'status')}; }}")
    assert run.status == 0
    rows = [value["descriptors"] for value in objects("\n".join(run.lines(0)) + "\n") if "descriptors" in value]
    assert len(rows) == len(SPINES + LEAVES) and all(row["held"] == 0 for row in rows)
    assert any(row["most"] > 0 for row in rows)


def test_no_descriptor_is_left_by_the_dead(tmp_path):
    """A rank is killed among its blocks; the others' calls end, with them the job, and leaves and spines hold nothing of it."""
    switches = SPINES + LEAVES
    busy = "$({ " + ask(switches, "status") + "; } | grep -c '\"most\": *[1-9]')"  # have had blocks
    run = netns(tmp_path, "--workers", 8, "--algorithm", "canary", "--transport", "udp", *FABRIC, "--rate", "200mbit", "--",
                "sh", "-c", "sum='inagg-perf allreduce -b 1M -e 1M -n 1000 -w 0'; "
                f"if test $INAGG_RANK = 5; then $sum & for i in $(seq 60); do test {busy} != {len(switches)} || break; sleep 0.2; done; kill -KILL $!; exit 0; fi; "
                "$sum && exit 3; "
                f"test $INAGG_RANK = 0 || exit 0; {wait_for_none(switches)}; {ask(switches, 'status')}", environment={"INAGG_TIMEOUT_MS": "4000"})
    assert run.status == 0
    assert "rank 5" in run.error
    rows = [value["descriptors"] for value in objects("\n".join(run.lines(0)) + "\n") if "descriptors" in value]
    assert len(rows) == len(switches) and all(row["most"] > 0 and row["held"] == 0 for row in rows)


def test_who_slept_is_not_asked_for_ever(tmp_path):
    """All ask whom they wait for, who sends what they ask for to each of them. That must end, and not keep itself going."""
    run = netns(tmp_path, "--workers", 12, "--algorithm", "canary", "--transport", "udp", *FABRIC, "--rate", "20mbit", "--ecn", "2ms",
                "--inaggd-arg=--job-slots=16", "--", PYTHON, HERE / "nap_rank.py")
    assert run.status == 0
    stats = [json.loads(run.lines(rank)[-1]) for rank in range(12)]
    assert sum(rank["requests"] for rank in stats) > 0
    assert sum(rank["restores"] for rank in stats) < stats[0]["blocks"], "once a block at most, on average"


def test_nothing_is_lost_between_switches(tmp_path):
    """Sums for one leader and results for several ranks leave by the same ports, in the same runs of a driver's poll."""
    fabric = ("--topology", "leaf-spine", "--leaves", 2, "--spines", 2, "--rate", "100mbit")
    counters = canary(tmp_path, 8, "-b", "1M", "-e", "1M", "-n", 10, options=fabric).counters
    assert counters["blocks"] > 8 * 7450
    assert counters["requests"] < counters["blocks"] / 50 and counters["reissues"] < counters["blocks"] / 200


@pytest.mark.parametrize("policy", ["default", "flowlet", "least", "ecmp"])
def test_results_go_round_what_others_fill(tmp_path, policy):
    """Datagrams fill the link from the first leaf to the second spine, not the way back, by which half of what results answer comes."""
    fabric = ("--topology", "leaf-spine", "--leaves", 2, "--spines", 2, "--rate", "50mbit", "--spine-rate", "100mbit", "--ecn", "2ms",
              "--background", "udp:1@110mbit", f"--inaggd-arg=--up-port={policy}")
    repeats = 4 if policy == "ecmp" else 10  # it takes long
    result = canary(tmp_path, 4, "-b", "1M", "-e", "1M", "-n", repeats, "-w", 1, options=fabric, switches=SPINES[:2])
    first, second = (row["replies"] for row in result.switches)
    assert (second > first / 4) == (policy == "ecmp"), "half of them, without regard, and otherwise hardly any"


def test_answers_go_round_what_others_fill(tmp_path):
    """Datagrams from the first leaf fill the link from a spine to the second, where who asks leads no block whose result could say so."""
    asked = 200
    fabric = ("--topology", "leaf-spine", "--leaves", 3, "--spines", 2, "--rate", "50mbit", "--spine-rate", "100mbit", "--ecn", "2ms",
              "--background", "udp:1@94mbit")
    run = netns(tmp_path, "--workers", 6, "--algorithm", "canary", "--trees", 1, *fabric, "--",
                "sh", "-c", f"{PYTHON} {HERE}/asking_rank.py {asked} || exit; case $INAGG_RANK in "
                f"0) {ask(LEAVES[2:3], 'job show 1')};; 5) {ask(SPINES[:2], 'stats')};; esac")
    assert run.status == 0
    ports = objects("\n".join(run.lines(0)) + "\n")[-1]["route"]["ports"]
    assert sorted(port["avoided_to"] for port in ports) == [[], [3]], "while it asks"
    answers = run.json(3)[0]["answers"]
    assert answers > 0.9 * asked
    first, second = (value[0]["relayed"] for value in objects("\n".join(run.lines(5)) + "\n") if isinstance(value, list))
    assert answers == pytest.approx(first - asked / 2, abs=0.1 * asked) and second == pytest.approx(asked / 2, abs=0.1 * asked), \
        "questions by both spines, answers by the first"


def test_leaves_and_spines(tmp_path):
    result = canary(tmp_path, 16, "-b", "4K", "-e", "256K", "-f", 64, *QUICK, options=(*FABRIC, "--loss", 0.01), switches=SPINES)
    assert all(row["additions"] > 0 for row in result.switches), "blocks go by all of them"
    assert result.counters["requests"] > 0


def test_three_levels(tmp_path):
    """For longer than the switches between leaves and root go without saying that they have the job."""
    result = canary(tmp_path, 8, "-b", "64K", "-e", "64K", "-n", 60, "-w", 1, options=("--topology", "three-level", "--rate", "50mbit"))
    assert result.total("additions") > 0 and "no longer by" not in result.run.error


def test_links_and_spines_that_fail_and_return(tmp_path):
    """Blocks that were lost with them are begun again, no others; no job is."""
    ranks, slots, changes, attempts = 16, 128 + 8, 4, 3
    result = canary(tmp_path, ranks, "-b", "1M", "-e", "1M", *compared(40), switches=SPINES, options=(
        *FABRIC, "--rate", "200mbit", "--cut", "leaf0/uplink1@2s", "--mend", "leaf0/uplink1@4s", "--kill-spine", "2@3s",
        "--start-spine", "2@4s"))
    assert all(row["additions"] > 0 for row in result.switches), "also by the spine that is new, and counts from then on"
    assert 0 < result.counters["reissues"] < changes * attempts * slots < result.counters["blocks"] / ranks / 10
    generations = re.findall(rf"\[leaf\d\].* job 1: generation (\d+), {ranks} ranks", result.run.error)
    assert len(generations) == 4 and len(set(generations)) == 1


def test_a_spine_that_swallows_packets(tmp_path):
    """Its links are up, and its agent answers. What is sent again goes by others, and so do questions and answers."""
    calls = (4, 10)  # INAGG_CALL_CANARY, INAGG_CALL_CANARY_DOWN
    delete = "bpftool map delete pinned /sys/fs/bpf/inagg-spine1/algorithms key"
    # Again and again: the agent provides them for each generation, so that one may come late.
    swallow = "sleep 1; while sleep 0.2; do " + "".join(f"{delete} {call} 0 0 0; " for call in calls) + "done 2>/dev/null"
    result = canary(tmp_path, 8, "-b", "1M", "-e", "1M", *compared(40), switches=SPINES,
                    options=(*FABRIC, "--rate", "200mbit", "--also-in-switch", swallow))
    first, swallowing, *others = (row["drops"] for row in result.switches)
    assert swallowing > 1000 > 10 * (first + sum(others))
    assert result.counters["reissues"] > 0


def test_who_waits_for_long_has_the_result_with_the_others(tmp_path):
    """Switches have given up what they remembered of the waiting ranks' blocks: leaders name these, who need not ask once more."""
    counters = canary(tmp_path, 4, "-d", "int32", "-b", "256K", "-e", "256K", "-n", 1, "-w", 0, "--straggle", "3:5s:3").counters
    assert counters["requests"] > 1000
    assert counters["restores"] < 20


# 4 KiB to 16 MiB, of 16 ranks: minutes each, so `make test-full` has them.
LOSSES = pytest.mark.parametrize("loss", [0, 0.01, 0.05])
EVERY_SIZE = ("-b", "4K", "-e", "16M", "-f", 8, "-n", 1, "-w", 0)
LONG = 600


@LOSSES
@pytest.mark.parametrize("counter, forced", [
    ("completions", ()), ("collisions", ("--inaggd-arg=--descriptors=64",)), ("late", ("--inaggd-arg=--canary-timeout=1",))])
def test_every_size(tmp_path, loss, counter, forced):
    result = canary(tmp_path, 16, *EVERY_SIZE, options=(*FABRIC, *forced, "--loss", loss), switches=SPINES, limit=LONG)
    assert result.total(counter) > 0


@LOSSES
def test_every_size_of_two_jobs(tmp_path, loss):
    run = netns(tmp_path, "--workers", 16, "--algorithm", "canary", "--transport", "udp", *FABRIC, "--loss", loss, "--",
                "sh", "-c", jobs_of(8) + f"exec inagg-perf allreduce {' '.join(map(str, EVERY_SIZE))} --check --json", limit=LONG)
    assert_exact(run, jobs=2, ranks=8)
