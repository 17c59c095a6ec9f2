# SPDX-License-Identifier: BSD-2-Clause
"""A rank of a canary job whose rank 0 says again and again what its block 0 came to. Arguments: COUNT of packets, SECONDS to listen.

Each of the others prints how many of its bytes it has got, as JSON.
"""

import json
import os
import socket
import sys
import time

from canary_rank import join
from intruder import PORT, sealed

RESULT, MULTICAST, INT32 = 6, 4, 1
SO_RCVBUFFORCE, ROOM = 33, 16 << 20  # for all of them: a busy machine may not let the reader run for a while


def result(job, generation, size, elements):
    return sealed(1 << 4 | RESULT, INT32 << 4, MULTICAST, job, generation, 0, 0, 0, 0, 0, size, size, (1 << size) - 1,
                  0, 0, 0, 0, 0, elements) + bytes(4 * elements)


def main():
    job, rank, size = (int(os.environ[f"INAGG_{name}"]) for name in ("JOB", "RANK", "SIZE"))
    switch = (os.environ["INAGG_SWITCH"].split(",")[0], PORT)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
    sock.bind((os.environ["WORKER_ADDRESS"], 0))
    generation, config = join(sock, switch, job, rank, size, 1 + rank + os.getpid() * 1000)
    count, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    if rank == 0:
        time.sleep(0.5)  # the others listen
        said = result(job, generation, size, config[2])
        for sent in range(count):
            sock.sendto(said, switch)
            if sent % 10 == 9:
                time.sleep(0.001)  # links' queues are small
        time.sleep(max(0, end - time.monotonic()))
        return
    heard = 0
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            heard += len(sock.recv(2048))
        except TimeoutError:
            break
    print(json.dumps({"heard": heard}), flush=True)


if __name__ == "__main__":
    main()
