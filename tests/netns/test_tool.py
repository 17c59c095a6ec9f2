# SPDX-License-Identifier: BSD-2-Clause
"""inagg-netns itself: statuses, output, environment, and that nothing is left of a run however it ends."""

import ctypes
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from allreduce import are_exact
from netns import netns, netns_command, processes_of

NO_SWITCH = ("--switch", "none")
LIBBPF = ctypes.CDLL("libbpf.so.1")


def shell(*arguments):
    *options, script = arguments
    return (*NO_SWITCH, *options, "--", "sh", "-c", script)


# Statuses


def test_success(tmp_path):
    assert netns(tmp_path, "--workers", 3, *shell("true")).status == 0


@pytest.mark.parametrize("script, status", [
    ("test $RANK != 1 || exit 7", 7),
    ("test $RANK != 2 || kill -TERM $$; exit 0", 128 + signal.SIGTERM),
    ("test $RANK != 0 || kill -KILL $$; exit 0", 128 + signal.SIGKILL),
])
def test_status_of_a_failing_rank(tmp_path, script, status):
    run = netns(tmp_path, "--workers", 3, *shell(script))
    assert run.status == status
    assert f"ended with status {status}" in run.error


def test_first_failure_decides_and_grace_ends_the_others(tmp_path):
    run = netns(tmp_path, "--workers", 2, "--grace", "100ms", *shell("test $RANK = 1 && exit 5; sleep 1000"))
    assert run.status == 5
    assert "others still run" in run.error


def test_others_may_finish_within_the_grace(tmp_path):
    run = netns(tmp_path, "--workers", 2, *shell("test $RANK = 1 && exit 5; sleep 0.5; echo finished"))
    assert run.status == 5
    assert run.lines(0) == ["finished"]


def test_timeout(tmp_path):
    run = netns(tmp_path, "--workers", 2, *shell("trap '' TERM; sleep 1000"), limit=1)
    assert run.status == 124


def test_kill_at_a_time(tmp_path):
    run = netns(tmp_path, "--workers", 2, "--kill", "1@200ms", "--grace", "0s", *shell("sleep 1000"))
    assert run.status == 128 + signal.SIGKILL
    assert "rank 1 ended" in run.error


def test_command_that_does_not_exist(tmp_path):
    run = netns(tmp_path, "--workers", 1, *NO_SWITCH, "--", "no-such-command")
    assert run.status == 127
    assert "no-such-command" in run.error


def test_switch_that_does_not_start(tmp_path):
    run = netns(tmp_path, "--workers", 1, "--inaggd-arg", "--no-such-flag", "--", "echo", "started")
    assert run.status == 125
    assert "inaggd did not start" in run.error
    assert "started" not in run.output


@pytest.mark.parametrize("option, value", [
    ("--rate", "5"), ("--rate", "1gbits"), ("--rate", "0gbit"), ("--loss", "2"), ("--loss", "-0.1"), ("--dup", "x"),
    ("--delay", "1h"), ("--corrupt", "nan"), ("--mtu", "9001"), ("--topology", "ring"), ("--algorithm", "magic"),
    ("--transport", "pigeon"), ("--workers", "0"), ("--workers", "65"), ("--kill", "1"), ("--kill", "5@1s"),
])
def test_bad_values_are_named(tmp_path, option, value):
    others = () if option == "--workers" else ("--workers", 2)
    run = netns(tmp_path, *others, *NO_SWITCH, option, value, "--", "true")
    assert run.status == 2
    assert option in run.error and value.split("@")[0] in run.error


def test_side_command_runs_in_the_switch_and_counts(tmp_path):
    run = netns(tmp_path, "--workers", 1, "--also-in-switch", "ip -br link show p0; exit 9", *shell("sleep 0.5"))
    assert run.status == 9
    assert any(line.startswith("p0@") for line in run.lines("switch"))


# Output


def test_output_is_prefixed_by_rank_and_line(tmp_path):
    run = netns(tmp_path, "--workers", 2, *shell("echo out $RANK; echo err $RANK >&2; printf unfinished"))
    for rank in range(2):
        assert run.lines(rank) == [f"out {rank}", "unfinished"]
        assert f"[{rank}] err {rank}\n" in run.error


def test_lines_stay_whole(tmp_path):
    script = 'i=0; while [ $i -lt 500 ]; do echo "start-$RANK-$i-end"; i=$((i+1)); done'
    run = netns(tmp_path, "--workers", 4, *shell(script))
    assert len(run.output.splitlines()) == 2000
    assert all(re.fullmatch(r"\[(\d)\] start-\1-\d+-end", line) for line in run.output.splitlines())


