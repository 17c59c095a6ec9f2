# SPDX-License-Identifier: BSD-2-Clause
"""Leaf-spine: a tree on each spine, background flows over chosen links, links that are cut."""

import re
from pathlib import Path

import pytest

from allreduce import QUICK, allreduce, assert_lossy, compared, objects, server_stats
from netns import HERE, PYTHON, netns

LEAF_SPINE = ("--topology", "leaf-spine")
IDLE = (*LEAF_SPINE, "--switch", "none")
SIZES = ("-b", "4K", "-e", "1M", "-f", 16)


def spines(tmp_path, workers, *perf, trees=2, options=(), **more):
    """A checked allreduce, and for each spine the additions of each job."""
    stats = "".join(f"inaggctl --bpffs /sys/fs/bpf/inagg-spine{spine} --json stats; " for spine in range(1, trees))
    result = allreduce(tmp_path, workers, *perf, trees=trees, options=(*LEAF_SPINE, "--spines", trees, *options),
                       command=f"{{}} || exit; if test $INAGG_RANK = 0; then {stats} fi", **more)
    lists = [value for value in objects("\n".join(result.run.lines(0)) + "\n") if isinstance(value, list)]
    additions = [{row["job"]: row["additions"] for row in rows if row["job"]} for rows in (lists[-1], *lists[:-1])]
    return result, additions


@pytest.mark.parametrize("options", [(), ("--ipv6", "--delay", "200us")])
def test_each_tree_has_its_spine(tmp_path, options):
    result, additions = spines(tmp_path, 4, *SIZES, *QUICK, sources=2, options=options)
    assert result.switch["restores"] == 0
    for spine, jobs in enumerate(additions):
        assert {job for job, count in jobs.items() if count} == {1 + spine}


def test_four_spines_with_loss_and_another_job_number(tmp_path):
    result, additions = spines(tmp_path, 6, "-b", "256K", "-e", "256K", *QUICK, trees=4, job=7, sources=3,
                               options=("--leaves", 3, "--loss", 0.01))
    assert_lossy(result)
    for spine, jobs in enumerate(additions):
        assert {job for job, count in jobs.items() if count} == {7 + spine}


def test_one_tree_is_on_the_first_spine(tmp_path):
    result = allreduce(tmp_path, 4, *SIZES, *QUICK, job=4, sources=2, options=(*LEAF_SPINE, "--spines", 3))
    assert result.switch["additions"] > 0


@pytest.mark.parametrize("leaves, spines", [(4, 3), (8, 8)])
def test_all_hosts_reach_all(tmp_path, leaves, spines):
    """By spines of their numbers, whatever else a bridge has seen: each leaf and spine knows who is where."""
    addresses = [f"10.77.0.{10 + host}" for host in range(24)]
    run = netns(tmp_path, "--workers", 24, *IDLE, "--leaves", leaves, "--spines", spines,
                "--", "/usr/bin/python3", HERE / "pairs.py", *addresses)
    assert run.status == 0, run.error


def test_servers_as_spines(tmp_path):
    run = netns(tmp_path, "--workers", 4, *LEAF_SPINE, "--trees", 2, "--algorithm", "atp", "--transport", "udp", "--switch",
                "inagg-ps", "--root-arg", "--stats", "--root-arg", tmp_path / "{}.json", "--",
                "inagg-perf", "allreduce", *SIZES, *QUICK, "--check")
    assert run.status == 0
    for spine, job in (("spine0", 1), ("spine1", 2)):
        completions = {row["job"]: row["completions"] for row in server_stats(tmp_path, spine)}
        assert [number for number, count in completions.items() if number and count] == [job]


@pytest.mark.parametrize("spine, name", [("spine0", ""), ("spine1", "spine1@")])
def test_a_spine_is_restarted(tmp_path, spine, name):
    """Its next agent takes over what the switch holds."""
    result, additions = spines(tmp_path, 4, "-b", "1M", "-e", "1M", *compared(80), restarts=True,
                               options=("--kill-inaggd", f"{name}400ms", "--restart-inaggd", f"{name}700ms"))
    assert len(re.findall(rf"\[{spine}\].* boot id", result.run.error)) == 2


