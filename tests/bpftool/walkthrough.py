#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the README's bpftool walk-through literally and uses the switch that it makes.

The program starts itself again in new mount and network namespaces: what it makes goes with its processes,
also after kill -9. There it builds the README's two ports with a worker's namespace behind each, runs the
README's commands, and lets two workers compare sums through the switch.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("INAGG_BUILD", ROOT / "build"))
DIR = Path("/sys/fs/bpf/inagg")
RANKS = range(2)
SKIP = 77


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIP)


def block(name):
    """The commands between README.md's markers of that name."""
    text = (ROOT / "README.md").read_text()
    found = re.findall(rf"<!-- {name}:begin -->\n```bash\n(.*?)```\n<!-- {name}:end -->", text, re.S)
    assert len(found) == 1, f"README.md has {len(found)} blocks marked {name}, not one"
    return found[0]


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, **more)


def die_with_parent():
    """Children end with this program, whatever ends it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def enter_namespaces():
    """Start this program again, alone with its mounts, its network and its processes."""
    os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                          sys.executable, "-B", __file__, "inside"])


def build_network():
    """Bridge br0 with the switch's address; port pN leads to worker N's eth0. Returns the namespaces' holders."""
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    run("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
    run("ip", "-batch", "-", input="link set lo up\nlink add br0 type bridge\naddr add 10.77.0.1/24 dev br0\n"
        "link set br0 up\n")
    holders = []
    for rank in RANKS:
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                                  stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        holder.stdout.readline()
        holders.append(holder)
        run("ip", "-batch", "-", input=f"link add p{rank} type veth peer name eth0 netns {holder.pid}\n"
            f"link set p{rank} master br0 up\n")
        run(*inside(holder), "ip", "-batch", "-",
            input=f"link set lo up\naddr add 10.77.0.{10 + rank}/24 dev eth0\nlink set eth0 up\n")
        run(*inside(holder), "ethtool", "-K", "eth0", "gro", "on")
    return holders


def inside(holder):
    return ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]


def walk(*scripts, directory):
    """Run README commands in one shell, in a directory where `build` is the build tree."""
    run("bash", "-e", "-u", "-o", "pipefail", "-c", "\n".join(scripts), cwd=directory)


def allreduce(holders, dtype):
    """inagg-perf on every rank through job 7; rank 0's rows."""
    command = [str(BUILD / "bin" / "inagg-perf"), "allreduce", "-b", "4", "-e", "1M", "-f", "16", "-n", "2", "-w", "1",
               "-d", dtype, "--check", "--json"]
    workers = []
    for rank in RANKS:
        environment = dict(os.environ, INAGG_SWITCH="10.77.0.1", INAGG_JOB="7", INAGG_RANK=str(rank),
                           INAGG_SIZE=str(len(RANKS)), INAGG_TRANSPORT="udp", INAGG_TIMEOUT_MS="10000")
        workers.append(subprocess.Popen(inside(holders[rank]) + command, env=environment, text=True,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent))
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    statuses = [worker.returncode for worker in workers]
    assert statuses == [0, 0], f"inagg-perf -d {dtype} ended with {statuses}: {outputs}"
    return [row for row in map(json.loads, filter(lambda line: line.startswith("{"), outputs[0].splitlines()))
            if "wrong" in row]


def counters():
    """Job 7's row of `stats`, summed over processors."""
    text = run("bpftool", "-j", "map", "lookup", "pinned", DIR / "stats", "key", "0", "0", "0", "0",
               capture_output=True).stdout
    cpus = [cpu["value"] for cpu in json.loads(text)["formatted"]["values"]]
    return {name: sum(cpu[name] for cpu in cpus) for name in ("additions", "completions", "joins")}


def attached(port):
    text = run("ip", "-json", "link", "show", "dev", port, capture_output=True).stdout
    return "xdp" in json.loads(text)[0]


def check(holders, directory):
    walkthrough, cleanup = block("bpftool-walkthrough"), block("bpftool-cleanup")
    walk(walkthrough, directory=directory)
    assert attached("p0") and attached("p1"), "the walk-through attached no XDP program"

    rows = allreduce(holders, "int32")
    assert rows, "inagg-perf printed no rows"
    assert all(row["wrong"] == 0 for row in rows), f"wrong sums: {rows}"
    done = counters()
    assert done["completions"] > 0, done
    assert done["additions"] == len(RANKS) * done["completions"], f"sums were made elsewhere: {done}"

    # The README's line for the next run, in a shell that has its functions.
    functions = "\n".join(line for line in walkthrough.splitlines() if re.match(r"\w+\(\) \{.*\}$|DIR=", line))
    job7 = re.search(r"^job7\(\) \{.*?^\}$", walkthrough, re.S | re.M).group(0)
    again = re.search(r"`(fill jobs 7 .*?)`", (ROOT / "README.md").read_text()).group(1)
    walk(functions, job7, again, directory=directory)
    rows = allreduce(holders, "float32")
    assert rows and all(row["wrong"] == 0 for row in rows), f"wrong sums in the second run: {rows}"
    print(f"{len(rows)} sizes exact in each of two runs; {counters()}")

    walk("DIR=/sys/fs/bpf/inagg", cleanup, directory=directory)
    assert not attached("p0") and not attached("p1") and not DIR.exists(), "the clean-up left something"


def main():
    if sys.argv[1:] == ["inside"]:
        holders = build_network()
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "build").symlink_to(BUILD)
            check(holders, directory)
        return
    if os.geteuid() != 0:
        skip("network namespaces and XDP need root")
    for program in ("bpftool", "ip", "ethtool", "unshare", "nsenter"):
        if not shutil.which(program):
            skip(f"{program} is not installed: run `make deps`")
    enter_namespaces()


main()
