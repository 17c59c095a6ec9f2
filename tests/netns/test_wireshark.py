# SPDX-License-Identifier: BSD-2-Clause
"""The Wireshark dissector, by tshark, on what runs left on their ranks' links."""

import collections
import os
import shutil
import struct
import subprocess

import pytest

from netns import BIN, HERE, netns

PLUGIN = HERE.parent.parent / "tools/wireshark/inagg.lua"
CONTRIBUTION, REQUEST, JOIN, LEAVE, RESULT, CONFIG, REFUSED, PARTIAL = "1", "2", "4", "5", "6", "8", "9", "10"
PCAP_HEADER, PCAP_RECORD, UDP_END = 24, 16, 14 + 20 + 8

pytestmark = pytest.mark.skipif(not shutil.which("tshark") or not shutil.which("dumpcap"),
                                reason="there is no tshark: run `make deps`")


def capture(tmp_path, workers, *command, options=(), status=0):
    """One capture a rank, of a run over UDP sockets: what AF_XDP takes is not seen by dumpcap."""
    run = netns(tmp_path, "--workers", workers, "--transport", "udp", *options, "--", HERE / "captured", tmp_path, *command)
    assert run.status == status
    return [tmp_path / f"{rank}.pcap" for rank in range(workers)]


def tshark(path, *arguments):
    """What tshark prints about a capture. -2: a contribution names the answer that comes after it."""
    done = subprocess.run(["tshark", "-2", "-n", "-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-X", f"lua_script:{PLUGIN}",
                           "-r", path, *arguments], text=True, capture_output=True,
                          timeout=100, env={**os.environ, "HOME": str(path.parent)})
    assert done.returncode == 0 and "Lua" not in done.stderr, done.stderr
    return done.stdout


def fields(path, *names, where=None):
    """The fields of each packet, as a dictionary of text; several of a name have commas between them."""
    columns = [argument for name in names for argument in ("-e", name)]
    text = tshark(path, *(("-Y", where) if where else ()), "-T", "fields", "-E", "separator=;", *columns)
    return [dict(zip(names, line.split(";"), strict=True)) for line in text.splitlines()]


def perf(dtype, *others):
    return (BIN / "inagg-perf", "allreduce", "--count", 1000, "-n", 1, "-w", 0, "-d", dtype, "--check", "--check-iterations", 1, *others)


def intact(path, *names):
    """The fields of a run's packets, with which nothing is wrong."""
    packets = fields(path, "inagg.type", "inagg.checksum.good", "_ws.expert.message", "_ws.malformed", *names)
    assert not [packet for packet in packets if packet["inagg.checksum.good"] not in ("1", "True")
                or packet["_ws.expert.message"] or packet["_ws.malformed"]]
    return packets


def sums(captures, value):
    """For each data block: (lists of the ranks' contributions, list of the sum, exponent). Control blocks may be guesses, which
    need not add up."""
    blocks = collections.defaultdict(lambda: ({}, {}, {}))
    slots = fields(captures[0], "inagg.config.slots", where="inagg.config.slots")[0]["inagg.config.slots"]
    for rank, path in enumerate(captures):
        for packet in fields(path, "inagg.type", "inagg.slot", "inagg.block", "inagg.scale", value,
                             where=f"{value} && inagg.slot < {slots} && (inagg.type == {CONTRIBUTION} || inagg.type == {RESULT})"):
            contributions, results, scales = blocks[packet["inagg.slot"], packet["inagg.block"]]
            numbers = [float(number) for number in packet[value].split(",")]
            (contributions if packet["inagg.type"] == CONTRIBUTION else results)[rank] = numbers
            scales[rank] = int(packet["inagg.scale"])
    for contributions, results, scales in blocks.values():
        assert sorted(contributions) == sorted(results) == list(range(len(captures)))
        assert all(result == results[0] for result in results.values()) and len(set(scales.values())) == 1
        yield list(contributions.values()), results[0], scales[0]


