# SPDX-License-Identifier: BSD-2-Clause
"""Training with torch.distributed, its sums made in the switch."""

import importlib.util
import os
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from allreduce import objects, with_counters
from netns import BUILD, PYTHON, netns, netns_command, processes_of

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "train" / "fashion_mnist.py"
ENVIRONMENT = {"INAGG_LIBRARY": str(BUILD / "lib" / "libinagg.so"), "PYTHONDONTWRITEBYTECODE": "1"}
RANKS = 4
QUICK = ("--epochs", 2, "--images", 4800, "--tests", 1000)


def missing():
    """Why this cannot run here, or \"\"."""
    if not importlib.util.find_spec("torch"):
        return "python3-torch is not installed"
    if not (BUILD / "lib" / "inagg_torch.so").exists():
        return "the PyTorch backend was not built: libtorch-dev or pybind11-dev is not installed"
    if not Path("/usr/share/datasets/fashion-mnist").exists():
        return "dataset-fashion-mnist is not installed"
    return ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def job(number, settings=""):
    """Options that keep a job, and its counters, when its ranks have left."""
    return "--root-arg", "--job", "--root-arg", f"{number}:size={RANKS}{settings}"


def train(tmp_path, backend, *options, arguments=QUICK, settings=""):
    """The report of rank 0, with which the others agree, what the switch has counted, and the run. `settings`: of the job."""
    command = " ".join(map(str, (PYTHON, SCRIPT, "--backend", backend, *arguments)))
    run = netns(tmp_path, "--workers", RANKS, *job(1, settings), *options, "--", *with_counters(command), environment=ENVIRONMENT)
    assert run.status == 0
    reports = [next(value for value in objects("\n".join(run.lines(rank)) + "\n") if "weights" in value)
               for rank in range(RANKS)]
    assert len({report["weights"] for report in reports}) == 1
    switch = next(row for value in objects("\n".join(run.lines(0)) + "\n") if isinstance(value, list)
                  for row in value if row["job"] == 1)
    return reports[0], switch, run


@pytest.fixture(scope="module")
def by_gloo(tmp_path_factory):
    """What inagg must match."""
    report, switch, _ = train(tmp_path_factory.mktemp("gloo"), "gloo")
    assert switch["additions"] == 0
    assert report["accuracy"][-1] > 0.6
    return report


def assert_same_training(report, reference):
    assert len(report["loss"]) == len(reference["loss"])
    assert max(abs(ours - theirs) for ours, theirs in zip(report["loss"], reference["loss"])) < 0.05
    assert report["accuracy"] == pytest.approx(reference["accuracy"], abs=0.03)


def assert_summed_in_the_switch(report, switch, run):
    """Nearly all gradients were, by the switch's counters, and every other sum, by the ranks'."""
    block_bytes = 4 * int(re.search(r"job 1: generation .* (\d+) elements per packet", run.error)[1])
    assert switch["completions"] * block_bytes >= 0.9 * len(report["loss"]) * report["weight_bytes"]
    assert switch["additions"] == RANKS * switch["completions"]
    assert_carried(report)


def assert_carried(report, but=()):
    stats = report["stats"]
    assert [what for what in stats["gloo"] if not what.startswith("all_gather")] == list(but)
    assert stats["carried"]["all_reduce"]["bytes"] >= len(report["loss"]) * report["weight_bytes"]
    assert stats["carried"]["all_reduce"]["calls"] >= 2 * len(report["loss"])  # buckets


@pytest.mark.parametrize("transport, loss", [("xdp", 0), ("udp", 0.01)])
def test_training_is_that_of_gloo(tmp_path, by_gloo, transport, loss):
    report, switch, run = train(tmp_path, "inagg", "--transport", transport, "--loss", loss)
    assert_same_training(report, by_gloo)
    assert_summed_in_the_switch(report, switch, run)
    assert report["stats"]["transport"] == transport
    if loss:
        assert run.links["total"]["dropped"] > 0
        assert report["stats"]["counters"]["retransmissions"] + report["stats"]["counters"]["requests"] > 0


@pytest.mark.parametrize("algorithm, transport, options", [
    ("switchml", "afxdp", ()), ("switchml", "udp", ("--trees", 2, *job(2))), ("switchml", "udp", ("--topology", "two-level")),
    ("trio", "afxdp", ()), ("panama", "udp", ()), ("canary", "udp", ())])
def test_every_algorithm(tmp_path, by_gloo, algorithm, transport, options):
    report, _, _ = train(tmp_path, "inagg", "--algorithm", algorithm, "--transport", transport, "--loss", 0.001, *options,
                         settings=f",algorithm={algorithm}")
    assert_same_training(report, by_gloo)
    assert_carried(report, but=["all_reduce: Long"] if algorithm == "trio" else [])


