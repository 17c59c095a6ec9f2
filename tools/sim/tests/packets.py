# SPDX-License-Identifier: BSD-2-Clause
"""How tests run inagg-sim."""

import os
import subprocess
from pathlib import Path

SIM = Path(os.environ["INAGG_BUILD"]) / "bin" / "inagg-sim"
PAYLOAD = 100 * 3328 / (3328 + 130)  # Gbit/s: what 100 Gbit/s carry of elements
THIS_RUN = {"wall_s", "memory_mib"}  # depend on the machine


def simulate(*options, fails=False):
    done = subprocess.run([SIM, *map(str, options)], capture_output=True, text=True, timeout=60)
    if fails:
        assert done.returncode == 1, done.stdout
        return done.stderr
    assert done.returncode == 0, done.stderr
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def outcome(row):
    return {name: value for name, value in row.items() if name not in THIS_RUN}
