# SPDX-License-Identifier: BSD-2-Clause
"""Short TCP flows among the hosts of an inagg-netns run: one process a host, beside its rank.

Run as a program it is one host's share, with arguments SECONDS and FLOWS (that it sends in a second). It prints a line once it answers
others, starts to send when a line comes in, prints how many milliseconds each of its flows took, and answers until it is ended.
"""

import asyncio
import json
import math
import os
import random
import subprocess
import sys
import time

SMALLEST, LARGEST = 10_000, 500_000  # bytes of a flow, between them evenly by logarithm
MEAN = (LARGEST - SMALLEST) / math.log(LARGEST / SMALLEST)
PORT = 7000


class ShortFlows:
    """The process, from its rank."""

    def __init__(self, seconds, per_second):
        self.process = subprocess.Popen([sys.executable, __file__, str(seconds), str(per_second)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def start(self):
        """Once all answer."""
        print(file=self.process.stdin, flush=True)

    def completions(self):
        """Waits for them, in milliseconds."""
        return json.loads(self.process.stdout.readline())

    def end(self):
        """Once nobody sends any more."""
        self.process.terminate()
        self.process.communicate()


async def serve(reader, writer):
    left = int(await reader.readline())
    while left > 0:
        left -= len(await reader.read(1 << 16))
    writer.write(b"!")
    await writer.drain()
    writer.close()


async def send(address, count):
    """Milliseconds from the first packet of a flow until all of it is there."""
    begin = time.monotonic()
    reader, writer = await asyncio.open_connection(address, PORT)
    writer.write(b"%d\n" % count + bytes(count))
    await reader.readexactly(1)
    writer.close()
    return (time.monotonic() - begin) * 1e3


def arrivals(rank, size, seconds, per_second):
    """Of one host's flows: when, where to and how much. Always the same."""
    chance, when = random.Random(rank), 0
    others = [f"10.77.0.{10 + other}" for other in range(size) if other != rank]
    while (when := when + chance.expovariate(per_second)) < seconds:
        yield when, chance.choice(others), int(SMALLEST * (LARGEST / SMALLEST) ** chance.random())


async def main():
    rank, size = int(os.environ["INAGG_RANK"]), int(os.environ["INAGG_SIZE"])
    server = await asyncio.start_server(serve, os.environ["WORKER_ADDRESS"], PORT)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    begin, flows = time.monotonic(), []
    for when, address, count in arrivals(rank, size, float(sys.argv[1]), float(sys.argv[2])):
        await asyncio.sleep(max(0, begin + when - time.monotonic()))
        flows.append(asyncio.create_task(send(address, count)))
    print(json.dumps(await asyncio.gather(*flows)), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
