# SPDX-License-Identifier: BSD-2-Clause
"""Python scripts as ranks of inagg-netns, and what they print."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from contenders import json_lines

ROOT = Path(__file__).resolve().parent.parent.parent


def run(build, options, script, **environment):
    """Run `script`, a list of arguments for Python, on every rank of `inagg-netns run OPTIONS`; what the ranks printed as
    JSON. Exits with the command and its output if that fails."""
    build = build.resolve()
    command = [build / "bin" / "inagg-netns", "run", *options, "--no-prefix", "--", sys.executable, *script]
    command = list(map(str, command))
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "userspace" / "python"), OPENBLAS_NUM_THREADS="1",
                       INAGG_LIBRARY=str(build / "lib" / "libinagg.so"), **environment)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return json_lines(done.stdout)


def rounds(count, cases, measure, arguments):
    """measure(arguments, *case) for all cases in turn, `count` times over: the runs of each case."""
    runs = [[measure(arguments, *case) for case in cases] for _ in range(count)]
    return list(zip(*runs))


def median_run(runs, key):
    """The run whose figure `key` is the median."""
    return sorted(runs, key=lambda run: run[key])[(len(runs) - 1) // 2]


def pyplot():
    """Matplotlib's, drawing into files."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("--plot needs matplotlib: apt install python3-matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plot
    return plot
