# SPDX-License-Identifier: BSD-2-Clause
"""Running inagg-netns from tests."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

BUILD = Path(os.environ.get("INAGG_BUILD", "build")).resolve()
BIN = BUILD / "bin"
HERE = Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # Debian's, whatever the PATH says
RUN_LIMIT = 100  # seconds: a run that hangs ends with status 124


@dataclass
class Run:
    """What one inagg-netns run left: its status and its output."""

    status: int
    output: str
    error: str
    links: dict  # counters of the impairments, by direction

    def lines(self, rank):
        """What `rank` wrote to standard output."""
        prefix = f"[{rank}] "
        return [line[len(prefix):] for line in self.output.splitlines() if line.startswith(prefix)]

    def json(self, rank=0):
        """The JSON objects that `rank` printed, one a line."""
        return [json.loads(line) for line in self.lines(rank) if line.startswith("{")]


def netns_command(*arguments):
    """Command line of a run."""
    return [str(BIN / "inagg-netns"), "run", *map(str, arguments)]


def netns(tmp_path, *arguments, limit=RUN_LIMIT, environment=None, lies=False):
    """Run inagg-netns to its end. `arguments` come after `run` and contain the command after `--`. `lies`: sums are to be wrong,
    so what is shown does not say it in the words that tests/run looks for."""
    summary = tmp_path / "links.json"
    summary.unlink(missing_ok=True)
    done = subprocess.run(netns_command("--timeout", limit, "--json-summary", summary, *arguments), text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=limit + 30,
                          env={**os.environ, **(environment or {})})
    links = json.loads(summary.read_text()) if summary.exists() else {}
    shown = done.stdout.replace('"wrong"', '"wrong on purpose"') if lies else done.stdout
    print(f"$ inagg-netns run {' '.join(map(str, arguments))}\n{shown}{done.stderr}")  # shown if the test fails
    return Run(done.returncode, done.stdout, done.stderr, links)


def processes_of(launcher):
    """Host process ids of the launcher's descendants."""
    children = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:
            continue
        children.setdefault(int(text.rsplit(")", 1)[1].split()[1]), []).append(int(text.split(" ", 1)[0]))
    found, queue = [], [launcher]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found
