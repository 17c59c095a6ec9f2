# SPDX-License-Identifier: BSD-2-Clause
"""Sends packets that a running job must not take, from a host that is not in it. Arguments: JOB, COUNT of each.

Prints the numbers of the reasons (include/inagg/reason.h) for which the switch must drop them, as JSON.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import time

PORT = 12000
FIELDS = struct.Struct("!BBHHHIIBBHHHQHHHBBHHI16s")  # struct inagg_hdr
VICTIM = "10.77.0.10"  # rank 0's host
LENGTH, VERSION, CHECKSUM, TYPE, JOB, RANK, WRONG_PORT, ADDRESS = 1, 2, 3, 5, 6, 7, 8, 9
SLOT, GENERATION, ELEMENTS, DTYPE = 10, 11, 14, 15


def internet_checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def sealed(*fields, damage=0):
    """A header: its checksum, behind these fields, fits, but for the damage."""
    def header(checksum):
        return FIELDS.pack(*fields, checksum, 0, bytes(16))

    return header(internet_checksum(header(0)) ^ damage)


def contribution(job, generation, version=1, kind=1, dtype=1, slot=0, rank=0, elements=32, payload=128, damage=0):
    return sealed(version << 4 | kind, dtype << 4, 0, job, generation, 0, slot, 0, 0, rank, 1, 2, 1 << rank & 0xff,
                  0, 0, 0, 0, 0, elements, damage=damage) + b"\x11" * payload


def running_generation(job):
    """Generation of the job once both its ranks have joined."""
    for _ in range(300):
        listed = json.loads(subprocess.run(["inaggctl", "--json", "job", "list"], capture_output=True, text=True,
                                           check=True).stdout)
        found = [entry["generation"] for entry in listed if entry["job"] == job and entry["joined"] == 2]
        if found:
            return found[0]
        time.sleep(0.05)
    sys.exit("intruder: the job does not start")


def in_the_switchs_name(packet, port):
    """An IPv4 datagram to rank 0 with the switch's address as its source."""
    udp = struct.pack("!HHHH", PORT, port, 8 + len(packet), 0) + packet

    def header(checksum):
        return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, socket.IPPROTO_UDP, checksum,
                           socket.inet_aton(os.environ["INAGG_SWITCH"]), socket.inet_aton(VICTIM))

    return header(internet_checksum(header(0))) + udp


def receive_port(job):
    """Rank 0's."""
    shown = subprocess.run(["inaggctl", "--json", "job", "show", str(job)], capture_output=True, text=True, check=True)
    return json.loads(shown.stdout)["members"][0]["receive_port"]


def main():
    job, count = int(sys.argv[1]), int(sys.argv[2])
    generation = running_generation(job)
    packets = {
        LENGTH: contribution(job, generation, payload=64),
        VERSION: contribution(job, generation, version=2),
        CHECKSUM: contribution(job, generation, damage=0x100),
        TYPE: contribution(job, generation, kind=15),
        JOB: contribution(job + 1, generation),
        RANK: contribution(job, generation, rank=2),
        WRONG_PORT: contribution(job, generation),
        SLOT: contribution(job, generation, slot=1 << 20),
        GENERATION: contribution(job, generation ^ 1),
        ELEMENTS: contribution(job, generation, elements=33, payload=132),
        DTYPE: contribution(job, generation, dtype=9),
    }
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    forger = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    port = receive_port(job)
    for slot in range(count):
        result = contribution(job, generation, kind=6, slot=slot, rank=0)
        forger.sendto(in_the_switchs_name(result, port), (VICTIM, 0))
        for packet in packets.values():
            sender.sendto(packet, (os.environ["INAGG_SWITCH"], PORT))
        time.sleep(0.005)
    print(json.dumps({"reasons": [*packets, ADDRESS]}))


if __name__ == "__main__":
    main()
