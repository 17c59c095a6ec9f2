# SPDX-License-Identifier: BSD-2-Clause
"""inagg-ps: the server that sums in user space, alone and as the root of a tree of switches."""

import json
import re

import pytest

from allreduce import DTYPES, QUICK, allreduce, assert_lossy, compared, server_options, server_stats
from netns import netns

SIZES = ("-b", "4K", "-e", "1M", "-f", 16)
BAD_LINKS = ("--loss", 0.01, "--dup", 0.05, "--reorder", 0.1)


def server(tmp_path, workers, *perf, **more):
    return allreduce(tmp_path, workers, *perf, server=True, **more)


@pytest.mark.parametrize("algorithm", ["switchml", "atp"])
def test_alone(tmp_path, algorithm):
    result = server(tmp_path, 4, *SIZES, *QUICK, "-d", DTYPES, algorithm=algorithm)
    assert result.switch["reasons"] == {}


@pytest.mark.parametrize("options", [("--loss", 0.01), BAD_LINKS, ("--corrupt", 0.01), ("--loss", 0.01, "--ipv6")])
def test_bad_links(tmp_path, options):
    assert_lossy(server(tmp_path, 4, *SIZES, *QUICK, algorithm="atp", options=options))


def test_sixteen_ranks_two_a_host(tmp_path):
    server(tmp_path, 16, "-b", "64K", "-e", "256K", "-f", 4, *QUICK, algorithm="atp", options=("--ranks-per-host", 2))


@pytest.mark.parametrize("transport", ["udp", "afxdp", "xdp"])
def test_behind_switches(tmp_path, transport):
    """Racks sum for it: it adds one sum a rack."""
    result = server(tmp_path, 4, *SIZES, *QUICK, transport=transport, sources=2, options=("--topology", "two-level"))
    assert result.switch["reasons"] == {}


def test_behind_switches_with_loss(tmp_path):
    result = server(tmp_path, 5, "-b", "64K", "-e", "256K", "-f", 4, *QUICK, sources=3,
                    options=("--topology", "two-level", *BAD_LINKS))
    assert_lossy(result)


def test_a_rack_forgets_many_times(tmp_path):
    """What its switch loses the ranks behind it send again, or give back; the server has kept its own."""
    clear = "while inaggctl --bpffs /sys/fs/bpf/inagg-leaf0 slots clear; do echo cleared; sleep 0.05; done"
    result = server(tmp_path, 4, "-b", "1M", "-e", "1M", *compared(60), restarts=True,
                    options=("--topology", "two-level", "--also-in-switch", clear))
    assert result.run.lines("switch").count("cleared") >= 3
    assert result.switch["additions"] == 2 * result.switch["completions"]


CONFIGURED = ("--root-arg=--job", "--root-arg=1:size=3")  # the next server knows the job, in another generation


@pytest.mark.parametrize("topology, transport, options, complaint", [
    ("star", "udp", (), "the switch at 10.77.0.1 has restarted and lost job 1"),
    ("star", "udp", CONFIGURED, "the switch at 10.77.0.1 has restarted and lost job 1"),
    ("star", "xdp", (), "the switch at 10.77.0.1 has restarted and lost job 1"),
    ("two-level", "udp", (), r"the server or switch at 10.77.0.1, which the switch at 10.77.0.\d+ is behind, ended job 1: no such job: it has restarted"),
    ("two-level", "xdp", (), r"the server or switch at 10.77.0.1, which the switch at 10.77.0.\d+ is behind, ended job 1: no such job: it has restarted"),
])
def test_restarted_server(tmp_path, topology, transport, options, complaint):
    """Its jobs are gone: calls end with an error that says so, long before their deadline."""
    run = netns(tmp_path, "--workers", 3, "--transport", transport, "--topology", topology, *server_options(tmp_path), *options,
                "--kill-inaggd", "3s", "--restart-inaggd", "3100ms", "--",  # on a busy machine joins take two; later ranks ask by themselves
                "inagg-perf", "allreduce", "-b", "4M", "-e", "4M", "-n", 100000)
    assert run.status not in (0, 124)
    for rank in range(3):
        assert re.search(rf"\[{rank}\] .*{complaint}", run.error)
    lost = next(row for row in server_stats(tmp_path) if row["job"] is None)
    assert options == CONFIGURED or lost["reasons"]["JOB"] > 0
    assert lost["joins"] >= 3 or topology != "star"


@pytest.mark.parametrize("switch", ["inagg-ps", "inaggd"])
def test_all_ranks_come_back_on_other_hosts(tmp_path, switch):
    """Killed, they cannot say that they leave; their scheduler deals the ranks out anew."""
    rank = ("timeout -s KILL 1.5 inagg-perf allreduce -b 1M -e 1M -n 100000 > /dev/null; "
            "INAGG_RANK=$(((INAGG_RANK + 1) % INAGG_SIZE)) exec inagg-perf allreduce -b 64K -e 64K -n 2 --check --json")
    run = netns(tmp_path, "--workers", 3, "--transport", "udp", "--switch", switch, "--", "sh", "-c", rank)
    assert run.status == 0
    sums = [row for rank in range(3) for row in run.json(rank) if "size" in row]
    assert sums and all(row["wrong"] == 0 for row in sums)