# Numbers: the contributions that tshark shows add up to the results that it shows.


def test_integers_add_up(tmp_path):
    blocks = list(sums(capture(tmp_path, 3, *perf("int32")), "inagg.integer"))
    assert len(blocks) >= 3
    assert any(any(result) for _, result, _ in blocks)
    for contributions, result, _ in blocks:
        assert all((sum(numbers) - total) % 2**32 == 0 for *numbers, total in zip(*contributions, result, strict=True))


def turn(path):
    """Makes a capture one of a job whose switch adds big-endian elements; checksums stay as they were."""
    data = bytearray(path.read_bytes())
    at = PCAP_HEADER
    while at < len(data):
        frame = at + PCAP_RECORD
        end = frame + struct.unpack_from("<I", data, at + 8)[0]
        at, header = end, frame + UDP_END
        if data[frame + 12:frame + 14] != b"\x08\x00" or data[frame + 23] != 17:
            continue
        if data[header] & 15 == int(CONFIG):
            data[header + 64 + 21] |= 0x80
        elif data[header] & 15 in (int(CONTRIBUTION), int(RESULT)):
            for word in range(header + 64, end, 4):
                data[word:word + 4] = data[word:word + 4][::-1]
    path.write_bytes(data)
    return path


def test_big_endian_integers_add_up(tmp_path):
    captures = capture(tmp_path, 3, *perf("int32"))
    before = list(sums(captures, "inagg.integer"))
    assert list(sums([turn(path) for path in captures], "inagg.integer")) == before


@pytest.mark.parametrize("dtype, precision", [("float32", 2**-23), ("float16", 2**-10), ("bfloat16", 2**-7)])
def test_floats_add_up(tmp_path, dtype, precision):
    blocks = list(sums(capture(tmp_path, 3, *perf(dtype)), "inagg.value"))
    assert len(blocks) >= 2 and any(any(result) for _, result, _ in blocks)
    for contributions, result, exponent in blocks:
        bound = 2.0 ** (exponent - 126)
        assert all(abs(number) < bound for numbers in contributions for number in numbers)
        tolerance = bound * 2**-26 + max(map(abs, result)) * precision
        assert all(abs(sum(numbers) - total) <= tolerance for *numbers, total in zip(*contributions, result, strict=True))


def float32(number):
    """tshark shows 15 digits of it."""
    return struct.unpack("f", struct.pack("f", number))[0]


def test_floats_of_panama_add_up(tmp_path):
    """Of such that need no rounding: inagg-perf compares with the exact sum."""
    blocks = list(sums(capture(tmp_path, 3, *perf("float32"), options=("--algorithm", "panama")), "inagg.value"))
    assert len(blocks) >= 2 and any(any(result) for _, result, _ in blocks)
    for contributions, result, _ in blocks:
        for numbers in zip(*contributions, result, strict=True):
            *addends, total = map(float32, numbers)
            assert sum(addends) == total


# Packets

IN_EVERY_RUN = {JOIN, CONFIG, CONTRIBUTION, RESULT, LEAVE}


