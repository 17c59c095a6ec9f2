# SPDX-License-Identifier: BSD-2-Clause
"""Sums of 64-bit elements are exact whatever carries them, on links that lose frames."""

from pathlib import Path

import pytest

from netns import PYTHON, netns

RANK = Path(__file__).with_name("wide_rank.py")


@pytest.mark.parametrize("algorithm, transport", [
    ("switchml", "udp"), ("switchml", "afxdp"), ("switchml", "xdp"), ("panama", "udp"), ("canary", "udp")])
def test_exact(tmp_path, algorithm, transport):
    run = netns(tmp_path, "--workers", 3, "--loss", 0.02, "--algorithm", algorithm, "--transport", transport, "--", PYTHON, "-B", RANK)
    assert run.status == 0
    assert [run.lines(rank) for rank in range(3)] == [[transport]] * 3


def test_exact_with_a_ring_for_few(tmp_path):
    run = netns(tmp_path, "--workers", 3, "--", PYTHON, "-B", RANK, environment={"INAGG_AGGREGATE_FROM": "8K"})
    assert run.status == 0
