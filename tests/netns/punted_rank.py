# SPDX-License-Identifier: BSD-2-Clause
"""A host that sends its P4 switch frames which look as if the switch itself had sent them to its agent: the JOIN of another host's
rank, by another port, in job 5. Plain, and behind VLAN tags that whoever takes the frame may have removed. Argument: the switch's MAC.
"""

import socket
import struct
import sys
import time

from canary_rank import JOIN, packet
from intruder import PORT, internet_checksum

PUNT, VLAN, QINQ = 0x88b5, 0x8100, 0x88a8
OTHER_PORT, JOB = 2, 5


def datagram(payload, source, target):
    udp = struct.pack("!HHHH", PORT, PORT, 8 + len(payload), 0) + payload
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0xe2, 20 + len(udp), 0, 0x4000, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(target))
    return ip[:10] + struct.pack("!H", internet_checksum(ip)) + ip[12:] + udp


def main():
    switch = bytes.fromhex(sys.argv[1].replace(":", ""))
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind(("eth0", 0))
    join = datagram(packet(JOIN, JOB, 0, 1, 2, 4711, 4242), "10.77.0.11", "10.77.0.1")
    frame = switch + bytes.fromhex("020000000011") + struct.pack("!H", 0x800) + join
    for tags in ((), ((VLAN, 0),), ((VLAN, 9),), ((QINQ, 0),), ((QINQ, 0), (VLAN, 0)), ((VLAN, 0), (VLAN, 0))):
        outer = b"".join(struct.pack("!HH", *tag) for tag in tags)
        for _ in range(3):
            sock.send(switch + bytes(6) + outer + struct.pack("!HH", PUNT, OTHER_PORT) + frame)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