@pytest.mark.parametrize("workers, options, types", [
    (2, (), IN_EVERY_RUN),
    (2, ("--ipv6", "--checked"), IN_EVERY_RUN),
    (3, ("--algorithm", "panama"), IN_EVERY_RUN),
    (2, ("--algorithm", "atp", "--switch", "inagg-ps"), IN_EVERY_RUN),
    (3, ("--algorithm", "canary"), IN_EVERY_RUN | {PARTIAL}),
])
def test_a_run_from_join_to_leave(tmp_path, workers, options, types):
    path = capture(tmp_path, workers, *perf("float32"), options=options)[0]
    packets = intact(path, "inagg.payload_checksum.good", "inagg.job", "inagg.contributor", "inagg.join.nonce", "inagg.config.nonce",
                     "udp.dstport")
    assert types <= {packet["inagg.type"] for packet in packets}
    checked = [packet["inagg.payload_checksum.good"] in ("1", "True") for packet in packets]
    if "--checked" in options:
        assert all(checked)
    else:
        assert {packet["inagg.type"] for packet, good in zip(packets, checked) if good} <= {JOIN, LEAVE, CONFIG}
    assert {packet["inagg.job"] for packet in packets} == {"1"}
    # A leader of canary's tells the switch other ranks.
    assert {packet["inagg.contributor"] for packet in packets if packet["inagg.type"] == RESULT
            and packet["udp.dstport"] != "12000"} == {",".join(map(str, range(workers)))}
    assert {packet["inagg.join.nonce"] or packet["inagg.config.nonce"] for packet in packets
            if packet["inagg.type"] in (JOIN, CONFIG, LEAVE)} == {packets[0]["inagg.join.nonce"]}


def test_results_without_a_straggler_say_so(tmp_path):
    command = (BIN / "inagg-perf", "allreduce", "--count", 1000, "-n", 4, "-w", 0, "--straggle", "2:200ms:2")
    early, _, late = capture(tmp_path, 3, *command, options=("--algorithm", "trio", "--expiry", "10ms"))
    for path in early, late:
        packets = intact(path, "inagg.contributor", "inagg.flags.degraded", "inagg.count")
        assert IN_EVERY_RUN <= {packet["inagg.type"] for packet in packets}
        results = {(packet["inagg.contributor"], packet["inagg.count"], packet["inagg.flags.degraded"] in ("1", "True"))
                   for packet in packets if packet["inagg.type"] == RESULT}
        assert {("0,1", "2", True), ("0,1,2", "3", False)} <= results
        assert all(degraded == (who != "0,1,2") for who, _, degraded in results)


def test_partial_sums_on_the_link_to_a_trees_root_add_up(tmp_path):
    """The root is a server: what XDP takes is not seen by dumpcap."""
    path = tmp_path / "root.pcap"
    dumpcap = f"exec dumpcap -q -P -p -i br0 -f 'udp port 12000' -w {path}"
    run = netns(tmp_path, "--workers", 4, "--transport", "udp", "--topology", "two-level", "--switch", "inagg-ps",
                "--also-in-switch", dumpcap, "--",
                "sh", "-c", f'until [ -s {path} ]; do sleep 0.05; done; "$@"; sleep 0.5', "sh", *perf("int32"))
    assert run.status == 0
    packets = intact(path, "inagg.slot", "inagg.block", "inagg.contributor", "inagg.count", "inagg.integer", "inagg.join.flags.tree")
    types = {packet["inagg.type"] for packet in packets}
    assert {JOIN, CONFIG, PARTIAL, RESULT, LEAVE} <= types and CONTRIBUTION not in types
    assert all(packet["inagg.join.flags.tree"] in ("1", "True") for packet in packets if packet["inagg.type"] == JOIN)
    blocks = collections.defaultdict(dict)
    for packet in packets:
        if packet["inagg.type"] in (PARTIAL, RESULT) and packet["inagg.integer"]:
            blocks[packet["inagg.slot"], packet["inagg.block"]][packet["inagg.contributor"]] = packet["inagg.integer"].split(",")
    assert len(blocks) >= 3
    for block in blocks.values():
        assert set(block) == {"0,1", "2,3", "0,1,2,3"}
        assert all((int(left) + int(right) - int(both)) % 2**32 == 0
                   for left, right, both in zip(block["0,1"], block["2,3"], block["0,1,2,3"], strict=True))