def test_no_prefix_and_quiet_ranks(tmp_path):
    run = netns(tmp_path, "--workers", 3, "--no-prefix", "--quiet-ranks", *shell("echo rank $RANK; echo err >&2"))
    assert run.output == "rank 0\n"
    assert run.error.count("err\n") == 3


def test_standard_input_is_empty(tmp_path):
    assert netns(tmp_path, "--workers", 1, *shell("cat; echo done")).lines(0) == ["done"]


def test_reader_that_goes_away_ends_the_run():
    command = " ".join(netns_command("--workers", 2, *NO_SWITCH, "--timeout", 60, "--", "yes"))
    started = time.monotonic()
    assert subprocess.run(["bash", "-c", f"{command} | head -1"], capture_output=True, text=True).stdout.endswith("] y\n")
    assert time.monotonic() - started < 60


def test_a_rank_that_writes_without_end_holds_up_nothing(tmp_path):
    run = subprocess.run([*netns_command("--workers", 1, *NO_SWITCH, "--timeout", "1s", "--", "yes")], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True, timeout=60)
    assert run.returncode == 124 and "not finished in 1 s" in run.stderr


# What a rank sees


def test_environment(tmp_path):
    run = netns(tmp_path, "--workers", 5, "--ranks-per-host", 2, "--job", 9, "--transport", "udp", "--checked",
                *shell('echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $WORKER_ADDRESS '
                       '$INAGG_RANK $INAGG_SIZE $INAGG_JOB $INAGG_TRANSPORT $INAGG_ALGORITHM $INAGG_CHECKED"'))
    assert run.lines(3) == ["3 5 1 2 10.77.0.10 10.77.0.11 3 5 9 udp switchml 1"]
    assert run.lines(4) == ["4 5 0 1 10.77.0.10 10.77.0.12 4 5 9 udp switchml 1"]


def test_addresses_mtu_and_namespaces(tmp_path):
    run = netns(tmp_path, "--workers", 4, "--ranks-per-host", 2, "--mtu", 3498, "--ipv6",
                *shell("echo $(cat /proc/self/net/if_inet6 | grep -c fd77) $MASTER_ADDR; readlink /proc/self/ns/net; "
                       "ip -o link show eth0 | grep -o 'mtu [0-9]*'"))
    ranks = [run.lines(rank) for rank in range(4)]
    assert all(lines[0] == "1 fd77::10" and lines[2] == "mtu 3498" for lines in ranks)
    assert ranks[0][1] == ranks[1][1] != ranks[2][1] == ranks[3][1]
    assert os.readlink("/proc/self/ns/net") not in [lines[1] for lines in ranks]


def test_own_run_directory_and_bpf_file_system(tmp_path):
    run = netns(tmp_path, "--workers", 1, *shell("touch /run/inagg/x /run/y; mkdir /sys/fs/bpf/z; ls /run/inagg /sys/fs/bpf"))
    assert run.status == 0
    assert {"x", "z"} <= set(run.lines(0))
    assert not Path("/run/inagg/x").exists() and not Path("/run/y").exists() and not Path("/sys/fs/bpf/z").exists()


def test_hosts_have_names_that_resolve(tmp_path):
    run = netns(tmp_path, "--workers", 2, *shell("hostname; getent ahostsv4 host1 | head -1 | cut -d' ' -f1"))
    assert run.lines(0) == ["host0", "10.77.0.11"] and run.lines(1) == ["host1", "10.77.0.11"]
    assert "host1" not in Path("/etc/hosts").read_text()


# Programs that start the ranks


@pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun: install openmpi-bin")
def test_mpirun_starts_ranks_on_all_hosts(tmp_path):
    run = netns(tmp_path, *NO_SWITCH, "--workers", 5, "--ranks-per-host", 2, "--job", 9, "--", "mpirun", "sh", "-c",
                "sleep 0.$OMPI_COMM_WORLD_RANK; echo $OMPI_COMM_WORLD_RANK $(hostname) $WORKER_ADDRESS $INAGG_JOB $INAGG_RANK.")
    assert run.status == 0
    assert sorted(run.lines("mpirun")) == ["0 host0 10.77.0.10 9 .", "1 host0 10.77.0.10 9 .", "2 host1 10.77.0.11 9 .",
                                           "3 host1 10.77.0.11 9 .", "4 host2 10.77.0.12 9 ."]