def test_hosts_reach_each_other_once(tmp_path):
    """By one spine, so that nothing loops."""
    run = netns(tmp_path, "--workers", 2, *IDLE, "--", PYTHON, HERE / "udp_probe.py", 20, 0.001)
    assert run.status == 0
    seen = run.json(1)[0]
    assert seen["unique"] == seen["received"] == 20


ASK = """
import socket
for number in 12, 13:  # hosts 2 and 3; nobody listens, and who is reached says so
    try:
        socket.create_connection((f"10.77.0.{number}", 9), timeout=1)
    except OSError as error:
        print(type(error).__name__)
"""


def test_hosts_reach_each_other_by_all_spines(tmp_path):
    """By that of the receiver's number: a cut link takes half of them away."""
    run = netns(tmp_path, "--workers", 4, *IDLE, "--cut", "leaf0/uplink1@100ms", "--",
                "sh", "-c", f"sleep 1; test $RANK != 0 || exec {PYTHON} -c '{ASK}'; sleep 3")
    assert run.status == 0
    assert run.lines(0) == ["ConnectionRefusedError", "TimeoutError"]


# Background flows


def flows(tmp_path, *options, seconds=2):
    """Mbit/s of each flow beside ranks that only sleep, by name; links have 40 Mbit/s."""
    run = netns(tmp_path, "--workers", 2, "--switch", "none", "--rate", "40mbit", *options, "--", "sleep", seconds)
    assert run.status == 0
    rates = {}
    for flow in run.links["background"]:
        times, counts = zip(*flow["samples"])
        assert len(times) > 5 * seconds and list(times) == sorted(times) and list(counts) == sorted(counts)
        assert f"netns: background {flow['flow']}: {flow['mbit_per_s']:.1f} Mbit/s" in run.error
        rates.setdefault(flow["flow"], []).append(flow["mbit_per_s"])
    return rates


FULL = pytest.approx(38, rel=0.1)  # what headers leave


@pytest.mark.parametrize("options", [(), ("--ipv6", "--ecn", "2ms")])
def test_a_flow_takes_the_links_of_its_spine_only(tmp_path, options):
    rates = flows(tmp_path, *LEAF_SPINE, "--background", "tcp:0", "--background", "udp:1", "--background", "tcp:1", *options)
    assert rates["tcp over spine0"] == [FULL]
    assert rates["udp over spine1"][0] + rates["tcp over spine1"][0] == FULL


def test_flows_over_all_spines_at_a_rate(tmp_path):
    rates = flows(tmp_path, *LEAF_SPINE, "--spines", 3, "--background", "tcp@5mbit", "--background", "udp:2,1@10mbit")
    assert set(rates) == {*(f"tcp over spine{spine}" for spine in range(3)), "udp over spine1", "udp over spine2"}
    for name, (rate,) in rates.items():
        assert rate == pytest.approx(5 if "tcp" in name else 9.7, rel=0.15), name


def test_links_between_switches_have_a_rate_of_their_own(tmp_path):
    rates = flows(tmp_path, *LEAF_SPINE, "--spine-rate", "10mbit", "--background", "udp:0", "--background", "tcp:1")
    assert rates == {"udp over spine0": [pytest.approx(9.6, rel=0.1)], "tcp over spine1": [pytest.approx(9.6, rel=0.1)]}


def test_a_flow_between_ranks_hosts(tmp_path):
    assert flows(tmp_path, "--background", "tcp") == {"tcp from host0 to host1": [FULL]}


def test_a_flow_of_dctcp_heeds_marks(tmp_path):
    """It has the link, in a queue that is hardly longer than marks allow; its congestion control goes with it."""
    run = netns(tmp_path, "--workers", 2, "--switch", "none", "--rate", "40mbit", "--ecn", "4ms", "--background", "dctcp", "--",
                "sh", "-c", "sleep 5; test $INAGG_RANK = 1 || ss -tin dport = 5201")
    if "takes Linux 6.4" in run.error:
        pytest.skip(f"the kernel has no DCTCP and takes none: {run.error}")
    assert run.status == 0
    socket = "\n".join(run.lines(0))
    name = re.search(r"\b(inagg_)?dctcp\b", socket)[0]
    assert float(re.search(r"\brtt:([\d.]+)/", socket)[1]) < 10 and int(re.search(r"delivered_ce:(\d+)", socket)[1]) > 0
    assert [flow["mbit_per_s"] for flow in run.links["background"]] == [FULL]
    assert name == "dctcp" or name not in Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


