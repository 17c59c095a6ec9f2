#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""inaggd drives a Tofino: the chip's model with a BF Runtime server (model_switch.py), ports that are veths, and ranks behind
them that compare their sums.

usage: agent.py ALGORITHM
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "agent"))
from network import (BUILD, ROOT, add_worker, die_with_parent, enter_namespaces, inside, mount_all, run, skip,  # noqa: E402
                     until)

RANKS = 3
SERVER_PORT, SERVER_ADDRESS = f"p{RANKS}", f"10.77.0.{10 + RANKS}"  # atp's server
CPU = 10  # an ordinary one: the harness hears nothing of what leaves by 64
BF_RUNTIME = "127.0.0.1:50052"
LOSS = "0.03"
PATIENCE = 60


def need_tools():
    for program in ("p4c-barefoot", "bfas", "tofino_test_harness"):
        if not shutil.which(program):
            skip(f"{program} is not on the PATH (docs/P4-tofino.md says how to get it)")
    try:
        import bfrt_grpc.client  # noqa: F401
    except ImportError as error:
        skip(f"{error}: BF Runtime's Python client is not on PYTHONPATH (docs/P4-tofino.md says how to get it)")


def build_network():
    """Ports p0, p1, ... lead to hosts, the last one is the server's; the switch's addresses are those of `cpu`, whose other end is
    its CPU port."""
    mount_all()
    run("ip", "-batch", "-", input="link set lo up\nlink add cpu address 02:00:0a:4d:00:01 type veth peer name cpu-port\n"
        "link set cpu up\nlink set cpu-port up\naddr add 10.77.0.1/24 dev cpu\n")
    run("ethtool", "-K", "cpu", "tx", "off", stdout=subprocess.DEVNULL)
    holders = [add_worker(host) for host in range(RANKS + 1)]
    for port in [*(f"p{host}" for host in range(RANKS + 1)), "cpu-port"]:
        run("sysctl", "-qw", f"net.ipv4.conf.{port}.arp_ignore=8", f"net.ipv4.conf.{port}.rp_filter=1",
            f"net.ipv6.conf.{port}.disable_ipv6=1")
    for holder in holders:
        run(*inside(holder), "ethtool", "-K", "eth0", "tx", "off", "gro", "off", stdout=subprocess.DEVNULL)
    return holders


def started(command, **more):
    """A program that says that it is ready by a first line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent, **more)
    assert process.stdout.readline(), f"{command[0]} did not get ready"
    return process


def inaggctl(*arguments):
    """The agent waits for the model, which takes seconds to start anew, and does not answer meanwhile."""
    for _ in range(5):
        done = subprocess.run([BUILD / "bin/inaggctl", *arguments], capture_output=True, text=True)
        if "does not answer" not in done.stderr:
            break
    assert done.returncode == 0, f"inaggctl {arguments}: {done.stderr}"
    return done.stdout


def ctl(*arguments):
    return json.loads(inaggctl("--json", *arguments))


def allreduce(*job_and_options):
    """inagg-perf on the first hosts; rank 0's rows."""
    return finish(start(*job_and_options))


def start(holders, algorithm, job, size, *options):
    command = [BUILD / "bin/inagg-perf", "allreduce", *options, "-w", "0", "--check", "--json"]
    return [subprocess.Popen([*inside(holder), *command], text=True, stdout=subprocess.PIPE, preexec_fn=die_with_parent, env=dict(
        os.environ, INAGG_SWITCH="10.77.0.1", INAGG_JOB=str(job), INAGG_RANK=str(rank), INAGG_SIZE=str(size), INAGG_ALGORITHM=algorithm,
        INAGG_TRANSPORT="udp", INAGG_TIMEOUT_MS="20000")) for rank, holder in enumerate(holders[:size])]