@pytest.mark.parametrize("launched, options", [
    (("mpirun",), ()),
    (("sh", "-c", "unset INAGG_RANK INAGG_SIZE; SLURM_PROCID=$WORKER SLURM_NTASKS=4 exec \"$@\"", "srun"), ()),
    (("/usr/bin/python3", "-m", "torch.distributed.run", "--no_python"), ("--launcher", "torchrun")),
], ids=["mpirun", "srun", "torchrun"])
def test_ranks_know_themselves_from_their_launcher(tmp_path, launched, options):
    if not shutil.which(launched[0]) or (options and not importlib.util.find_spec("torch")):
        pytest.skip("there is no such launcher: install openmpi-bin and python3-torch")
    run = netns(tmp_path, "--workers", 4, "--ranks-per-host", 2, *options, "--", *launched,
                "inagg-perf", "allreduce", "-b", "64K", "-e", "64K", "-n", 3, "--check", "--json",
                environment={"TMPDIR": str(tmp_path)} if options else None)
    assert run.status == 0
    rows = [json.loads(line[line.index("{"):]) for line in run.output.splitlines() if '"wrong"' in line and '"size"' in line]
    assert are_exact(rows) and [row["workers"] for row in rows] == [4]


@pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun: install openmpi-bin")
def test_status_of_mpirun(tmp_path):
    run = netns(tmp_path, *NO_SWITCH, "--workers", 2, "--", "mpirun", "sh", "-c", "exit $((OMPI_COMM_WORLD_RANK * 7))")
    assert run.status == 7
    assert "netns: mpirun ended with status 7" in run.error


def test_torchrun_is_started_on_each_host(tmp_path):
    run = netns(tmp_path, "--workers", 4, "--ranks-per-host", 2, "--launcher", "torchrun",
                *shell("echo $PET_NNODES $PET_NODE_RANK $PET_NPROC_PER_NODE $PET_MASTER_ADDR $INAGG_RANK."),
                environment={"TMPDIR": str(tmp_path)})
    assert run.lines("host0") == ["2 0 2 10.77.0.10 ."] and run.lines("host1") == ["2 1 2 10.77.0.10 ."]


@pytest.mark.parametrize("arguments, message", [
    (("--kill", "1@1s", "--", "mpirun", "true"), "'mpirun' starts the ranks"),
    (("--ranks-per-host", "3", "--", "/usr/bin/torchrun", "true"), "4 workers are no multiple of 3"),
    (("--launcher", "srun", "--", "true"), "srun"),
])
def test_launchers_that_cannot_work_are_refused(tmp_path, arguments, message):
    run = netns(tmp_path, "--workers", 4, *arguments)
    assert run.status == 2
    assert message in run.error


@pytest.mark.parametrize("arguments, message", [
    (("--cut", "host9@1s"), "there is no link host9: there are "),
    (("--kill-inaggd", "leaf7@1s"), "there is no switch leaf7: there are switch"),
    (("--inaggd-arg=--verbose", "--switch", "inagg-ps"), "no inaggd"),
    (("--inaggd-arg=--verbose", *NO_SWITCH), "no inaggd"),
])
def test_what_is_not_there_is_named(tmp_path, arguments, message):
    run = netns(tmp_path, "--workers", 2, *arguments, "--", "true")
    assert run.status == 2
    assert message in run.error


@pytest.mark.parametrize("topology", ["star", "bridge"])
@pytest.mark.parametrize("family", [(), ("--ipv6",)])
def test_ranks_reach_each_other(tmp_path, topology, family):
    probe = Path(__file__).with_name("udp_probe.py")
    run = netns(tmp_path, "--workers", 3, "--topology", topology, *family, *NO_SWITCH,
                "--", "/usr/bin/python3", probe, 20, 0.001)
    assert run.status == 0
    assert run.json(1)[0]["unique"] == 20


# What is left


def traces_of(launcher):
    """Everything of a run that could outlive it: processes, network namespaces, BPF programs and maps."""
    traces = set()
    for pid in processes_of(launcher):
        traces.add(("process", pid))
        traces.add(("netns", os.stat(f"/proc/{pid}/ns/net").st_ino))
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            try:
                found = re.search(r"^(prog|map)_id:\t(\d+)$", info.read_text(), re.M)
            except FileNotFoundError:  # closed since it was listed
                continue
            if found:
                traces.add((found[1], int(found[2])))
    return traces