def test_faster_than_gloo_where_links_are_slow(tmp_path):
    brief = ("--epochs", 1, "--images", 3200, "--tests", 100)
    times = {"gloo": [], "inagg": []}
    for _ in range(3):
        for backend, found in times.items():
            report, _, _ = train(tmp_path, backend, "--transport", "udp", "--rate", "100mbit", arguments=brief)
            found.append(report["iteration_ms"])
    assert statistics.median(times["inagg"]) < 0.9 * statistics.median(times["gloo"]), times


def rank_process(launcher, rank):
    """Process id of a training rank."""
    for pid in processes_of(launcher):
        try:
            about = {name: Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0") for name in ("cmdline", "environ")}
        except OSError:  # it has ended since
            continue
        if str(SCRIPT).encode() in about["cmdline"] and b"RANK=%d" % rank in about["environ"]:
            return pid
    raise AssertionError(f"rank {rank} does not run")


def test_killed_rank(tmp_path):
    """In mid-training, by SIGKILL: every other rank is told who is missing, within the deadline."""
    deadline = 3  # seconds
    command = netns_command("--workers", RANKS, "--transport", "udp", "--grace", "60s", "--timeout", 100, "--",
                            PYTHON, SCRIPT, "--backend", "inagg", "--epochs", 1000, "--images", 640, "--tests", 100)
    lines, killed = [], None
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **ENVIRONMENT, "INAGG_TIMEOUT_MS": str(deadline * 1000)}) as launcher:
        for line in launcher.stderr:
            lines.append((time.monotonic(), line))
            if not killed and "epoch 3" in line:
                killed = time.monotonic()
                os.kill(rank_process(launcher.pid, 2), signal.SIGKILL)
    text = "".join(line for _, line in lines)
    print(text)
    assert launcher.returncode == 128 + signal.SIGKILL
    assert "others still run" not in text
    for rank in (0, 1, 3):
        when, message = next((when, line) for when, line in lines if line.startswith(f"[{rank}] RuntimeError: inagg: "))
        assert re.search(r"job 1: no progress for 3000 ms: .* block \d+ waits for rank 2$", message), message
        assert when - killed < deadline + 3


UNWINDS = """
import torch, torch.distributed as dist, inagg.torch
dist.init_process_group("inagg")
dist.all_reduce(torch.ones(1000))
pair = dist.new_group([0, 1])
try:
    dist.all_reduce(torch.ones(1000), group=pair)
except RuntimeError as error:
    print(error)
dist.all_reduce(torch.ones(1000))
if dist.get_rank() == 1:
    raise ValueError("a mistake of the program")
dist.all_reduce(torch.ones(1000))
"""


def test_errors_that_end_ranks(tmp_path):
    """A job that the switch refuses, a program that fails by itself, a rank that is missed: all end soon, and leave."""
    run = netns(tmp_path, "--workers", 2, "--transport", "udp", "--inaggd-arg=--no-auto-jobs", "--inaggd-arg=--job",
                "--inaggd-arg=1:size=2", "--grace", "20s", "--", PYTHON, "-c", UNWINDS,
                environment={**ENVIRONMENT, "INAGG_TIMEOUT_MS": "2000"})
    assert run.status == 1
    assert "others still run" not in run.error
    for rank in range(2):
        assert re.search(rf"inagg: the switch at \S+ refuses rank {rank} of job 2 \(size 2\): .*"
                         r"\(ranks of a group: they are 0, 1 of all\)", run.lines(rank)[0]), run.lines(rank)
        assert f"LEAVE of rank {rank}" in run.error
    assert "[1] ValueError: a mistake of the program" in run.error
    assert re.search(r"\[0\] RuntimeError: inagg: job 1: .* waits for rank 1$", run.error, re.M)


def test_unchanged_program_by_torchrun(tmp_path):
    """Two hosts with a torchrun each, and a program that asks for gloo."""
    run = netns(tmp_path, "--workers", 2, "--transport", "udp", "--launcher", "torchrun", "--", "torchrun", "-m",
                "inagg.torch", SCRIPT, "--backend", "gloo", "--epochs", 1, "--images", 640, "--tests", 100,
                environment={**ENVIRONMENT, "TMPDIR": str(tmp_path)})
    assert run.status == 0
    reports = [value for line in run.output.splitlines() for value in objects(line[line.find("{"):] + "\n")
               if "weights" in value]
    assert [report["backend"] for report in reports] == ["inagg"] * 2
    assert len({report["weights"] for report in reports}) == 1
    for report in reports:
        assert report["stats"]["carried"]["all_reduce"]["bytes"] >= 10 * report["weight_bytes"]
