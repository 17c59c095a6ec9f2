# SPDX-License-Identifier: BSD-2-Clause
"""Each rank asks each other one for its number, over TCP. All have answers, or the exit status is not 0.

Arguments: the ranks' addresses.
"""

import os
import socket
import sys
import threading
import time

PORT, DEADLINE = 9001, 60.0


def answer(listener, count, number):
    for _ in range(count):
        with listener.accept()[0] as asked:
            asked.sendall(bytes([number]))


def ask(address, end):
    """The number of the rank there, which may not listen yet."""
    while True:
        try:
            with socket.create_connection((address, PORT), max(end - time.monotonic(), 0.001)) as asked:
                return asked.recv(1)[0]
        except ConnectionRefusedError:
            time.sleep(0.05)


def main():
    number, addresses, end = int(os.environ["RANK"]), sys.argv[1:], time.monotonic() + DEADLINE
    listener = socket.create_server(("", PORT), backlog=len(addresses))
    listener.settimeout(DEADLINE)
    server = threading.Thread(target=answer, args=(listener, len(addresses) - 1, number))
    server.start()
    others = [peer for peer in range(len(addresses)) if peer != number]
    assert [ask(addresses[peer], end) for peer in others] == others
    server.join()


if __name__ == "__main__":
    main()