def used_namespaces():
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            yield os.stat(link).st_ino
        except OSError:
            pass


def has_id(kind, number):
    """Of a BPF object. Opens none: an array of programs whose last user has just gone leaks if it is opened and closed before the
    kernel's deferred work has emptied it (prog_array_map_clear() takes a reference for work that is queued already)."""
    found = ctypes.c_uint32()
    next_id = getattr(LIBBPF, f"bpf_{kind}_get_next_id")
    return next_id(ctypes.c_uint32(number - 1), ctypes.byref(found)) == 0 and found.value == number


def still_there(traces):
    """Those of `traces` that exist."""
    spaces = set(used_namespaces())
    for kind, number in traces:
        if kind == "process":
            try:
                zombie = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                continue
            if not zombie:
                yield kind, number
        elif kind == "netns":
            if number in spaces:
                yield kind, number
        elif has_id(kind, number):
            yield kind, number


def heed_signals():
    """As a shell in the foreground has it, however these tests were started."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start_and_trace(network=NO_SWITCH, prepare=heed_signals):
    """A run under way, with links that need a BPF program and a relay; and its traces."""
    command = netns_command("--workers", 3, *network, "--loss", 0.01, "--delay", "1ms", "--timeout", 90, "--",
                            "sh", "-c", "trap '' TERM INT HUP; setsid sleep 1000 & echo up; sleep 1000; sleep 1000")
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=prepare)
    for _ in range(3):
        assert launcher.stdout.readline().endswith("up\n")
    traces = traces_of(launcher.pid)
    kinds = [kind for kind, number in traces]
    assert kinds.count("process") >= 5 and kinds.count("netns") >= 5 and "prog" in kinds and "map" in kinds
    assert set(still_there(traces)) == traces
    return launcher, traces


def assert_gone(traces):
    deadline = time.monotonic() + 60  # the kernel frees namespaces in the background, one after the other
    while left := set(still_there(traces)):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def named_namespaces():
    return set(os.listdir("/run/netns")) if Path("/run/netns").exists() else set()


@pytest.mark.parametrize("number, status", [
    (signal.SIGKILL, -signal.SIGKILL),
    (signal.SIGINT, 128 + signal.SIGINT),
    (signal.SIGTERM, 128 + signal.SIGTERM),
    (signal.SIGHUP, 128 + signal.SIGHUP),
])
def test_nothing_is_left_after_a_signal(number, status):
    interfaces, names = set(os.listdir("/sys/class/net")), named_namespaces()
    launcher, traces = start_and_trace()
    assert set(os.listdir("/sys/class/net")) == interfaces
    launcher.send_signal(number)
    assert launcher.wait(timeout=30) == status
    assert_gone(traces)
    assert set(os.listdir("/sys/class/net")) == interfaces and named_namespaces() == names


def test_a_run_under_nohup_outlives_the_terminal():
    launcher, traces = start_and_trace(prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    launcher.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.wait(timeout=3)  # ranks that heed nothing are killed 2 s after a signal
    launcher.terminate()
    assert launcher.wait(timeout=30) == 128 + signal.SIGTERM
    assert_gone(traces)


@pytest.mark.parametrize("network", [(), ("--topology", "leaf-spine", "--leaves", 3, "--background", "tcp")])
def test_nothing_is_left_of_switches_and_flows(network):
    launcher, traces = start_and_trace(network)
    assert sum(kind == "prog" for kind, number in traces) > 2  # those of the switch too
    launcher.kill()
    launcher.wait()
    assert_gone(traces)


def test_nothing_is_left_when_the_first_process_is_killed():
    launcher, traces = start_and_trace()
    first = min(number for kind, number in traces if kind == "process")
    os.kill(first, signal.SIGKILL)
    assert launcher.wait(timeout=30) == 128 + signal.SIGKILL
    assert_gone(traces)


def test_two_runs_at_once(tmp_path):
    one, traces_of_one = start_and_trace()
    other, traces_of_other = start_and_trace()
    spaces = [{number for kind, number in traces if kind == "netns"} for traces in (traces_of_one, traces_of_other)]
    assert not spaces[0] & spaces[1]
    one.kill()
    one.wait()
    assert_gone(traces_of_one)
    assert set(still_there(traces_of_other)) == traces_of_other
    other.kill()
    other.wait()
    assert_gone(traces_of_other)
