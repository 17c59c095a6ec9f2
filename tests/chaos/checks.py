# SPDX-License-Identifier: BSD-2-Clause
"""What must hold after a scenario: sums exact or a clean error in time, and nothing left."""

import ctypes
import errno
import glob
import json
import os
import re
import threading
import time
from pathlib import Path

from faults import JOBS, KEPT, fatal, refused

SLACK = 3  # seconds that an error may come after its deadline: two cores and many processes
SYS_BPF, BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID = 321, 11, 12  # amd64
TOKEN = "INAGG_CHAOS"  # in the environment of all that a run starts


# Outcomes


def objects(line):
    """The JSON objects of a line: two processes may have written to the same pipe."""
    decoder, at = json.JSONDecoder(), 0
    while (at := line.find("{", at)) >= 0:
        value, at = decoder.raw_decode(line, at)
        yield value


def reports(run, workers):
    """By rank, what its processes have printed, one after the other."""
    return [[value for line in run.lines(rank) for value in objects(line)] for rank in range(workers)]


def explains(scenario, error):
    """Does the text say which job ended, and why?"""
    fault = fatal(scenario)
    numbers = [job + tree for job in JOBS[:scenario.jobs] for tree in range(scenario.trees)]
    if not re.search(rf"\bjob ({'|'.join(map(str, numbers))})\b", error):
        return False
    if "no switch answers" in error:  # not all had joined yet
        return "all ranks have been started" in error
    if fault.kind.startswith("server"):
        return re.search("the (server or )?switch at|waits for", error) is not None
    if fault.kind == "worker-restarted" and re.search("restarted by another run|ended job", error):
        return True  # the latter where the former was lost
    # canary: a rank may wait for one that waits for the killed one
    named = r"\d+" if scenario.algorithm == "canary" else rf"(\d+, )*{fault.where}\b"
    return re.search(rf"\branks? {named}", error) is not None


def exact(found, jobs):
    """None if so many processes ended with exact sums; else what is wrong."""
    done = [entry for entry in found if "error" not in entry]
    if any(entry.get("wrong") for entry in found):
        return "a sum is wrong"
    if len(done) != jobs or not all(entry["rounds"] for entry in done):
        return f"{len(done)} of {jobs} jobs came to their end"
    return None


def clean(scenario, found, timeout):
    """None if the errors in `found` came in time and say why; else what is wrong."""
    for entry in found:
        if "error" in entry and entry["after"] > timeout + SLACK:
            return f"an error only after {entry['after']} s: {entry['error']}"
        if "error" in entry and not explains(scenario, entry["error"]):
            return f"an error that does not say why: {entry['error']}"
    return None


def ended(found, jobs):
    """None if so many jobs ended with an error; else what is wrong."""
    if any(entry.get("wrong") for entry in found):
        return "a sum is wrong"
    errors = sum("error" in entry for entry in found)
    return None if errors == jobs else f"{errors} of {jobs} jobs ended with an error"


def judge_rank(scenario, rank, found, timeout):
    """None if what `rank` has said is as it must be; else what is wrong."""
    fault, jobs = fatal(scenario), scenario.jobs
    if not fault:
        return next((entry["error"] for entry in found if "error" in entry), None) or exact(found, jobs)
    wrong = clean(scenario, found, timeout)
    if fault.kind == "worker-restarted":
        return wrong or exact(found, jobs)
    if fault.kind == "worker-killed":
        return wrong or (None if str(rank) == fault.where else ended(found, jobs))
    # what joins when the server is back has lost nothing
    survivors = [entry for entry in found if "error" not in entry]
    return wrong or exact(survivors, len(survivors)) or (None if len(found) == jobs else f"{len(found)} of {jobs} jobs have ended")


def judge(scenario, run, timeout):
    """Violations in words; none: all is well."""
    if run.status in (124, 125) or "others still run" in run.error:
        return [f"status {run.status}: the run did not end by itself, or a process died"]
    judged = [(rank, judge_rank(scenario, rank, found, timeout)) for rank, found in enumerate(reports(run, scenario.workers))]
    violations = [f"rank {rank}: {wrong}" for rank, wrong in judged if wrong]
    if not fatal(scenario) and run.status != 0:
        violations.append(f"status {run.status}")
    return violations + kept_jobs(run) + refused(scenario, run)


def kept_jobs(run):
    """Switches that still have jobs though all ranks have left."""
    return [line for line in run.output.splitlines() if line.endswith(KEPT)]


# What is left


def bpf_objects():
    """Programs and maps in the kernel, as (kind, id). To ask for ids opens nothing: who opens a table of programs (bpftool does)
    while it is taken down makes Linux empty it twice, and lose a reference to it for good."""
    found, bpf = set(), ctypes.CDLL(None, use_errno=True).syscall
    for kind, command in (("program", BPF_PROG_GET_NEXT_ID), ("map", BPF_MAP_GET_NEXT_ID)):
        ids = (ctypes.c_uint32 * 4)()  # start_id, next_id, open_flags
        while bpf(SYS_BPF, command, ctypes.byref(ids), ctypes.sizeof(ids)) == 0:
            found.add((kind, ids[1]))
            ids[0] = ids[1]
        if ctypes.get_errno() != errno.ENOENT:
            raise OSError(ctypes.get_errno(), f"ids of {kind}s")
    return found


def files():
    """Places where a run that left its namespaces would write."""
    return {str(path) for pattern in ("run/inagg*", "sys/fs/bpf/inagg*", "run/netns/*") for path in Path("/").glob(pattern)}


def processes(token):
    """Process ids of those that have inherited `token`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{TOKEN}={token}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has just ended
            pass
    return found


def held_by(pids):
    """Programs and maps that these processes have open, as (kind, id)."""
    found = set()
    for pid in pids:
        for path in glob.iglob(f"/proc/{pid}/fdinfo/*"):  # none if the process has ended, unlike Path.glob()
            try:
                found |= {("program" if kind == "prog" else "map", int(number))
                          for kind, number in re.findall(r"^(prog|map)_id:\t(\d+)$", Path(path).read_text(), re.M)}
            except OSError:  # closed meanwhile
                pass
    return found


class Watch(threading.Thread):
    """Learns what the processes of a run have open: on a shared machine others' programs and maps come and go, too."""

    def __init__(self, token, interval=0.5):
        super().__init__(daemon=True)
        self.token, self.interval, self.ended, self.held = token, interval, threading.Event(), set()

    def run(self):
        while not self.ended.wait(self.interval):
            self.held |= held_by(processes(self.token))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


class Leaks:
    """What there was before the first scenario; what more there is after one has leaked."""

    def __init__(self, patience=10):
        self.patience = patience
        self.before = files()

    def look(self, token, held):
        """Processes, files, programs and maps that a run has left."""
        return ([f"process {pid}" for pid in processes(token) if pid != os.getpid()] + sorted(files() - self.before) +
                [f"{kind} {number}" for kind, number in sorted(held & bpf_objects())])

    def found(self, token, held):
        """The same once the kernel has had time to take things down, in words."""
        deadline = time.monotonic() + self.patience
        while (left := self.look(token, held)) and time.monotonic() < deadline:
            time.sleep(0.2)
        self.before |= files()  # said once
        return [f"left: {', '.join(left)}"] if left else []