def test_results_and_their_contributions_know_each_other(tmp_path):
    path = capture(tmp_path, 2, *perf("int32"))[0]
    names = ("frame.number", "inagg.type", "inagg.slot", "inagg.block", "inagg.contribution_in", "inagg.answer_in", "inagg.time")
    packets = {packet["frame.number"]: packet for packet in fields(path, *names)}
    results = [packet for packet in packets.values() if packet["inagg.type"] == RESULT]
    assert results
    for result in results:
        contribution = packets[result["inagg.contribution_in"]]
        assert contribution["inagg.type"] == CONTRIBUTION and contribution["inagg.answer_in"] in packets
        assert all(contribution[name] == result[name] for name in ("inagg.slot", "inagg.block"))
        assert 0 < float(result["inagg.time"]) < 100


def test_a_refusal_says_why(tmp_path):
    command = f'exec "{BIN}/inagg-perf" barrier -n 1 --size $((2 + RANK)) --timeout 4000'
    run = netns(tmp_path, "--workers", 2, "--transport", "udp", "--", HERE / "captured", tmp_path, "sh", "-c", command)
    assert run.status != 0
    refused = [line for rank in range(2) for line in tshark(tmp_path / f"{rank}.pcap", "-Y", "inagg.reason == 20").splitlines()]
    assert refused and all("REFUSED job 1" in line and "job has another number of ranks" in line for line in refused)


def test_a_refusal_says_who_refuses_above(tmp_path):
    """Both racks' switches pass on what the root says of a job of two sizes."""
    command = f'exec "{BIN}/inagg-perf" barrier -n 1 --size $((2 + RANK)) --timeout 4000'
    run = netns(tmp_path, "--workers", 2, "--topology", "two-level", "--transport", "udp", "--", HERE / "captured", tmp_path, "sh", "-c", command)
    assert run.status != 0
    refused = "".join(tshark(tmp_path / f"{rank}.pcap", "-Y", "inagg.reason == 20", "-O", "inagg") for rank in range(2))
    assert "REFUSED job 1" in refused and "job has another number of ranks" in refused
    assert "(10.77.0.1)" in refused and refused.count(" = level: 1") == refused.count("Refusal") > 0


# Packets that are not as they should be


def changed(path, kind, offset, value):
    """A copy of the first packet of a type that has elements, with another byte at this offset from the header's start; as
    tshark shows it."""
    data, end, packet = path.read_bytes(), PCAP_HEADER, b""
    while len(packet) < 200 or packet[PCAP_RECORD + UDP_END] & 0xf != int(kind):
        at, end = end, end + PCAP_RECORD + struct.unpack_from("=I", data, end + 8)[0]
        packet = bytearray(data[at:end])
    assert packet[PCAP_RECORD + UDP_END + offset] != value
    packet[PCAP_RECORD + UDP_END + offset] = value
    copy = path.with_name("changed.pcap")
    copy.write_bytes(data[:PCAP_HEADER] + packet)
    return fields(copy, "_ws.col.Protocol", "_ws.expert.message")[0]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    return capture(tmp_path_factory.mktemp("checked"), 2, *perf("int32"), options=("--checked",))[0]


@pytest.mark.parametrize("offset, value, messages", [
    (8, 0xee, {"header checksum is wrong", "payload checksum is wrong"}),
    (41, 0x20, {"header checksum is wrong", "payload checksum is wrong", "length does not match the header"}),
    (42, 0xee, {"header checksum is wrong"}),
    (44, 0xee, {"header checksum is wrong", "payload checksum is wrong"}),
    (100, 0xee, {"payload checksum is wrong"}),
    (0, 0x1f, {"unknown type", "header checksum is wrong", "payload checksum is wrong"}),
])
def test_damage_is_shown(checked, offset, value, messages):
    shown = changed(checked, CONTRIBUTION, offset, value)
    assert shown["_ws.col.Protocol"] == "inagg" and set(shown["_ws.expert.message"].split(",")) == messages


def test_what_is_not_inagg_is_left_alone(checked):
    assert changed(checked, CONTRIBUTION, 0, 0x41) == {"_ws.col.Protocol": "UDP", "_ws.expert.message": ""}
