# SPDX-License-Identifier: BSD-2-Clause
"""A rank of a canary job of six in which the fourth asks the last two for blocks that they lead, again and again. Argument: COUNT of
questions.

They answer each by WAIT. Who asks prints, as JSON, how many answers came.
"""

import json
import os
import socket
import sys
import time

from canary_rank import join
from intruder import FIELDS, PORT, sealed

REQUEST, WAIT = 2, 7
LEADERS, ASKS = (4, 5), 3  # by both ports up are there blocks of theirs
TYPE, SLOT, SOURCE, WINDOW_CAP = 0, 6, 9, 14  # in FIELDS
SETTLE = 1.0  # seconds


def bare(kind, job, generation, slot, rank, contributors, size, question):
    return sealed(1 << 4 | kind, 0, 0, job, generation, slot, slot, 0, 0, rank, 0, size, contributors, 0, question, *[0] * 4)


def packets(sock, seconds):
    """Headers of what comes in that time."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            yield FIELDS.unpack_from(sock.recv(2048))
        except TimeoutError:
            return


def main():
    job, rank, size = (int(os.environ[f"INAGG_{name}"]) for name in ("JOB", "RANK", "SIZE"))
    switch = (os.environ["INAGG_SWITCH"].split(",")[0], PORT)
    count = int(sys.argv[1])
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((os.environ["WORKER_ADDRESS"], 0))
    generation, _ = join(sock, switch, job, rank, size, 1 + rank + os.getpid() * 1000)
    time.sleep(SETTLE)
    answers = 0
    if rank in LEADERS:
        for header in packets(sock, SETTLE + count * 0.02):
            if header[TYPE] & 0xf == REQUEST:
                sock.sendto(bare(WAIT, job, generation, header[SLOT], header[SOURCE], 1 << rank, size, header[WINDOW_CAP]), switch)
    elif rank == ASKS:
        for question in range(count):
            sock.sendto(bare(REQUEST, job, generation, LEADERS[question % 2], rank, 1 << rank, size, 1 + question // 2), switch)
            answers += sum(header[TYPE] & 0xf == WAIT for header in packets(sock, 0.01))
        print(json.dumps({"answers": answers}), flush=True)
    time.sleep(SETTLE)


if __name__ == "__main__":
    main()
