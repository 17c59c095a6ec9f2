# SPDX-License-Identifier: BSD-2-Clause
"""MPI programs over the hosts of an inagg-netns run, and what the switch has counted."""

import json
import shutil
from dataclasses import dataclass

from netns import BUILD, RUN_LIMIT, Run, netns

LIBRARY = BUILD / "lib/libinagg-mpi.so"
WORLD = 1  # job of MPI_COMM_WORLD
SHARE = 0.9  # of the eligible bytes has to be summed in the switch


@dataclass
class MpiRun(Run):
    """What a run left, with the report of the library and the switch's counters of WORLD."""

    report: dict
    switch: dict

    def check_share(self):
        """Most of what could be summed in the switch was."""
        assert self.report["offloaded_bytes"] >= SHARE * self.report["eligible_bytes"] > 0

    def check_offload(self):
        """The same, and the switch's counters say so."""
        self.check_share()
        ranks, world = self.report["ranks"], self.report["jobs"][str(WORLD)]
        assert self.switch["completions"] * ranks >= world["blocks"] > 0
        assert self.switch["additions"] >= world["contributions"]
        assert self.switch["elements"] * 8 >= world["bytes"] > 0  # a double may travel as 32 bits


def mpi(tmp_path, ranks, *command, mpirun=(), preload=True, counted=True, environment=None, options=(),
        limit=RUN_LIMIT):
    """Run an MPI program, a rank on each host. Where the only switch is to be @counted, the job of MPI_COMM_WORLD is
    configured: it stays, with its counters, when its ranks have left."""
    folder, report, counters = tmp_path / "hosts", tmp_path / "report.json", tmp_path / "switch.json"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    report.unlink(missing_ok=True)
    # Open MPI 4.1 saturates sums of 8 and 16 bits with AVX, and only then.
    variables = {"INAGG_MPI_REPORT": report, "OMPI_MCA_op": "^avx", **(environment or {})}
    if preload:
        variables["LD_PRELOAD"] = LIBRARY
    settings = [f"{name}={value}" for name, value in variables.items()]
    configured = [f"--inaggd-arg=--job={WORLD}:size={ranks}"] if counted else []
    count = f"until [ -e {folder}/finished ]; do sleep 0.05; done; inaggctl --json stats > {counters}; touch {folder}/counted"
    start = f'mpirun "$@"; status=$?; touch {folder}/finished; until [ -e {folder}/counted ]; do sleep 0.05; done; exit $status'
    run = netns(tmp_path, "--workers", ranks, "--job", WORLD, *configured, "--also-in-switch", count, *options,
                "--launcher", "mpirun", "--", "sh", "-c", start, "sh", *mpirun, "env", *settings, *command, limit=limit)
    rows = json.loads(counters.read_text()) if counted and counters.exists() else []
    return MpiRun(**vars(run), report=json.loads(report.read_text()) if report.exists() else {},
                  switch=next((row for row in rows if row["job"] == WORLD), {}))