# Links that are cut


WATCH = "while :; do for pid in $(pidof inaggd); do nsenter -t $pid -n ip -o -br link; done; echo all; sleep 0.1; done"


def without_carrier(lines):
    """Devices that have no carrier, with the number of their switch."""
    found, number = set(), None
    for line in lines:
        device, _, mac, flags = line.split()[:4]
        number = int(mac.split(":")[-1], 16) if device == "br0" else number
        if "UP" in flags and "LOWER_UP" not in flags:
            found.add((number, device.split("@")[0]))
    return found


@pytest.mark.parametrize("options", [(), ("--rate", "100mbit", "--delay", "1ms")])
def test_a_cut_link_has_no_carrier_until_it_is_mended(tmp_path, options):
    run = netns(tmp_path, "--workers", 2, *LEAF_SPINE, *options, "--cut", "leaf0/uplink1@1s", "--mend", "leaf0/uplink1@4s",
                "--also-in-switch", WATCH, "--", "sleep", 7)
    assert run.status == 0
    *texts, _ = "\n".join([*run.lines("switch"), ""]).split("all\n")  # the last may have been cut off
    states = [without_carrier(text.splitlines()) for text in texts]
    leaf0, spine1 = 130, 2
    assert states[0] == states[-1] == set()
    assert {(leaf0, "uplink1"), (spine1, "p0")} in states


def test_a_host_is_cut_off(tmp_path):
    run = netns(tmp_path, "--workers", 2, "--switch", "none", "--cut", "host1@200ms", "--",
                "sh", "-c", "sleep 1; ip -o link show eth0")
    assert run.status == 0
    assert ["LOWER_UP" in run.lines(rank)[0] for rank in range(2)] == [True, False]


# Options that cannot be


@pytest.mark.parametrize("options, complaint", [
    ((*LEAF_SPINE, "--cut", "leaf0/uplink2@0"), "no link leaf0/uplink2: there are leaf0/uplink0, leaf0/uplink1, host0"),
    (("--mend", "leaf0/uplink0@0"), "no link leaf0/uplink0: there are host0, host1"),
    ((*LEAF_SPINE, "--kill-inaggd", "spine2@0"), "no switch spine2"),
    (("--cut", "host0"), "'host0' is not LINK@TIME"),
    (("--cut", "@1s"), "'@1s' is not LINK@TIME"),
    ((*LEAF_SPINE, "--leaves", 3), "2 hosts cannot be shared evenly by 3 leaves"),
    ((*LEAF_SPINE, "--spines", 9), "Value 9"),
    (("--leaves", 2), "--topology leaf-spine"),
    (("--spine-rate", "1mbit"), "topology star has one switch: give --rate"),
    ((*LEAF_SPINE, "--background", "sctp"), "'sctp' is not tcp, dctcp or udp"),
    ((*LEAF_SPINE, "--background", "tcp:2"), "no spine 2: give one from 0 to 1"),
    ((*LEAF_SPINE, "--background", "tcp:0@fast"), "fast"),
    ((*LEAF_SPINE, "--background", "udp"), "needs a rate: write it like udp@100mbit"),
    (("--background", "tcp:1"), "topology star has no spine 1"),
    (("--background", "tcp", "--ranks-per-host", 2), "needs two hosts"),
    ((*LEAF_SPINE, "--spines", 8, *4 * ("--background", "tcp")), "32 flows over spines: there are addresses for 24"),
])
def test_complaints(tmp_path, options, complaint):
    run = netns(tmp_path, "--workers", 2, "--switch", "none", *options, "--", "sleep", 0.1)
    assert run.status == 2
    assert complaint in run.error
