#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The sum of four floats over all ranks, through the switch: allreduce.py SWITCH JOB RANK SIZE"""

import array
import ctypes
import ipaddress
import os
import socket
import struct
import sys

AF_INAGG = 25
libc = ctypes.CDLL(None, use_errno=True)


def inagg_address(address, port=0, job=0, rank=0, size=0):
    """struct sockaddr_inagg of <inagg/uapi.h>."""
    ip = ipaddress.ip_address(address)
    packed = ip.packed if ip.version == 6 else bytes(10) + b"\xff\xff" + ip.packed
    return struct.pack("=H2sHHHHI16s", AF_INAGG, port.to_bytes(2, "big"), job, rank, size, 0, 0, packed)


def call(function, sock, address):
    """bind() or connect(): Python's own know only the families it was built with."""
    if function(sock.fileno(), address, len(address)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


switch, job, rank, size = sys.argv[1], *map(int, sys.argv[2:])
with socket.socket(AF_INAGG, socket.SOCK_SEQPACKET) as sock:
    call(libc.bind, sock, inagg_address("::", rank=rank))
    call(libc.connect, sock, inagg_address(switch, job=job, size=size))
    sock.sendall(array.array("f", [1, 2.5, -3, rank]))
    print(*array.array("f", sock.recv(16)))
