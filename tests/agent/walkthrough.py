#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the README's bpftool walk-through literally, then two workers compare sums through that switch.

Their transport is INAGG_TRANSPORT, or udp.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from network import BUILD, DIR, ROOT, attached, build_network, die_with_parent, enter_namespaces, inside, run

RANKS = range(2)
TRANSPORT = os.environ.get("INAGG_TRANSPORT", "udp")


def block(name):
    """The commands between README.md's markers of that name."""
    text = (ROOT / "README.md").read_text()
    found = re.findall(rf"<!-- {name}:begin -->\n```bash\n(.*?)```\n<!-- {name}:end -->", text, re.S)
    assert len(found) == 1, f"README.md has {len(found)} blocks marked {name}, not one"
    return found[0]


def walk(*scripts, directory):
    """Run README commands in one shell, in a directory where `build` is the build tree."""
    run("bash", "-e", "-u", "-o", "pipefail", "-c", "\n".join(scripts), cwd=directory)


def allreduce(holders, dtype, *options, **more):
    """inagg-perf on every rank through job 7; rank 0's rows."""
    command = [str(BUILD / "bin" / "inagg-perf"), "allreduce", "-b", "4", "-e", "1M", "-f", "16", "-n", "2", "-w", "1",
               "-d", dtype, "--check", "--json", *options]
    workers = []
    for rank in RANKS:
        environment = dict(os.environ, INAGG_SWITCH="10.77.0.1", INAGG_JOB="7", INAGG_RANK=str(rank),
                           INAGG_SIZE=str(len(RANKS)), INAGG_TRANSPORT=TRANSPORT, INAGG_TIMEOUT_MS="10000", **more)
        workers.append(subprocess.Popen(inside(holders[rank]) + command, env=environment, text=True,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent))
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    statuses = [worker.returncode for worker in workers]
    assert statuses == [0, 0], f"inagg-perf -d {dtype} ended with {statuses}: {outputs}"
    rows = [row for row in map(json.loads, filter(lambda line: line.startswith("{"), outputs[0].splitlines()))
            if "transport" in row]
    assert all(row["transport"] == TRANSPORT for row in rows), rows
    return rows


def groups(holders):
    """The group addresses that the ranks' hosts listen to."""
    return [run(*inside(holders[rank]), "ip", "maddress", capture_output=True).stdout for rank in RANKS]


def left_groups(holders, before):
    """Ranks leave the job's group as they end, the kernel's a moment later."""
    deadline = time.monotonic() + 10
    while groups(holders) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    return groups(holders) == before


def counters():
    """Job 7's row of `stats`, summed over processors."""
    text = run("bpftool", "-j", "map", "lookup", "pinned", DIR / "stats", "key", "0", "0", "0", "0",
               capture_output=True).stdout
    cpus = [cpu["value"] for cpu in json.loads(text)["formatted"]["values"]]
    return {name: sum(cpu[name] for cpu in cpus) for name in ("additions", "completions", "joins")}


def check(holders, directory):
    walkthrough, cleanup = block("bpftool-walkthrough"), block("bpftool-cleanup")
    walk(walkthrough, directory=directory)
    assert attached("p0") and attached("p1"), "the walk-through attached no XDP program"

    before = groups(holders)
    rows = allreduce(holders, "int32")
    assert left_groups(holders, before), f"still there: {groups(holders)}"
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
    check_trio(holders, functions, job7, directory)

    walk("DIR=/sys/fs/bpf/inagg", cleanup, directory=directory)
    assert not attached("p0") and not attached("p1") and not DIR.exists(), "the clean-up left something"


def check_trio(holders, functions, job7, directory):
    """The README's lines about it, and a rank that sleeps."""
    text = (ROOT / "README.md").read_text()
    begin, sweep = re.search(r"`(fill jobs 7 \"\$\(job7 3 1\)\")`", text).group(1), re.search(r"`(inagg-sweep .*?)`", text).group(1)
    walk(functions, job7, begin, directory=directory)
    sweeping = subprocess.Popen([BUILD / "bin" / word if word == "inagg-sweep" else word for word in sweep.split()],
                                preexec_fn=die_with_parent)
    try:
        rows = allreduce(holders, "int32", "--straggle", "1:300ms:2", INAGG_ALGORITHM="trio")
    finally:
        sweeping.terminate()
        assert sweeping.wait(10) == 0
    assert rows and all(row["wrong"] == 0 for row in rows), f"wrong sums with trio: {rows}"
    assert sum(row["degraded_blocks"] for row in rows) > 0, f"rank 0 waited for the straggler: {rows}"


def main():
    if sys.argv[1:] != ["inside"]:
        enter_namespaces()
    holders = build_network(len(RANKS))
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "build").symlink_to(BUILD)
        check(holders, directory)


main()