def finish(workers):
    outputs = [worker.communicate(timeout=120)[0] for worker in workers]
    assert not any(worker.returncode for worker in workers), outputs
    rows = [row for row in map(json.loads, filter(lambda line: line.startswith("{"), outputs[0].splitlines())) if "wrong" in row]
    assert rows and not any(row["wrong"] for row in rows), rows
    return rows


def start_server(holder):
    read, write = os.pipe()
    server = subprocess.Popen([*inside(holder), BUILD / "bin/inagg-ps", "--address", SERVER_ADDRESS, "--child", "10.77.0.1", "--ready-fd",
                               str(write)], pass_fds=[write], preexec_fn=die_with_parent)
    os.close(write)
    assert os.read(read, 1), "inagg-ps did not get ready"
    os.close(read)
    return server


def test(holders, algorithm):
    """A LEAVE may get lost, and a job stay: each has its number."""
    resent = 0
    for job, dtype in enumerate(("int32", "float32", "float16"), 1):
        rows = allreduce(holders, algorithm, job, RANKS, "-b", "2K", "-e", "2K", "-n", "1", "-d", dtype)
        resent += rows[0]["retransmissions"]
    assert resent > 0, "nothing was lost"
    if algorithm != "atp":  # whose jobs are the server's
        inaggctl("job", "add", f"9:size=2,algorithm={algorithm}")
    workers = start(holders, algorithm, 9, 2, "-b", "256", "-e", "256", "-n", "30", "-d", "int32")
    until(lambda: any(row["job"] == 9 and row["packets"] for row in ctl("stats")), "packets of job 9 are counted", PATIENCE)
    shown = ctl("job", "show", "9")
    assert shown["big_endian"] and shown["elements"] == 32, shown
    finish(workers)
    inaggctl("reload")
    until(lambda: not ctl("job", "list"), "the next agent begins anew", PATIENCE)
    allreduce(holders, algorithm, 9, 2, "-b", "256", "-e", "256", "-n", "1", "-d", "int32")
    refused = subprocess.run([BUILD / "bin/inaggctl", "job", "add", f"9:size=33,algorithm={algorithm}"], capture_output=True, text=True)
    why = "jobs of this switch are its parent's" if algorithm == "atp" else "no jobs of more than 32 ranks"
    assert refused.returncode and why in refused.stderr, refused


def main():
    algorithm = sys.argv[1]
    if sys.argv[2:] != ["inside"]:
        need_tools()
        enter_namespaces(algorithm)
    holders = build_network()
    parent = []
    if algorithm == "atp":
        start_server(holders[RANKS])
        parent = ["--parent", f"{SERVER_PORT}/{SERVER_ADDRESS}"]
    with tempfile.TemporaryDirectory() as folder:
        compiled = subprocess.run([ROOT / "tests/p4/tna", algorithm, ROOT, "--bf-rt-schema", f"{folder}/bf-rt.json"],
                                  env={**os.environ, "KEEP": folder})
        if compiled.returncode:
            sys.exit(compiled.returncode)
        ports = [f"{host + 1}=p{host}" for host in range(len(holders))]
        switch = started([sys.executable, "-B", HERE / "model_switch.py", f"{folder}/out/pipe", f"{folder}/bf-rt.json", BF_RUNTIME, LOSS,
                          f"{CPU}=cpu-port", *ports], cwd=folder)
        agent = subprocess.Popen([BUILD / "bin/inaggd", "--tofino", BF_RUNTIME, "--cpu-port", f"cpu={CPU}", "--job-slots", "8",
                                  *(f"--port=p{host}={host + 1}" for host in range(len(holders))), *parent], preexec_fn=die_with_parent)
        until(lambda: subprocess.run([BUILD / "bin/inaggctl", "status"], capture_output=True).returncode == 0, "inaggd is ready", PATIENCE)
        test(holders, algorithm)
        agent.terminate()
        assert agent.wait(timeout=PATIENCE) == 0
        assert switch.poll() is None
    print("all passed")


if __name__ == "__main__":
    main()
