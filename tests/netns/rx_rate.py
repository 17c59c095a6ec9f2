# SPDX-License-Identifier: BSD-2-Clause
"""Prints as JSON how many bytes eth0 received, and in how many seconds, from the first to a quiet second."""

import json
import time

DEADLINE = 60.0


def received():
    with open("/proc/self/net/dev") as table:
        return next(int(line.split()[1]) for line in table if line.strip().startswith("eth0:"))


def main():
    base, started = received(), time.monotonic()
    before, total, first, last = started, 0, None, None
    while time.monotonic() - (last or started) < (1.0 if last else DEADLINE):
        time.sleep(0.005)
        now, seen = time.monotonic(), received() - base
        if seen > total + 5000 or (first and seen > total):  # neighbour discovery is smaller
            first, last, total = first or before, now, seen
        before = now
    print(json.dumps({"bytes": total, "seconds": (last or 0) - (first or 0)}))


main()
