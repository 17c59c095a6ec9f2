# SPDX-License-Identifier: BSD-2-Clause
"""Congestion control of atp: marks of routers and of the switch's own virtual queues slow the ranks down."""

import pytest

from allreduce import allreduce, objects
from netns import BIN, netns

BULK = ("-b", "1M", "-e", "1M", "-n", 3, "-w", 1)
STATUS = "{} && if test $INAGG_RANK = 0; then inaggctl --bpffs /sys/fs/bpf/inagg-leaf0 --json status; fi"


def rack(tmp_path, *options, **more):
    return allreduce(tmp_path, 3, *BULK, algorithm="atp", options=("--topology", "rack", *options), server=True,
                     restarts=True, **more)


@pytest.mark.parametrize("control", [1, 0])
def test_ranks_heed_marked_packets(tmp_path, control):
    result = rack(tmp_path, "--rate", "200mbit", "--ecn", "1ms",
                  environment={"INAGG_CONGESTION_CONTROL": str(control)})
    assert (result.counters["cuts"] > 0) == bool(control)


def test_the_switch_marks_for_its_own_ports(tmp_path):
    result = rack(tmp_path, "--inaggd-arg", "--port-rate", "--inaggd-arg", "uplink=100mbit", command=STATUS)
    status = next(value for value in objects("\n".join(result.run.lines(0))) if "ports" in value)
    marked = {port["port"]: port["marked"] for port in status["ports"]}
    assert marked["uplink"] > 0 and marked["p0"] is None
    assert result.counters["cuts"] > 0


@pytest.mark.parametrize("options", [(), ("--ipv6",)])
@pytest.mark.parametrize("transport", ["udp", "afxdp"])
def test_every_transport_and_family(tmp_path, transport, options):
    result = rack(tmp_path, "--rate", "200mbit", "--ecn", "1ms", *options, transport=transport)
    assert result.counters["cuts"] > 0


@pytest.mark.parametrize("rate, blamed", [("p9=1gbit", "p9=1gbit"), ("p0=fast", "fast"), ("p0", "PORT=RATE")])
def test_rates_that_cannot_be(tmp_path, rate, blamed):
    run = netns(tmp_path, "--workers", 1, "--inaggd-arg", "--port-rate", "--inaggd-arg", rate, "--", "true")
    assert run.status == 125
    assert "--port-rate" in run.error and blamed in run.error


@pytest.mark.parametrize("options, slots", [((), 64), (("--inaggd-arg=--job-slots=32",), 32)])
def test_jobs_have_what_a_known_link_carries(tmp_path, options, slots):
    run = netns(tmp_path, "--workers", 1, "--inaggd-arg=--port-rate=p0=50mbit", *options, "--", BIN / "inagg-perf", "allreduce",
                "-b", "4K", "-e", "4K")
    assert run.status == 0
    assert f"switchml, {slots}+8 slots" in run.error


def test_a_leaf_says_what_its_links_carry(tmp_path):
    run = netns(tmp_path, "--topology", "leaf-spine", "--leaves", 2, "--spines", 2, "--workers", 2, "--rate", "50mbit",
                "--algorithm", "canary", "--transport", "udp", "--", BIN / "inagg-perf", "allreduce", "-b", "4K", "-e", "4K")
    assert run.status == 0
    assert "canary, 64+8 slots" in run.error


@pytest.mark.parametrize("option, blamed", [
    ("--mark-after=2s", "1us to 1s"), ("--mark-after=soon", "--mark-after soon"), ("--queue-limit=soon", "--queue-limit soon"),
    ("--queue-limit=5ms", "6ms, from where on queues at p0 are too long"), ("--queue-limit=11s", "to 10s")])
def test_queues_that_cannot_be(tmp_path, option, blamed):
    run = netns(tmp_path, "--workers", 1, "--inaggd-arg=--port-rate=p0=20mbit", f"--inaggd-arg={option}", "--", "true")
    assert run.status == 125
    assert blamed in run.error


@pytest.mark.parametrize("options, blamed", [(("--ecn", "1ms"), "--rate"), (("--only-host", 3), "from 0 to 1")])
def test_impairments_that_cannot_be(tmp_path, options, blamed):
    run = netns(tmp_path, "--workers", 2, *options, "--", "true")
    assert run.status == 2
    assert blamed in run.error
