# SPDX-License-Identifier: BSD-2-Clause
"""A rank that joins a job with canary, stays and leaves, without any data. Argument: SECONDS to stay.

Meanwhile rank 0 prints each 100 ms, as JSON, what the switches know: time since it joined, the routes of the leaves, and how many
ranks each spine knows and in which generation (null: no such job there).
"""

import json
import os
import socket
import struct
import subprocess
import sys
import time

from intruder import FIELDS, PORT, sealed

JOIN, LEAVE, CONFIG, CANARY = 4, 5, 8, 4
BODY = struct.Struct("!QHHHBBIHHIII4x")  # struct inagg_join
CONFIG_BODY = struct.Struct("!QHHIIBB")  # of struct inagg_config
ELEMENTS = 352
UDP_NO_CHECK6_RX = 102


def packet(kind, job, generation, rank, size, nonce, port):
    header = sealed(1 << 4 | kind, 0, 0, job, generation, 0, 0, 0, 0, rank, 0, size, *[0] * 7)
    return header + BODY.pack(nonce, size, ELEMENTS, port, CANARY, 0, 0, 0, 0, 0, 0, 0)


def join(sock, switch, job, rank, size, nonce):
    """The generation, and what CONFIG says."""
    sock.settimeout(0.1)
    for _ in range(600):
        sock.sendto(packet(JOIN, job, 0, rank, size, nonce, sock.getsockname()[1]), switch)
        try:
            answer = sock.recv(2048)
        except TimeoutError:
            continue
        header, body = FIELDS.unpack_from(answer), CONFIG_BODY.unpack_from(answer, FIELDS.size)
        if header[0] & 0xf != CONFIG:
            sys.exit(f"canary_rank: type {header[0] & 0xf}, reason {header[6]}")
        if body[0] == nonce:
            return header[4], body
    sys.exit("canary_rank: no answer")


def show(switch, job):
    """What `inaggctl job show` says; None: no such job, or no such switch."""
    pins = "inagg" if switch == "spine0" else f"inagg-{switch}"
    done = subprocess.run(["inaggctl", "--bpffs", f"/sys/fs/bpf/{pins}", "--json", "job", "show", str(job)],
                          capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def look(job, leaves, spines):
    return {"routes": [shown and {"up": shown["route"]["up"], "generation": shown["generation"]}
                       for shown in (show(f"leaf{leaf}", job) for leaf in range(leaves))],
            "spines": [shown and {"joined": shown["joined"], "generation": shown["generation"]}
                       for shown in (show(f"spine{spine}", job) for spine in range(spines))]}


def main():
    job, rank, size = (int(os.environ[f"INAGG_{name}"]) for name in ("JOB", "RANK", "SIZE"))
    seconds = float(sys.argv[1]) + (1 if rank else 0)  # the others leave later, so that rank 0 sees them to the end
    leaves, spines = int(os.environ.get("LEAVES", 2)), int(os.environ.get("SPINES", 2))
    address = os.environ["INAGG_SWITCH"].split(",")[0]
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    if ":" in address:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
    sock.bind((os.environ["WORKER_ADDRESS"], 0))
    switch, nonce = (address, PORT), 1 + rank + os.getpid() * 1000
    generation, config = join(sock, switch, job, rank, size, nonce)
    print(json.dumps({"config": {"generation": generation, "size": config[1], "elements": config[2], "algorithm": config[5],
                                 "flags": config[6]}}), flush=True)
    begin = time.monotonic()
    while (now := time.monotonic() - begin) < seconds:
        if rank == 0:
            print(json.dumps({"time": now, **look(job, leaves, spines)}), flush=True)
        time.sleep(0.1)
    for _ in range(3):
        sock.sendto(packet(LEAVE, job, generation, rank, size, nonce, sock.getsockname()[1]), switch)
    if rank == 0:
        time.sleep(2.5)
        print(json.dumps({"end": look(job, leaves, spines)}), flush=True)
    sock.settimeout(0.1)
    try:
        while True:
            answer = FIELDS.unpack_from(sock.recv(2048))
            if answer[0] & 0xf not in (CONFIG,):
                print(json.dumps({"told": answer[6]}), flush=True)
    except TimeoutError:
        pass


if __name__ == "__main__":
    main()
