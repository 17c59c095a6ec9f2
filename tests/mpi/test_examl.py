# SPDX-License-Identifier: BSD-2-Clause
"""ExaML, which finds phylogenetic trees: each step is a few sums of double over all ranks, some ten thousand a second."""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mpi import mpi

DATA = Path("/usr/share/doc/examl/testData")  # 49 species, 1200 bases of four genes
PROGRAM = Path("/usr/lib/examl/bin/examl-sse3")  # what `examl` starts by an mpirun of its own; any amd64 can
RANKS = 4


@pytest.fixture(scope="session")
def alignment(tmp_path_factory):
    """The example of the package, in ExaML's format."""
    if not PROGRAM.exists():
        pytest.skip("no ExaML: install examl")
    folder = tmp_path_factory.mktemp("examl")
    (folder / "49").write_bytes(gzip.decompress((DATA / "49.gz").read_bytes()))
    subprocess.run(["parse-examl", "-s", "49", "-q", DATA / "49.model", "-m", "DNA", "-n", "49"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)
    return folder / "49.binary"


def evaluate(tmp_path, alignment, **options):
    """Fit model and branch lengths: the likelihood, the tree without its lengths, these lengths, the seconds, the run."""
    folder = tmp_path / "out"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run = mpi(tmp_path, RANKS, PROGRAM, "-s", alignment, "-t", DATA / "49.tree", "-m", "GAMMA", "-f", "e", "-n", "T", "-w", f"{folder}/",
              limit=300, **options)
    assert run.status == 0
    info, tree = (folder / "ExaML_info.T").read_text(), (folder / "ExaML_TreeFile.T").read_text()
    likelihood, seconds = (float(re.search(rf"^{text}: (\S+)", info, re.M)[1])
                           for text in ("Likelihood tree 0", "Overall Time for evaluating the likelihood of 1 trees"))
    lengths = [float(length) for length in re.findall(r":([\d.]+)", tree)]
    return likelihood, re.sub(r":[\d.]+", "", tree), lengths, seconds, run


def test_same_tree(tmp_path, alignment):
    likelihood, tree, lengths, seconds, _ = evaluate(tmp_path, alignment, preload=False)
    with_likelihood, with_tree, with_lengths, with_seconds, run = evaluate(tmp_path, alignment)
    run.check_offload()
    print(f"ExaML: {seconds:.1f} s by MPI, {with_seconds:.1f} s by the switch")
    assert with_likelihood == pytest.approx(likelihood, rel=1e-9)
    assert with_tree == tree
    assert with_lengths == pytest.approx(lengths, rel=1e-3, abs=1e-6)
