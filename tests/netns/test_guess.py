# SPDX-License-Identifier: BSD-2-Clause
"""Small float sums take one round while their scale stays, and have the same bits as if they never guessed it."""

import os

import pytest

from allreduce import TRANSPORTS, server_options
from netns import BUILD, HERE, PYTHON, netns

GUESSING, AGREED_FIRST = 8, 1  # control slots: one is too few for elements, so each sum takes two rounds
BLOCKS = 3                     # of each sum that is counted
PYTHON_FOLDER = HERE.parent.parent / "userspace" / "python"
LIBRARY = {"INAGG_LIBRARY": str(BUILD / "lib" / "libinagg.so.0"),
           "PYTHONPATH": os.pathsep.join([str(PYTHON_FOLDER), os.environ.get("PYTHONPATH", "")])}
FORGETFUL = "while inaggctl slots clear; do echo cleared; sleep 0.02; done"


def ranks(tmp_path, transports=TRANSPORTS, control=GUESSING, algorithm="switchml", options=()):
    """What guess_rank.py printed on each rank."""
    run = netns(tmp_path, "--workers", len(transports), "--algorithm", algorithm, "--root-arg=--job",
                f"--root-arg=1:size={len(transports)},algorithm={algorithm},control={control},elements=352", *options,
                "--", PYTHON, HERE / "guess_rank.py", *transports, environment=LIBRARY)
    assert run.status == 0
    assert FORGETFUL not in options or run.lines("switch").count("cleared") >= 3
    printed = [run.json(rank)[0] for rank in range(len(transports))]
    assert [one["transport"] for one in printed] == list(transports)
    assert len({one["hash"] for one in printed}) == 1
    return printed


@pytest.fixture(scope="module")
def agreed_first(tmp_path_factory):
    return ranks(tmp_path_factory.mktemp("agreed"), 3 * ["udp"], control=AGREED_FIRST)[0]


def test_two_rounds_where_elements_do_not_fit(agreed_first):
    with_infinity = 1 + 1 + BLOCKS + BLOCKS  # the exponents of all and of the finite part, that part, the counts
    assert agreed_first["blocks"] == 24 * [1 + BLOCKS] + [with_infinity] + 5 * [1 + BLOCKS]


def test_one_round_while_the_scale_stays(tmp_path, agreed_first):
    right, wrong = BLOCKS, BLOCKS + BLOCKS
    with_infinity = BLOCKS + 1 + BLOCKS + BLOCKS
    changes = 3 * (4 * [wrong] + 4 * [right])
    for rank in ranks(tmp_path):
        assert rank["blocks"] == changes + [with_infinity] + 3 * [right] + [wrong, right]
        assert rank["hash"] == agreed_first["hash"]


@pytest.mark.parametrize("options", [("--loss", 0.03), ("--dup", 0.05, "--reorder", 0.1),
                                     ("--loss", 0.02, "--also-in-switch", FORGETFUL)])
def test_same_bits_on_bad_links(tmp_path, agreed_first, options):
    assert ranks(tmp_path, options=options)[0]["hash"] == agreed_first["hash"]


@pytest.mark.parametrize("algorithm, topology, server", [
    ("switchml", "two-level", False), ("switchml", "three-level", False), ("switchml", "star", True), ("trio", "star", False),
    ("trio", "two-level", False), ("atp", "rack", True), ("canary", "leaf-spine", False)])
def test_same_bits_wherever_elements_are_added(tmp_path, agreed_first, algorithm, topology, server):
    """Sums that are rounded, as those of real data are; 16-bit floats by ranks instead of switches."""
    options = ("--topology", topology, *(("--leaves", 3) if topology == "leaf-spine" else ()), *(server_options(tmp_path) if server else ()))
    assert ranks(tmp_path, 3 * ["udp"], algorithm=algorithm, options=options)[0]["hash"] == agreed_first["hash"]
