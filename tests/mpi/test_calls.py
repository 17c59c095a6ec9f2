# SPDX-License-Identifier: BSD-2-Clause
"""libinagg-mpi: calls beside MPI's own, settings, reports."""

import signal

import pytest

from mpi import mpi
from netns import BIN

GROUPS = ["reductions", "floats", "left", "broadcasts", "started", "many", "errors", "attributes"]


def collectives(tmp_path, ranks, *groups, **options):
    """A run of mpi-collectives that finds nothing different from MPI's own results."""
    run = mpi(tmp_path, ranks, BIN / "mpi-collectives", *groups, **options)
    assert run.status == 0 and run.lines("mpirun") == ["ok"]
    return run


def test_calls(tmp_path):
    collectives(tmp_path, 3, *GROUPS).check_offload()


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 4, 5])
@pytest.mark.parametrize("transport", ["udp", "auto"])
def test_calls_of_many(tmp_path, ranks, transport):
    collectives(tmp_path, ranks, *GROUPS, options=["--transport", transport]).check_offload()


@pytest.mark.full
def test_lossy_links(tmp_path):
    run = collectives(tmp_path, 4, *GROUPS[1:], options=["--loss", 0.01, "--reorder", 0.02, "--seed", 5])
    run.check_offload()


@pytest.mark.full
@pytest.mark.parametrize("options", [["--algorithm", "panama"], ["--algorithm", "canary"], ["--topology", "two-level"],
                                     ["--trees", "2"], ["--switch", "inagg-ps", "--algorithm", "atp"]], ids=" ".join)
def test_other_switches(tmp_path, options):
    collectives(tmp_path, 4, "broadcasts", "started", "many", "errors", "attributes", options=options, counted=False).check_share()


def test_fortran(tmp_path):
    """Both modules: their libraries do not call what a profiling library sees of C."""
    program = BIN / "mpi-fortran-sums"
    if not program.exists():
        pytest.skip("no mpifort: install libopenmpi-dev")
    run = mpi(tmp_path, 3, program)
    assert run.lines("mpirun") == ["ok"] and run.report["offloaded_calls"] == 3 * 12
    run.check_offload()


def test_thresholds(tmp_path):
    run = collectives(tmp_path, 2, "broadcasts", environment={"INAGG_MPI_MIN_BYTES": "1K", "INAGG_MPI_MAX_BYTES": 100000})
    left = run.report["left"]
    assert left["below INAGG_MPI_MIN_BYTES"] > 0 and left["above INAGG_MPI_MAX_BYTES"] > 0
    assert run.report["offloaded_bytes"] == run.report["eligible_bytes"] > 0


@pytest.mark.parametrize("variable, value", [("INAGG_MPI_MIN_BYTES", "1X"), ("INAGG_MPI_MAX_BYTES", "-1"), ("INAGG_MPI_FLOAT", "half"),
                                             ("INAGG_MPI_JOBS", "0"), ("INAGG_TIMEOUT_MS", "soon")])
def test_bad_settings(tmp_path, variable, value):
    run = mpi(tmp_path, 1, BIN / "mpi-collectives", environment={variable: value})
    assert run.status and f"inagg: {variable}='{value}': set it to" in run.output + run.error


def test_no_scale_by_hand(tmp_path):
    """What overflows it could not be given to MPI: its elements may have been replaced."""
    run = mpi(tmp_path, 1, BIN / "mpi-collectives", environment={"INAGG_SCALE": 20, "INAGG_MPI_FLOAT": "float32"})
    assert run.status and "inagg: INAGG_SCALE='20': set it to auto" in run.output + run.error


def test_line_at_exit(tmp_path):
    run = mpi(tmp_path, 2, BIN / "mpi-collectives", "left")
    assert "summed in the switch" in run.error and "left to MPI: " in run.error and "(user's operator)" in run.error
    run = mpi(tmp_path, 2, BIN / "mpi-collectives", "left", environment={"INAGG_MPI_REPORT": 0})
    assert "inagg: " not in run.error


def test_nothing_without_a_switch(tmp_path):
    run = mpi(tmp_path, 2, BIN / "mpi-collectives", "errors", environment={"INAGG_SWITCH": ""})
    assert run.status == 0 and "inagg: all is left to MPI: INAGG_SWITCH is not set" in run.error


def test_settings_that_differ(tmp_path):
    command = ["sh", "-c", 'test $OMPI_COMM_WORLD_RANK = 1 && export INAGG_MPI_MIN_BYTES=5; exec "$@"', "sh"]
    run = mpi(tmp_path, 2, *command, BIN / "mpi-collectives", "errors")
    assert run.status == 0 and "inagg: all is left to MPI: the ranks' INAGG_ variables differ" in run.error


def test_no_job_number(tmp_path):
    """All goes on by MPI, and the report says so."""
    run = mpi(tmp_path, 2, BIN / "mpi-collectives", "many", environment={"INAGG_MPI_JOBS": 1})
    assert run.status == 0 and run.report["left"]["no job number left: raise INAGG_MPI_JOBS"] > 0


def test_no_switch(tmp_path):
    run = mpi(tmp_path, 2, BIN / "mpi-collectives", "errors", environment={"INAGG_SWITCH": "10.77.0.99", "INAGG_TIMEOUT_MS": 500})
    assert run.status == 0 and run.report["offloaded_calls"] == 0
    assert any("no switch answers" in why for why in run.report["left"])


def errors_after(tmp_path, signal_number, how, mpirun=()):
    """What the other ranks of four print after rank 2 has got a signal, by rank."""
    run = mpi(tmp_path, 4, BIN / "mpi-victim", int(signal_number), 2, how, mpirun=mpirun, environment={"INAGG_TIMEOUT_MS": 2000})
    return {line["rank"]: line for line in run.json("mpirun")}, run


@pytest.mark.parametrize("signal_number, how", [
    (signal.SIGKILL, "world"),
    *[pytest.param(number, how, marks=pytest.mark.full)
      for number, how in [(signal.SIGSTOP, "world"), (signal.SIGKILL, "started"), (signal.SIGSTOP, "started")]]])
def test_rank_that_dies(tmp_path, signal_number, how):
    recovery = ["--enable-recovery"] if signal_number == signal.SIGKILL else []
    errors, _ = errors_after(tmp_path, signal_number, how, recovery)
    assert sorted(errors) == [0, 1, 3]
    for line in errors.values():
        assert line["error"].endswith("waits for rank 2") and "ranks of MPI_COMM_WORLD" in line["error"]
        assert line["seconds"] < 3


def test_rank_that_dies_in_a_half(tmp_path):
    """Its number there is meant, and the others notice nothing."""
    errors, _ = errors_after(tmp_path, signal.SIGSTOP, "half")
    assert errors[0]["error"].endswith("waits for rank 1")
    assert errors[1]["error"] == errors[3]["error"] == "none"


@pytest.mark.full
def test_error_that_is_fatal(tmp_path):
    """MPI_ERRORS_ARE_FATAL, the default, ends the program with the text."""
    errors, run = errors_after(tmp_path, signal.SIGSTOP, "fatal")
    assert not errors and run.status and "waits for rank 2" in run.error
