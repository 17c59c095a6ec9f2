#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The recipe for xdpdump in docs/TROUBLESHOOTING.md: what reaches a port of the switch, and what its program makes of it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

from agent import Agent, Worker, main, sums
from network import ROOT, die_with_parent, run, skip


give_up = sys.exit if os.environ.get("INAGG_MUST") else skip  # on a kernel that is known to let programs be traced


def recipe(port):
    document = (ROOT / "docs/TROUBLESHOOTING.md").read_text()
    (text,) = re.findall(r"<!-- xdpdump-recipe:begin -->\n```bash\n(.*?)```\n<!-- xdpdump-recipe:end -->", document, re.S)
    return text.replace("eth1", port)


def start(port):
    """The recipe, when xdpdump listens; None: this kernel lets nobody trace a program."""
    shell = subprocess.Popen(["bash", "-c", recipe(port)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=die_with_parent)
    said = ""
    for line in shell.stderr:
        said += line
        if line.startswith(f"listening on {port}"):
            return shell
    shell.wait()
    assert "Can't load eBPF object: Operation not permitted" in said, said
    return None


def test_xdpdump_shows_contributions_and_results(hosts):
    with Agent():
        workers = [Worker(hosts[rank], rank).join() for rank in (1, 0)]
        shell = start("p0")
        if not shell:
            give_up("this kernel lets nobody trace an XDP program")
        for block in range(60):  # xdpdump listens a little later than it says, and wakes up after some packets
            sums(workers, block)  # rank 0 is the last: its frame becomes the result
            time.sleep(0.1)
        pid = run("pgrep", "-P", str(shell.pid), "-x", "xdpdump", capture_output=True).stdout
        os.kill(int(pid), signal.SIGINT)
        shown, _ = shell.communicate(timeout=60)
        contributions = set(re.findall(r"CONTRIBUTION job 7/\d+ rank 0 block (\d+) ", shown))
        results = set(re.findall(r"RESULT job 7/\d+ .*block (\d+) slot \d+, 2 of 2 in", shown))
        assert len(contributions & results) > 10, shown


if __name__ == "__main__":
    if sys.argv[1:] != ["inside"]:
        for program in ("xdpdump", "tshark", "pgrep"):
            if not shutil.which(program):
                give_up(f"{program} is not installed: run `make deps`")
    main(globals())
