# SPDX-License-Identifier: BSD-2-Clause
"""Rank 0 sends numbered datagrams to rank 1, which prints what came of them as JSON.

Arguments: COUNT, GAP (seconds between datagrams).
"""

import json
import os
import socket
import struct
import sys
import time

FILL = b"x" * 1000
HEAD = struct.Struct("!Id")
PORT = 9000
READY, QUIET, DEADLINE = b"ready", 1.0, 60.0


def open_socket():
    address = os.environ["WORKER_ADDRESS"]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    opened.bind((address, PORT))
    return opened


def send(endpoint, count, gap):
    endpoint.settimeout(DEADLINE)
    message, receiver = None, None
    while message != READY:
        message, receiver = endpoint.recvfrom(2000)
    for number in range(count):
        endpoint.sendto(HEAD.pack(number, time.monotonic()) + FILL, receiver)
        if gap:
            time.sleep(gap)


def receive(endpoint):
    """Announce ourselves until the first datagram, then listen until it is quiet."""
    numbers, delays, damaged, first, last = [], [], 0, None, None
    endpoint.settimeout(0.1)
    started = time.monotonic()
    while time.monotonic() - (last or started) < (QUIET if last else DEADLINE):
        try:
            message = endpoint.recv(2000)
        except TimeoutError:
            if not last:
                endpoint.sendto(READY, (os.environ["MASTER_ADDR"], PORT))
            continue
        last = time.monotonic()
        first = first or last
        if len(message) != HEAD.size + len(FILL) or message[HEAD.size:] != FILL:
            damaged += 1
            continue
        number, sent = HEAD.unpack_from(message)
        numbers.append(number)
        delays.append(last - sent)
    print(json.dumps({
        "received": len(numbers),
        "unique": len(set(numbers)),
        "damaged": damaged,
        "overtaken": sum(a > b for a, b in zip(numbers, numbers[1:])),
        "shortest_delay": min(delays, default=None),
        "seconds": (last or 0) - (first or 0),
        "bytes": len(numbers) * (len(FILL) + HEAD.size),
    }))


if __name__ == "__main__":
    socket_ = open_socket()
    if os.environ["RANK"] == "0":
        send(socket_, int(sys.argv[1]), float(sys.argv[2]))
    elif os.environ["RANK"] == "1":
        receive(socket_)
