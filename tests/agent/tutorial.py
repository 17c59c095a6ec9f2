#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the commands of docs/TUTORIAL.md literally, one step after the other in one shell, and looks at what they print."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from network import BPFFS, BUILD, ROOT, enter_namespaces, run, skip

STEPS = ["network", "switch", "doctor", "pytorch", "trace", "straggler", "packet", "end"]
NEEDED = ["torchrun", "tshark"]
LIMIT = 500  # seconds: a minute, if nothing else runs


def block(step):
    found = re.findall(rf"<!-- tutorial:{step}:begin -->\n```bash\n(.*?)```\n<!-- tutorial:{step}:end -->",
                       (ROOT / "docs/TUTORIAL.md").read_text(), re.S)
    assert len(found) == 1, f"TUTORIAL.md has {len(found)} blocks of step {step}, not one"
    return found[0]


def steps_of(output):
    """What each step printed."""
    parts = re.split(r"^=== (\w+)\n", output, flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def make_clone(directory):
    """What the steps use of a clone that is built. The module looks for its library from where it is, so it has to be there."""
    (directory / "tools").symlink_to(ROOT / "tools")
    (directory / "build").symlink_to(BUILD)
    shutil.copytree(ROOT / "userspace/python", directory / "userspace/python")


def run_all(directory):
    marks = [f"echo; echo === {step}\n{block(step)}" for step in STEPS]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("INAGG_", "PYTHON"))}
    environment["HOME"] = environment["TMPDIR"] = str(directory)
    output = directory / "output"  # not a pipe: what a failed step leaves running would keep that open
    with output.open("w") as file:
        done = subprocess.run(["timeout", str(LIMIT), "bash", "-e", "-u", "-o", "pipefail", "-c", "\n".join(marks)], cwd=directory,
                              env=environment, stdout=file, stderr=subprocess.STDOUT, check=False)
    print(output.read_text(), flush=True)
    assert done.returncode == 0, f"status {done.returncode}"
    return steps_of(output.read_text())


def check(printed):
    assert re.search(r"^ +7 +2 +0 ", printed["switch"], re.M), "job 7 is not there, or not empty"
    assert re.search(r"^ok +worker: switch answers", printed["doctor"], re.M)
    assert re.search(r"^ok +worker: environment +rank 0 of 2 in job 7", printed["doctor"], re.M)
    reports = [json.loads(line[line.index("{"):]) for line in printed["pytorch"].splitlines() if '"weights"' in line]
    assert {report["rank"] for report in reports} == {0, 1} and len({report["weights"] for report in reports}) == 1
    assert all(report["backend"] == "inagg" for report in reports)
    counters = dict(re.findall(r"^  (\w+) +(\d+)$", printed["pytorch"], re.M))
    assert int(counters["completions"]) > 100 and int(counters["additions"]) >= 2 * int(counters["completions"]), counters
    assert re.search(r"^ +\d+ (data|control) +open +[\d.]+ +0 +1$", printed["trace"], re.M)
    assert re.search(r"^ +7 waits for ranks 1 \(\d+\.\d s\)$", printed["trace"], re.M)
    assert re.search(r"^ +8 rank +1 .*missed [1-9]", printed["straggler"], re.M)
    assert "CONTRIBUTION" in printed["packet"] and "JOIN" in printed["packet"]
    results = re.findall(r"^7\t(\d+)\t0,1$", printed["packet"], re.M)
    assert len(results) > 2, "no results"
    assert not list(Path("/run/netns").iterdir()), "the network is still there"


def main():
    if sys.argv[1:] != ["inside"]:
        for program in NEEDED:
            if not shutil.which(program):
                skip(f"{program} is not installed: run `make deps`")
        if not (BUILD / "lib/inagg_torch.so").exists():
            skip("the PyTorch backend was not built: libtorch-dev or pybind11-dev is not installed")
        if not Path("/usr/share/datasets/fashion-mnist").exists():
            skip("dataset-fashion-mnist is not installed")
        enter_namespaces()
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    run("mount", "-t", "bpf", "bpf", BPFFS)
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("ip", "link", "set", "lo", "up")
    with tempfile.TemporaryDirectory() as directory:
        make_clone(Path(directory))
        check(run_all(Path(directory)))
    assert not list(BPFFS.glob("inagg*")), "the switch is still there"


main()