def test_one_host_cannot_shut_others_out(tmp_path):
    """It has ranks of as many jobs as it may that wait for others."""
    many = "for job in $(seq 100 120); do INAGG_JOB=$job INAGG_RANK=0 INAGG_SIZE=2 inagg-perf barrier -n 1 --timeout 3000 & done; wait"
    one = "sleep 1; INAGG_JOB=7 INAGG_RANK=0 INAGG_SIZE=1 exec inagg-perf allreduce -b 64K -e 64K -n 2 --check --json"
    run = netns(tmp_path, "--workers", 2, "--transport", "udp", *server_options(tmp_path), "--", "sh", "-c",
                f"if test $INAGG_RANK = 0; then {many}; else {one}; fi")
    sums = [row for row in run.json(1) if "size" in row]
    assert sums and all(row["wrong"] == 0 for row in sums)
    assert "too many jobs of this host" in run.error


@pytest.mark.parametrize("topology", ["star", "two-level"])
def test_killed_server(tmp_path, topology):
    """It comes back no more: calls end at their deadline."""
    run = netns(tmp_path, "--workers", 3, "--transport", "udp", "--topology", topology, *server_options(tmp_path),
                "--kill-inaggd", "3s", "--",
                "inagg-perf", "allreduce", "-b", "4M", "-e", "4M", "-n", 100000,
                environment={"INAGG_TIMEOUT_MS": "2000"})
    assert run.status not in (0, 124)
    for rank in range(3):
        assert re.search(rf"\[{rank}\] .*no progress for 2000 ms: .* the switch at 10.77.0.\d+, or one above it, has been silent", run.error)


def test_ended_server(tmp_path):
    """Asked to end it tells the ranks; asked for its counters it writes them and goes on. It holds no capability, though root started it."""
    side = f"sleep 1; grep ^Cap /proc/$(pidof inagg-ps)/status; kill -USR1 $(pidof inagg-ps); sleep 0.5; cat {tmp_path}/switch.json; kill $(pidof inagg-ps)"
    run = netns(tmp_path, "--workers", 2, "--transport", "udp", *server_options(tmp_path), "--also-in-switch", side,
                "--", "inagg-perf", "allreduce", "-b", "4M", "-e", "4M", "-n", 100000)
    assert run.status not in (0, 124)
    for rank in range(2):
        assert re.search(rf"\[{rank}\] .*the switch at 10.77.0.1 ended job 1", run.error)
    held = [line for line in run.lines("switch") if line.startswith("Cap")]
    assert len(held) == 5 and all(int(line.split()[1], 16) == 0 for line in held), held
    meanwhile = json.loads("".join(line for line in run.lines("switch") if line not in held))
    before, after = (next(row for row in rows if row["job"] == 1)["completions"]
                     for rows in (meanwhile, server_stats(tmp_path)))
    assert after > before > 0


@pytest.mark.parametrize("arguments, complaint", [
    (("--address", "10.77.0.9"), "--address 10.77.0.9: UDP port 12000"),
    (("--address", "here"), "--address here: not"),
    (("--address", "127.0.0.1", "--address", "127.0.0.2"), "same family"),
    (("--memory", "512KiB"), "--memory 524288: a job"),
    (("--job-slots", "100"), "power of two up to 8192, not 100"),
    (("--job", "7:size=2,algorithm=trio"), "trio does not work"),
    (("--job", "7:size=2", "--job", "7:size=3"), "--job 7:size=3: job 7 is configured twice"),
    (("--no-auto-jobs",), "--no-auto-jobs: then no job can be joined"),
    (("--child", "p0/10.77.0.2"), "--child p0/10.77.0.2: not"),
    (("--child", "10.77.0.2", "--child", "10.77.0.2"), "--child 10.77.0.2: given twice"),
    (("--child", "127.0.0.1"), "--child 127.0.0.1: that is this server's --address"),
    (("--child", "fd77::2"), "--child fd77::2: an IPv6 address, and the server has none"),
    (("--child", "fe80::2"), "--child fe80::2: link-local"),
    (("--stats", "/no/such/file"), "--stats /no/such/file"),
])
def test_complaints(tmp_path, arguments, complaint):
    """What cannot be is said, with the value."""
    address = () if arguments[0] == "--address" else ("--address", "127.0.0.1")
    run = netns(tmp_path, "--workers", 1, "--switch", "none", "--", "inagg-ps", *address, *arguments, limit=20)
    assert run.status != 0
    assert complaint in run.output + run.error
