# SPDX-License-Identifier: BSD-2-Clause
"""Neighbours that disturb, processes that die, switches that forget."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from allreduce import TRANSPORTS, allreduce, are_exact, assert_lossy, compared, miss_the_end, objects, sums_of
from netns import HERE, PYTHON, netns

PERF = "inagg-perf allreduce --check --json"


@pytest.mark.parametrize("transport", ["udp", "auto"])
def test_two_jobs_at_once(tmp_path, transport):
    script = (f"{PERF} --job 5 -b 4K -e 256K -f 8 -n 10 -d int32 & first=$!; "
              f"{PERF} --job 6 -b 4K -e 256K -f 8 -n 10 -d float32 && wait $first")
    run = netns(tmp_path, "--workers", 3, "--transport", transport, "--loss", 0.01, "--", "sh", "-c", script)
    assert run.status == 0
    results = sums_of(run)
    assert {entry["dtype"] for entry in results} == {"int32", "float32"}
    assert {entry["transport"] for entry in results} == {"xdp" if transport == "auto" else transport}
    assert are_exact(results)


def test_two_networks_at_once(tmp_path):
    """The same job, addresses and pins in both: neither knows of the other."""
    def run(name, workers):
        (tmp_path / name).mkdir()
        return allreduce(tmp_path / name, workers, "-b", "256K", "-e", "256K", "-n", 50, options=("--loss", 0.01))

    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(run, ("one", "other"), (3, 4)):
            assert_lossy(result)


# A rank ahead of the others may join only some of its jobs (inaggd --port-forming), and waits with the rest of them.
MANY_JOBS = """
import os, sys, time, inagg
time.sleep(int(os.environ["INAGG_RANK"]) * float(sys.argv[1]))
jobs = [inagg.Communicator(job=job, timeout_ms=3000) for job in range(1, 11)]
for job in reversed(jobs):
    job.barrier()
"""


@pytest.mark.parametrize("pause, joins", [(1, True), (20, False)])
def test_many_jobs_are_joined_at_once(tmp_path, pause, joins):
    run = netns(tmp_path, "--workers", 2, "--grace", "0s", "--", PYTHON, "-c", MANY_JOBS, pause)
    assert (run.status == 0) == joins
    assert joins or "[0] inagg.Error: the switch at 10.77.0.1 refuses rank 0 of job 5 (size 2): too many jobs" in run.error


def test_intruder_changes_nothing_and_is_counted(tmp_path):
    """Bad packets, good ones from the wrong port, and results in the switch's name, during an allreduce of two others."""
    count = 40
    script = (f"if [ $RANK = 2 ]; then exec {PYTHON} {HERE}/intruder.py 5 {count}; fi; "
              f"{PERF} -b 1M -e 1M -n 0 --check-iterations 80 --job 5 --rank $RANK --size 2 || exit; "
              f"test $RANK = 1 || inaggctl --json drops")
    run = netns(tmp_path, "--workers", 3, "--transport", "udp", "--inaggd-arg", "--job", "--inaggd-arg", "5:size=2",
                "--", "sh", "-c", script)
    assert run.status == 0
    assert are_exact(sums_of(run))
    values = objects("\n".join(run.lines(0)) + "\n")
    dropped = {row["number"]: row["packets"] for value in values if isinstance(value, list) for row in value}
    for reason in run.json(2)[0]["reasons"]:
        assert dropped.get(reason, 0) >= count, (reason, dropped)


@pytest.mark.parametrize("algorithm, topology", [("switchml", ()), ("switchml", ("--topology", "leaf-spine", "--spines", 1)), ("trio", ())])
def test_no_question_goes_unanswered(tmp_path, algorithm, topology):
    """Though the frame of one, on a veth, has no room for a result."""
    run = netns(tmp_path, "--workers", 4, "--transport", "udp", "--algorithm", algorithm, *topology, "--loss", 0.05,
                "--root-arg", f"--job=1:size=4,algorithm={algorithm}", "--",
                "sh", "-c", f"{PERF} -b 1K -e 1K -n 200 -w 1 || exit; test $INAGG_RANK != 0 || {{ sleep 0.5; inaggctl --json drops; }}")
    assert run.status == 0
    values = objects("\n".join(run.lines(0)) + "\n")
    assert next(value["counters"] for value in values if "counters" in value)["requests"] > 0
    assert "RESIZE" not in {row["reason"] for value in values if isinstance(value, list) for row in value}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_worker_killed(tmp_path, transport):
    begin = time.monotonic()
    run = netns(tmp_path, "--workers", 3, "--transport", transport, "--kill", "2@1500ms", "--grace", "20s", "--job", 9, "--",
                *PERF.split(), "-b", "16M", "-e", "16M", "-n", "1000", environment={"INAGG_TIMEOUT_MS": "3000"})
    assert time.monotonic() - begin < 15  # 1.5 + 3 s, and to begin and end on a busy machine
    assert run.status == 128 + 9
    assert "others still run" not in run.error
    for rank in (0, 1):
        message = next(line for line in run.error.splitlines() if line.startswith(f"[{rank}] "))
        assert re.search(r"\bjob 9\b", message) and re.search(r"\bblock \d+", message), message
        assert re.search(r"\branks? 2\b", message), message


