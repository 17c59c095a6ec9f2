# SPDX-License-Identifier: BSD-2-Clause
"""Python scripts as ranks of inagg-netns, and what they print."""

import argparse
import collections
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contenders import CUBIC, json_lines

ROOT = Path(__file__).resolve().parent.parent.parent


def run(build, options, script, cubic=False, **environment):
    """Run `script`, a list of arguments for Python, on every rank of `inagg-netns run OPTIONS`, with TCP by Cubic whatever the
    default here is; what the ranks printed as JSON. Exits with the command and its output if that fails."""
    build = build.resolve()
    command = [build / "bin" / "inagg-netns", "run", *options, "--no-prefix", "--", *[CUBIC] * cubic, sys.executable, *script]
    command = list(map(str, command))
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "userspace" / "python"), OPENBLAS_NUM_THREADS="1",
                       INAGG_LIBRARY=str(build / "lib" / "libinagg.so"), **environment)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return json_lines(done.stdout)


def run_beside_flows(build, options, script, **environment):
    """The same with --background among the options: what the ranks printed, and the samples of each flow."""
    with tempfile.TemporaryDirectory(prefix="inagg-flows-") as folder:
        summary = Path(folder) / "summary.json"
        reports = run(build, [*options, "--json-summary", summary], script, **environment)
        return reports, [flow["samples"] for flow in json.loads(summary.read_text()).get("background", [])]


def repeat(comm, count, seconds, compute=0, ahead=1):
    """As a rank: allreduce `count` floats for so long, and compute after each; `ahead` calls are under way, as buckets of gradients
    are. When each call was over, after the time of the start, by a clock that all processes share."""
    import numpy

    under_way, ends, over = collections.deque(), [time.monotonic()], False
    while under_way or not over:
        while len(under_way) < ahead and not over:
            tensor = numpy.full(count, 1 + comm.rank, numpy.float32)
            # All ranks make as many calls: the first says in the last element when it is time to end.
            tensor[-1] = comm.rank == 0 and ends[-1] - ends[0] > seconds
            under_way.append(comm.iallreduce(tensor))
        result = under_way.popleft().wait()
        ends.append(time.monotonic())
        time.sleep(compute)
        over = over or result[-1] != 0
        assert (result[:-1] == comm.size * (comm.size + 1) / 2).all(), "a wrong sum"
    return ends


def bytes_until(samples, when):
    """Of samples (time, bytes until then), between which it went on evenly."""
    import numpy

    return float(numpy.interp(when, *zip(*samples)))


def mbit_per_s(samples, start, end):
    """Mean rate between two times."""
    return (bytes_until(samples, end) - bytes_until(samples, start)) * 8 / (end - start) / 1e6


def completed(arguments, defaults):
    """What was said on the command line, and what an experiment takes if nothing was."""
    said = {name: value for name, value in vars(arguments).items() if value is not None}
    return argparse.Namespace(**{**vars(arguments), **defaults, **said})


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