@pytest.mark.parametrize("transport, topology, link", [("udp", "star", "host1"), ("xdp", "star", "host1"),
                                                       ("udp", "two-level", "leaf1/uplink")])
def test_who_missed_the_end_asks(tmp_path, transport, topology, link):
    miss_the_end(tmp_path, link, "--transport", transport, "--topology", topology)


def test_agent_killed_and_restarted(tmp_path):
    """The job goes on without its agent, and the next agent serves the next job."""
    watch = "sleep 1.4; inaggctl --json stats --job 1; sleep 0.6; inaggctl --json stats --job 1"
    result = allreduce(tmp_path, 3, "-b", "1M", "-e", "1M", *compared(200),
                       options=("--kill-inaggd", "1s", "--restart-inaggd", "2500ms", "--also-in-switch", watch),
                       command="{0} && sleep 3 && inagg-perf allreduce -b 4K -e 4K --job 77 --check")
    early, late = (row[0]["completions"] for row in objects("\n".join(result.run.lines("switch")) + "\n"))
    assert 0 < early < late  # without an agent
    starts = [match.start() for match in re.finditer(r"\[inaggd\].* boot id", result.run.error)]
    assert len(starts) == 2
    again = result.run.error[starts[1]:]
    assert again.index("job 1: taken over, 3 of 3 ranks") < again.index("job 1: LEAVE") < again.index("job 77: generation")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("flags", ["", "--keep-boot"])
def test_switch_forgets_many_times(tmp_path, transport, flags):
    sums = {"udp": 40, "afxdp": 60, "xdp": 100}[transport]  # seconds, while clearing takes milliseconds
    clear = f"while inaggctl slots clear {flags}; do echo cleared; sleep 0.05; done"
    result = allreduce(tmp_path, 3, "-b", "1M", "-e", "1M", *compared(sums), transport=transport,
                       options=("--also-in-switch", clear), restarts=True)
    assert result.run.lines("switch").count("cleared") >= 3
    assert result.switch["additions"] > 3 * result.switch["completions"]  # what had been added was added again
    if not flags:
        assert result.counters["reboots"] >= 3


def test_tcp_through_the_same_ports(tmp_path):
    script = (f"if [ $RANK = 0 ]; then iperf3 -s -1 >/dev/null & fi; "
              f"if [ $RANK = 1 ]; then (sleep 0.5; iperf3 -J -c 10.77.0.10 -t 2 > {tmp_path}/tcp.json; date +%s%N > {tmp_path}/tcp-end) & fi; "
              f"{PERF} -b 1M -e 1M -n 0 --check-iterations 200; status=$?; date +%s%N > {tmp_path}/end-$RANK; wait; exit $status")
    run = netns(tmp_path, "--workers", 3, "--transport", "udp", "--", "sh", "-c", script)
    assert run.status == 0
    assert are_exact(sums_of(run))
    intervals = json.loads((tmp_path / "tcp.json").read_text())["intervals"]
    assert len(intervals) >= 2 and all(interval["sum"]["bytes"] > 1e6 for interval in intervals)
    assert int((tmp_path / "tcp-end").read_text()) < int((tmp_path / "end-1").read_text())


def as_nobody(command):
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", *command]


def test_unprivileged_udp(tmp_path):
    run = netns(tmp_path, "--workers", 3, "--transport", "udp", "--", *as_nobody(PERF.split()), "-b", "4K", "-e", "64K")
    assert run.status == 0
    assert are_exact(sums_of(run))


@pytest.mark.parametrize("transport", ["afxdp", "xdp"])
def test_unprivileged_others_say_so_in_one_line(tmp_path, transport):
    run = netns(tmp_path, "--workers", 1, "--transport", transport, "--", *as_nobody(PERF.split()), "-b", "4K", "-e", "4K")
    assert run.status not in (0, 124)
    said = [line for line in run.error.splitlines() if line.startswith("[0] ")]
    assert len(said) == 1 and "CAP_NET_ADMIN" in said[0]


def test_unprivileged_auto_falls_back(tmp_path):
    run = netns(tmp_path, "--workers", 2, "--transport", "auto", "--", *as_nobody(PERF.split()), "-b", "4K", "-e", "4K")
    assert run.status == 0
    assert sums_of(run)[0]["transport"] == "udp"
