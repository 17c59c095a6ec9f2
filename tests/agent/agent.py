#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""inaggd and inaggctl with workers that speak the wire format by hand: joins, refusals, lies, restarts."""

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from network import BPFFS, BUILD, DIR, ROOT, add_worker, attached, build_network, die_with_parent, enter_namespaces, inside, run, until

PORTS = ["p0", "p1", "p2"]
ELEMENTS = 32
PATIENCE = 20  # seconds until a missing packet is a failure
TRIO = 1
DECIDES_EARLY = "--job=8:size=3,elements=32,algorithm=trio,expiry=10ms"  # for late_rank()


def wire_types():
    """Packet types and reasons as the headers number them."""
    wire = (ROOT / "include/inagg/wire.h").read_text()
    reasons = (ROOT / "include/inagg/reason.h").read_text()
    types = re.search(r"enum inagg_type \{(.*?)\};", wire, re.S).group(1)
    return ({name: int(number) for name, number in re.findall(r"INAGG_(\w+)\s*= (\d+)", types)},
            {int(number): name for number, name in re.findall(r"X\((\d+), (\w+),", reasons)})


TYPE, REASON = wire_types()


def sealed(header):
    """The header with its RFC 1071 checksum."""
    total = sum(struct.unpack("<32H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return header[:42] + struct.pack("<H", ~total & 0xFFFF) + header[44:]


def packet(kind, job, rank, generation=0, slot=0, block=0, elements=(), version=0, payload=b""):
    header = bytearray(64)
    struct.pack_into(">BBHHHII", header, 0, 0x10 | TYPE[kind], 0x10 if elements else 0, version, job, generation,
                     block, slot)
    struct.pack_into(">H", header, 18, rank)
    struct.pack_into(">H", header, 40, len(elements))
    return sealed(bytes(header)) + struct.pack(f"<{len(elements)}i", *elements) + payload


@contextlib.contextmanager
def namespace_of(holder):
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as home, open(f"/proc/{holder.pid}/ns/net") as there:
        assert libc.setns(there.fileno(), 0) == 0
        try:
            yield
        finally:
            assert libc.setns(home.fileno(), 0) == 0


class Worker:
    """One rank of job 7, behind the port of its namespace."""

    def __init__(self, holder, rank, size=2, switch="10.77.0.1", nonce=None, elements=ELEMENTS, algorithm=0, job=7):
        family = socket.AF_INET6 if ":" in switch else socket.AF_INET
        with namespace_of(holder):
            self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind(("", 0))
        self.socket.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
        if family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_UDP, 102, 1)  # UDP_NO_CHECK6_RX
        self.switch, self.rank, self.size, self.job = (switch, 12000), rank, size, job
        self.nonce, self.elements, self.algorithm = nonce or os.urandom(8), elements, algorithm
        self.generation = self.boot = 0

    def identity(self):
        return self.nonce + struct.pack(">HHHBB24x", self.size, self.elements, self.socket.getsockname()[1],
                                        self.algorithm, 0)

    def send(self, kind, **fields):
        self.socket.sendto(packet(kind, self.job, self.rank, **fields), self.switch)

    def receive(self, wait):
        """(type, slot, payload) of the next packet, or None."""
        self.socket.settimeout(wait)
        try:
            data = self.socket.recv(4096)
        except TimeoutError:
            return None
        kind = next(name for name, number in TYPE.items() if number == data[0] & 15)
        self.boot = struct.unpack_from(">H", data, 32)[0]
        if kind == "CONFIG":
            self.generation = struct.unpack_from(">H", data, 6)[0]
        return kind, struct.unpack_from(">I", data, 12)[0], data[64:]

    def ask(self):
        """What becomes of a join: CONFIG, or the reason of a refusal."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.send("JOIN", payload=self.identity())
            answer = self.receive(0.1)
            if answer and answer[0] == "CONFIG":
                return "CONFIG"
            if answer and answer[0] == "REFUSED":
                return REASON[answer[1]]
        return "silence"

    def join(self):
        assert (answer := self.ask()) == "CONFIG", answer
        return self

    def leave(self, **changes):
        self.send("LEAVE", **{"generation": self.generation, "payload": self.identity(), **changes})

    def contribute(self, block, value):
        self.send("CONTRIBUTION", generation=self.generation, slot=block, block=block, elements=[value] * ELEMENTS)


def sums(workers, block):
    """Each worker contributes rank + 1 until it has the result; the results, which must agree."""
    results = {}
    end = time.monotonic() + PATIENCE
    while len(results) < len(workers) and time.monotonic() < end:
        for worker in workers:
            if worker not in results:
                worker.contribute(block, worker.rank + 1)
        for worker in workers:
            while worker not in results and (answer := worker.receive(0.05)):
                if answer[:2] == ("RESULT", block):
                    results[worker] = struct.unpack(f"<{ELEMENTS}i", answer[2])
    assert len(results) == len(workers), f"results of block {block}: {len(results)} of {len(workers)}"
    expected = (sum(worker.rank + 1 for worker in workers),) * ELEMENTS
    assert all(result == expected for result in results.values()), results


def busy_switch(hosts):
    """Two ranks of job 7 that have summed, and drops of a third that has no place there."""
    workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
    for block in range(3):
        sums(workers, block)
    Worker(hosts[2], 0, nonce=workers[0].nonce).contribute(9, 1)
    until(lambda: ctl("drops"), "the stranger's packet is dropped")
    return workers


def late_rank(hosts):
    """Job 8 of an agent with DECIDES_EARLY decides a block without its rank 2."""
    workers = [Worker(hosts[rank], rank, size=3, algorithm=TRIO, job=8).join() for rank in range(3)]

    def decided():
        for worker in workers[:2]:
            worker.contribute(0, 1)
        answers = [worker.receive(0.05) for worker in workers[:2]]
        return any(answer and answer[0] == "RESULT" for answer in answers)

    until(decided, "a block is decided without rank 2")
    until(lambda: ctl("job", "show", "8")["stragglers"], "rank 2 is a straggler")


class Agent:
    """A running inaggd."""

    def __init__(self, *options, ports=PORTS, stderr=None):
        read, write = os.pipe()
        command = [BUILD / "bin/inaggd", *(f"--port={port}" for port in ports), *options]
        self.process = subprocess.Popen([*command, f"--ready-fd={write}"], pass_fds=[write], preexec_fn=die_with_parent,
                                        stderr=stderr)
        os.close(write)
        ready = os.read(read, 1)
        os.close(read)
        assert ready == b"\n", f"{options}: inaggd did not get ready"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(timeout=PATIENCE) == 0

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.stop()
        if not any(failure):
            expect_nothing_left()


def expect_nothing_left():
    left = [path for path in BPFFS.iterdir() if not path.name.endswith(".debug")]
    assert not left, left
    assert not list(Path("/run").iterdir()), list(Path("/run").iterdir())
    until(lambda: not any(map(attached, PORTS)), "the ports are detached")  # the kernel does it in the background


def ctl(*arguments):
    done = subprocess.run([BUILD / "bin/inaggctl", "--json", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"inaggctl {arguments}: {done.stderr}"
    return json.loads(done.stdout)


def ctl_fails(*arguments):
    done = subprocess.run([BUILD / "bin/inaggctl", *arguments], capture_output=True, text=True)
    assert done.returncode != 0, arguments
    return done.stderr


def sweep_timers():
    return ctl("status")["sweeps"]["timers"]


def place_of(job):
    """The port of its rank 0."""
    return ctl("job", "show", str(job))["members"][0]["port"]


def jobs():
    return {job["job"]: job for job in ctl("job", "list")}


def drops(reason, job=7):
    return sum(row["packets"] for row in ctl("drops") if row["reason"] == reason and row["job"] == job)


def test_join_sum_leave(hosts):
    for switch in ("10.77.0.1", "fd77::1"):
        with Agent():
            workers = [Worker(host, rank, size=3, switch=switch).join() for rank, host in enumerate(hosts)]
            sums(workers, 0)
            job = ctl("job", "show", "7")
            assert [member["state"] for member in job["members"]] == ["joined"] * 3, job
            stats = ctl("stats", "--job", "7")[0]
            assert stats["additions"] == 3 and stats["completions"] == 1, stats
            workers[0].leave()
            until(lambda: jobs()[7]["joined"] == 2, "rank 0 has left")
            for worker in workers[1:]:
                worker.leave()
            until(lambda: not jobs(), "the job has gone with its last rank")


def test_two_ranks_behind_one_port(hosts):
    with Agent():
        workers = [Worker(hosts[host], rank, size=3).join() for rank, host in enumerate((0, 0, 1))]
        for block in range(4):
            sums(workers, block)


def test_refusals(hosts):
    with Agent("--slots=256"):
        assert Worker(hosts[0], 2, size=2).ask() == "RANK"
        assert Worker(hosts[0], 0, size=65).ask() == "SIZE"
        assert Worker(hosts[0], 0, algorithm=2).ask() == "ALGORITHM"
        assert Worker(hosts[0], 0, elements=31).ask() == "MTU"
        assert not jobs()
        first = Worker(hosts[0], 0, elements=64).join()
        assert Worker(hosts[1], 1, size=3).ask() == "SIZE"
        assert Worker(hosts[1], 1, elements=32).ask() == "MTU"
        assert Worker(hosts[1], 0).ask() == "TAKEN"
        assert Worker(hosts[1], 0, nonce=first.nonce).ask() == "TAKEN"
        assert Worker(hosts[1], 0, job=8).ask() == "FULL"
        assert jobs()[7]["joined"] == 1
    with Agent("--no-auto-jobs", "--job=7:size=2,slots=64,member=0@p0/10.77.0.10"):
        assert Worker(hosts[0], 0, job=8).ask() == "POLICY"
        assert Worker(hosts[1], 0, elements=352).ask() == "PORT"
        assert Worker(hosts[0], 0, elements=352).ask() == "CONFIG"
        assert jobs()[7]["slots"] == 64


def test_lies_change_nothing(hosts):
    with Agent():
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        liar = Worker(hosts[2], 0, nonce=workers[0].nonce)
        liar.generation = workers[0].generation
        liar.leave()
        workers[0].leave(generation=workers[0].generation + 1 & 0xFFFF)
        workers[0].leave(payload=os.urandom(8) + workers[0].identity()[8:])
        workers[0].leave(payload=b"")
        liar.contribute(0, 1000)
        until(lambda: drops("PORT"), "the forged contribution is counted")
        workers[1].contribute(0, 2)  # behind everything above in the agent's queue is a join
        assert Worker(hosts[2], 5, size=2).ask() == "RANK"
        assert jobs()[7]["joined"] == 2
        sums(workers, 0)


def test_a_new_run_replaces_the_old(hosts):
    with Agent():
        old = [Worker(hosts[rank], rank).join() for rank in range(2)]
        sums(old, 0)
        new = [Worker(hosts[rank], rank).join() for rank in range(2)]
        assert new[0].generation == new[1].generation == (old[0].generation + 1) & 0xFFFF
        until(lambda: (answer := old[1].receive(1)) and answer[0] == "REFUSED" and REASON[answer[1]] == "REPLACED",
              "the old run is told")
        old[0].contribute(1, 1000)
        until(lambda: drops("GENERATION"), "the old run's packet is counted")
        sums(new, 0)
        sums(new, 1)


def test_a_job_that_runs_is_not_begun_anew(hosts):
    """Though a host that has a rank of it asks for another's, whenever that is."""
    with Agent():
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        other, blocks, end = Worker(hosts[0], 1), itertools.count(), time.monotonic() + 3.8
        while time.monotonic() < end:  # nobody asks the agent for anything
            sums(workers, next(blocks))
            time.sleep(0.1)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(other.ask)
            while not answer.done():
                sums(workers, next(blocks))
                time.sleep(0.1)
        assert answer.result() == "TAKEN"


def test_records_are_swept_whatever_the_job_waits_for(hosts):
    with Agent():
        Worker(hosts[0], 0, size=1).join()
        assert not sweep_timers()
        trio = Worker(hosts[1], 0, size=1, algorithm=TRIO, job=8).join()
        until(sweep_timers, "a block that nobody has the result of is not kept for good")
        trio.leave()
        until(lambda: not sweep_timers(), "nothing is swept for nobody")


def test_a_port_that_asks_all_the_time_leaves_others_their_way_to_the_agent(hosts):
    with Agent() as agent:
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        agent.process.send_signal(signal.SIGSTOP)  # something else keeps it busy
        stranger = Worker(hosts[2], 0, job=8)
        joins = packet("JOIN", 8, 0, payload=stranger.identity())
        for _ in range(30_000):
            stranger.socket.sendto(joins, stranger.switch)
        for worker in workers:
            worker.leave()  # is said once
        agent.process.send_signal(signal.SIGCONT)
        until(lambda: 7 not in jobs(), "their LEAVE is heard")
        assert drops("RATE", job=None) and not drops("FULL", job=None)


def test_strangers_keep_no_job_alive(hosts):
    with Agent("--idle-timeout=2"):
        first = Worker(hosts[0], 0, size=1).join()
        sums([first], 0)
        stranger = Worker(hosts[2], 0, size=1, nonce=first.nonce)

        def asks():
            stranger.contribute(1, 1)
            return Worker(hosts[1], 0, size=1).ask()

        assert asks() == "TAKEN" and ctl("drops")
        until(lambda: asks() == "CONFIG", "the rank that is silent has lost its place")


def test_jobs_survive_the_agent(hosts):
    agent = Agent()
    workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
    sums(workers, 0)
    agent.kill()
    sums(workers, 1)
    assert ctl("status")["agent"] == "not running"
    assert jobs()[7]["joined"] == 2
    with Agent():
        sums(workers, 2)
        ctl("reload")
        sums(workers, 3)
        until(lambda: ctl("status")["agent"] == "running", "it has started again")
        sums(workers, 4)
        late = Worker(hosts[2], 0, job=8).join()
        assert set(jobs()) == {7, 8}
        for worker in [*workers, late]:
            worker.leave()
        until(lambda: not jobs(), "the new agent hears the ranks leave")


def capabilities(process):
    """The sets of a process, as its names in capabilities(7) say, and whether it may get more by executing."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    held = {}
    for name in ("CapEff", "CapPrm", "CapBnd"):
        text = subprocess.run(["capsh", f"--decode={status[name].strip()}"], check=True, capture_output=True, text=True).stdout
        held[name] = set(text.strip().partition("=")[2].split(","))
    return held, status["NoNewPrivs"].strip()


def test_no_privilege_is_kept_that_is_not_needed(_):
    needed = {"cap_bpf", "cap_net_admin", "cap_perfmon", "cap_sys_nice"}
    with Agent() as agent:
        assert capabilities(agent.process) == (dict.fromkeys(("CapEff", "CapPrm", "CapBnd"), needed), "1")
        ctl("reload")  # executes the program anew
        until(lambda: ctl("status")["agent"] == "running", "it has started again")
        assert capabilities(agent.process) == (dict.fromkeys(("CapEff", "CapPrm", "CapBnd"), needed), "1")


def test_no_other_user_speaks_as_the_switch(_):
    script = '''
import errno, os, socket
os.setuid(65534)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        other.bind(("10.77.0.1", 12000))
    except OSError as e:
        raise SystemExit(e.errno != errno.EADDRINUSE)
raise SystemExit("it is bound")
'''
    with Agent():
        subprocess.run([sys.executable, "-c", script], check=True)


def test_a_question_counts_as_its_answer(hosts):
    with Agent("--job-rate=100kbit"):  # 50 frames of 234 bytes a second, and 5 at once
        greedy = [Worker(hosts[rank], rank).join() for rank in range(2)]
        sums(greedy, 0)
        begin, asked, before = time.monotonic(), 0, drops("QUOTA")
        while time.monotonic() < begin + 1.5:
            greedy[0].send("REQUEST", generation=greedy[0].generation)
            asked += 1
            time.sleep(0.001)
        until(lambda: ctl("stats", "--job", "7")[0]["packets"] >= 2 + asked, "all are here")
        let_through = asked - (drops("QUOTA") - before)
        assert 0 < let_through <= 6 + 51 * (time.monotonic() - begin)


def test_a_job_gets_its_rate_and_no_more(hosts):
    with Agent("--job-rate=100kbit"):  # 50 frames of 234 bytes a second, and 5 at once
        greedy = [Worker(hosts[rank], rank).join() for rank in range(2)]
        modest = [Worker(hosts[rank], rank, job=8).join() for rank in range(2)]
        frames = 300
        for block in range(frames):
            greedy[0].contribute(block % 100, 1)
        until(lambda: ctl("stats", "--job", "7")[0]["packets"] == frames, "all are here")
        assert drops("QUOTA") > frames // 2
        sums(modest, 0)
        assert not drops("QUOTA", job=8)
        sums(greedy, 120)  # which are repeated until their time comes
    for option in ("--job-rate", "--job-uplink-rate"):
        assert f"{option} 7kbit" in start_fails(f"--port={PORTS[0]}", f"{option}=7kbit")


def test_shares_that_are_none(hosts):
    for what in ("aggregators", "descriptors"):
        assert (f"--shares 32: of 32 {what}, a job would have less than two; take at most 16"
                in start_fails(f"--port={PORTS[0]}", "--shares=32", f"--{what}=32"))
    assert "--shares: must be a power of two up to 64, not 3" in start_fails(f"--port={PORTS[0]}", "--shares=3")
    with tempfile.NamedTemporaryFile() as config:
        def write(shares, entries):
            Path(config.name).write_text(f"shares = {shares}\naggregators = {entries}\ndescriptors = {entries}\n")

        write(16, 32)
        with Agent(f"--config={config.name}"):
            workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
            write(32, 4096)  # but the maps that are there stay as they are
            refused = "--shares 32: of 32 aggregators, a job would have less than two"
            assert refused in ctl_fails("reload")
            assert refused in start_fails(f"--config={config.name}", *(f"--port={port}" for port in PORTS), "--check")
            assert ctl("status")["agent"] == "running"
            sums(workers, 0)


def test_rates_that_are_none(_):
    for option in ("--job-rate", "--job-uplink-rate", "--config"):
        assert f"{option}: must not be empty" in start_fails(f"--port={PORTS[0]}", option, "")


def test_cleared_slots(hosts):
    with Agent():
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        sums(workers, 0)
        boot = workers[0].boot
        workers[0].contribute(1, 1000)
        until(lambda: ctl("stats", "--job", "7")[0]["additions"] == 3, "half of block 1 is in")
        ctl("slots", "clear")
        sums(workers, 1)
        assert workers[0].boot not in (0, boot)
        boot = workers[0].boot
        ctl("slots", "clear", "--job", "7", "--keep-boot")
        sums(workers, 2)
        assert workers[0].boot == boot


def seen_in_terminal(*arguments, key):
    """What a program shows in a terminal of 80 x 24 until it has said `key` and gets it; its status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(arguments[0], arguments)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    shown, end = b"", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # the program has ended
                break
        elif f"{key} quits".encode() in shown:
            os.write(terminal, key.encode())
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_top(hosts):
    with Agent():
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        sums(workers, 0)
        Worker(hosts[2], 0, nonce=workers[0].nonce).contribute(9, 1)
        until(lambda: ctl("drops"), "a stranger's packet is dropped")
        once = subprocess.run([BUILD / "bin/inaggctl", "top", "--once", "--interval=0.2"], capture_output=True, text=True)
        assert once.returncode == 0, once.stderr
        lines = once.stdout.splitlines()
        assert any(line.split()[:3] == ["7", "2/2", "switchml"] for line in lines), lines
        assert "DROPS" in lines, lines
        top = ctl("top", "--interval=0.2")
        assert [row["job"] for row in top["rates"]] == [row["job"] for row in ctl("stats")], top
        assert top["seconds"] >= 0.2 and top["jobs"][0]["job"] == 7 and top["drops"], top
        shown, status = seen_in_terminal(str(BUILD / "bin/inaggctl"), "top", key="q")
        assert status == 0 and "switchml" in shown and "2/2" in shown, (status, shown)
    assert "is a switch running here" in ctl_fails("top", "--once")


def test_trace(hosts):
    def blocks(*options):
        return ctl("trace", "7", "--seconds=0.1", *options)["switches"][0]["blocks"]

    with Agent():
        assert "job 7" in ctl_fails("trace", "7")
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        assert not blocks()
        workers[0].contribute(5, 1)
        until(blocks, "the block is open")
        for (block,) in (blocks(), blocks("--block=5")):
            assert block == {**block, "stream": "data", "block": 5, "state": "open", "in": [0], "waits_for": [1]}, block
        sums(workers, 5)
        assert not blocks() and not blocks("--block=4")
        assert [(block["state"], block["in"], block["waits_for"]) for block in blocks("--block=5")] == [("complete", [0, 1], [])]
        text = subprocess.run([BUILD / "bin/inaggctl", "trace", "7"], capture_output=True, text=True, check=True).stdout
        assert text.splitlines() == ["switch 10.77.0.1: job 7, generation "
                                     f"{workers[0].generation}, switchml, ranks here: 0, 1", "  no block is open"], text


def test_several_blocks_in_a_packet(hosts):
    """What is not as it must be is refused as a whole, before anything is added."""
    if int(os.uname().release.split(".")[0]) * 100 + int(os.uname().release.split(".")[1]) < 606:
        return print("SKIP: tc has no links before Linux 6.6")
    elements = 512

    def contribute(worker, blocks, block, slot=None, value=1, more=0, **fields):
        header = packet("CONTRIBUTION", 7, worker.rank, **{"generation": worker.generation, "slot": block if slot is None else slot,
                                                          "block": block, "elements": [0] * elements, **fields})[:64]
        worker.socket.sendto(header + struct.pack(f"<{blocks * elements + more}i", *[value] * (blocks * elements + more)), worker.switch)

    def results(worker, blocks):
        found = {}
        while len(found) < blocks and (answer := worker.receive(2)):
            if answer[0] == "RESULT":
                found[answer[1]] = set(struct.unpack(f"<{elements}i", answer[2]))
        return found

    for port, holder in zip(PORTS, hosts):
        run("ip", "link", "set", port, "mtu", "9000")
        run(*inside(holder), "ip", "link", "set", "eth0", "mtu", "9000")
    with Agent("--job=7:size=2,elements=512,blocks=4,slots=8"):
        workers = [Worker(hosts[rank], rank, elements=832).join() for rank in range(2)]
        stranger = Worker(hosts[2], 1, nonce=workers[1].nonce)
        stranger.generation = workers[1].generation
        contribute(workers[0], 4, 0, value=5)
        before = ctl("stats", "--job", "7")[0]
        assert before["packets"] == 1 and before["additions"] == 4, before
        bad = [lambda: contribute(stranger, 4, 0), lambda: contribute(workers[1], 4, 0, more=1), lambda: contribute(workers[1], 3, 0, more=-1),
               lambda: contribute(workers[1], 4, 5), lambda: contribute(workers[1], 4, 4, slot=6),
               lambda: contribute(workers[1], 2, 0, generation=1)]
        for send in bad:
            send()
        until(lambda: sum(row["packets"] for row in ctl("drops")) >= len(bad), "all of them are refused")
        assert ctl("stats", "--job", "7")[0]["additions"] == 4
        contribute(workers[1], 4, 0, value=7)
        for worker in workers:
            assert results(worker, 4) == {slot: {12} for slot in range(4)}
        contribute(workers[1], 4, 0, value=7)  # again: its results, for it alone
        assert results(workers[1], 4) == {slot: {12} for slot in range(4)} and not results(workers[0], 1)
        contribute(workers[0], 2, 4, value=1)
        workers[1].elements = 512  # what others send one by one meets what comes together
        for block in (4, 5):
            workers[1].socket.sendto(packet("CONTRIBUTION", 7, 1, generation=workers[1].generation, slot=block, block=block,
                                            elements=[2] * elements), workers[1].switch)
        assert results(workers[0], 2) == results(workers[1], 2) == {4: {3}, 5: {3}}
    for port, holder in zip(PORTS, hosts):
        run("ip", "link", "set", port, "mtu", "1500")
        run(*inside(holder), "ip", "link", "set", "eth0", "mtu", "1500")


def said_to_nobody(program, *arguments):
    """What it answers who has no privileges: one line."""
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", BUILD / "bin" / program, *arguments],
                          capture_output=True, text=True)
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done
    return done.stderr


def test_control(hosts):
    with Agent():
        ctl("job", "add", "9:size=2,slots=32,control=4,elements=64,checked")
        assert jobs()[9] == {**jobs()[9], "slots": 32, "control_slots": 4, "elements": 64, "checked": True}
        assert "inaggctl job del 9" in ctl_fails("job", "add", "9:size=3")
        assert "not 33" in ctl_fails("job", "add", "10:size=2,slots=33")
        assert "job 44" in ctl_fails("job", "del", "44")
        assert "job 44" in ctl_fails("stats", "--job", "44")
        worker = Worker(hosts[0], 0, job=9, elements=64).join()
        ctl("job", "del", "9")
        until(lambda: (answer := worker.receive(1)) and answer[0] == "REFUSED" and REASON[answer[1]] == "JOB",
              "the ranks of a removed job are told")
        assert not jobs()
        assert "run as root" in said_to_nobody("inaggctl", "status")
        assert "run as root" in said_to_nobody("inaggctl", "reload")
    assert "is a switch running here" in ctl_fails("status")


def test_failed_starts_leave_nothing(_):
    assert "run as root" in said_to_nobody("inaggd", "--port=p0")
    for options in (["--port=nosuch"], ["--address4=300.1.1.1"], ["--job=7:size=99"], ["--slots=3"],
                    ["--bpffs=/tmp/inagg"]):
        done = subprocess.run([BUILD / "bin/inaggd", "--port=p0", *options], capture_output=True, text=True)
        assert done.returncode != 0, options
        expect_nothing_left()
    with Agent(ports=["p0"]):
        done = subprocess.run([BUILD / "bin/inaggd", "--port=p1"], capture_output=True, text=True)
        assert done.returncode != 0 and "another inaggd" in done.stderr, done
        assert ctl("status")["agent"] == "running"


def start_fails(*options):
    """What an inaggd says that cannot start."""
    done = subprocess.run([BUILD / "bin/inaggd", *options], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0, options
    return done.stderr


def test_what_others_made_is_left_alone(_):
    precious = Path("/run/precious")
    precious.mkdir()
    (precious / "thesis.tex").write_text("a")
    assert "not a bpf file system" in start_fails("--port=p0", "--fresh", f"--bpffs={precious}")
    assert (precious / "thesis.tex").read_text() == "a"
    (precious / "thesis.tex").unlink()
    precious.rmdir()

    def pin(name):
        run("bpftool", "map", "create", other / name, "type", "array", "key", "4", "value", "4", "entries", "1",
            "name", "theirs")

    other = BPFFS / "other"
    other.mkdir()
    pin("theirs")
    subprocess.run(["ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1"], check=True)
    assert "no address on d0" in start_fails("--port=d0", f"--bpffs={other}")
    pin("stats")
    assert "stats" in start_fails("--port=p0", "--fresh", f"--bpffs={other}")
    assert {path.name for path in other.iterdir()} == {"theirs", "stats"}
    (other / "stats").unlink()
    Agent(f"--bpffs={other}").stop()
    assert [path.name for path in other.iterdir()] == ["theirs"]
    (other / "theirs").unlink()
    other.rmdir()
    subprocess.run(["ip", "link", "del", "d0"], check=True)


def test_a_failed_restart_leaves_the_switch(hosts):
    subprocess.run(["ip", "link", "add", "x0", "type", "veth", "peer", "name", "x1"], check=True)
    agent = Agent(DECIDES_EARLY)
    timers = sweep_timers()
    assert timers
    workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
    agent.kill()
    run(BUILD / "bin/inaggd", "--check", "--port=p0")
    second = Agent("--run-dir=/run/second", f"--bpffs={BPFFS / 'second'}", "--address4=10.77.0.2", ports=["x0"])
    for options in (["--port=x0"], ["--port=nosuch"], ["--job=8:size=2,elements=864"], ["--address4=1.1.1.300"],
                    ["--job=8:size=2,slots=8192"], ["--job=7:size=2"], ["--fresh", "--port=nosuch"],
                    ["--job=8:size=2,member=0@nosuch/10.77.0.10"], ["--run-dir=/run/" + 100 * "x"]):
        start_fails("--port=p0", "--address4=10.77.0.99", *options)
        sums(workers, 0)
        assert [port["port"] for port in ctl("status")["ports"]] == PORTS, options
        assert sweep_timers() == timers, options
    second.stop()
    with Agent():
        sums(workers, 1)
    subprocess.run(["ip", "link", "del", "x0"], check=True)


def test_a_port_is_served_whatever_the_agent_has_missed(hosts):
    with Agent() as agent:
        agent.process.send_signal(signal.SIGSTOP)
        run("ip", "-batch", "-", input="".join(f"link add d{n} type bridge\nlink del d{n}\n" for n in range(300)))  # fill its socket
        run("ip", "link", "del", "p2")
        hosts[2] = add_worker(2, "master", "br0")
        agent.process.send_signal(signal.SIGCONT)
        until(lambda: attached("p2"), "the port made anew is served")
        sums([Worker(hosts[rank], rank - 1).join() for rank in (1, 2)], 0)


def test_an_end_is_one_in_the_middle_of_a_reload(_):
    for pause in (0, 0.02, 0.05, 0.1, 0.2):
        agent = Agent()
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(pause)
        agent.stop()
        expect_nothing_left()


def test_options_that_contradict_each_other(_):
    for options, said in ((["--port=p0"], "--port p0: given twice"),
                          (["--port-rate=p0=1gbit", "--port-rate=p0=2gbit"], "p0 has a rate already"),
                          (["--parent=p0/10.77.0.50", "--child=p0/10.77.0.50"], "10.77.0.50: --parent and --child")):
        assert said in start_fails("--port=p0", *options), options


def test_a_ring_of_another_size_is_not_kept(_):
    DIR.mkdir()
    run("bpftool", "map", "create", DIR / "events", "type", "ringbuf", "key", "0", "value", "0", "entries", "65536", "name", "events")
    with Agent():
        shown = run("bpftool", "--json", "map", "show", "pinned", DIR / "events", capture_output=True).stdout
        assert json.loads(shown)["max_entries"] > 65536


def test_a_job_takes_a_key_until_somebody_has_joined(hosts):
    with tempfile.TemporaryDirectory() as folder:
        config, keys = Path(folder) / "config", Path(folder) / "keys"
        config.write_text('job=["7:size=1,elements=32", "8:size=1"]\n')
        keys.write_text(8 * "0123" + "\n")
        keys.chmod(0o600)
        with Agent(f"--config={config}"):
            rank = Worker(hosts[0], 0, size=1).join()
            config.write_text(config.read_text() + f'key-file="{keys}"\n')
            ctl("reload")
            until(lambda: ctl("status")["agent"] == "running", "it has started again")
            assert Worker(hosts[1], 0, size=1, job=8).ask() == "KEY"
            sums([rank], 0)


def test_a_reload_that_cannot_be_is_refused(hosts):
    config = Path("/tmp") / f"inagg-{os.getpid()}.conf"
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    try:
        config.write_text('job=["7:size=2"]\n')
        with taken, Agent(f"--config={config}", "--fresh=true") as agent:
            for wrong in ('job=["7:size=0"]', 'job=["7:size=3"]', 'slots=3', 'slotz=4096', 'address4="1.1.1.300"',
                          f"metrics={port}", f"web={port}",
                          "web=9401\nmetrics='0.0.0.0:9401'", 'run-dir=""', f'run-dir="/run/{100 * "x"}"', 'bpffs="/tmp/inagg"'):
                config.write_text(wrong + "\n")
                assert wrong.partition("=")[0] in ctl_fails("reload"), wrong
                agent.process.send_signal(signal.SIGHUP)
                assert jobs()[7]["size"] == 2 and ctl("status")["agent"] == "running"
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
                other.bind(("10.77.5.5", 12000))
                config.write_text('address4="10.77.5.5"\n')
                assert "10.77.5.5 UDP port 12000: Address already in use" in ctl_fails("reload")
            config.write_text('job=["7:size=2", "8:size=2"]\n')
            Worker(hosts[0], 0, elements=352).join()
            ctl("reload")
            until(lambda: set(jobs()) == {7, 8}, "the new configuration counts")
            assert jobs()[7]["joined"] == 1, "and what ran goes on"
            assert Worker(hosts[0], 0, job=8, elements=352).ask() == "CONFIG"
    finally:
        config.unlink()


def test_an_upgrade_that_cannot_take_over_is_refused(hosts):
    """A map of another version, as an older inaggd would have left it: the agent that runs goes on."""
    ours, kept = DIR / "patience", DIR / "kept"
    with Agent():
        worker = Worker(hosts[0], 0, size=1).join()
        ours.rename(kept)
        run("bpftool", "map", "create", ours, "type", "array", "key", "4", "value", "24", "entries", "64", "name", "patience")
        complaint = ctl_fails("reload")
        assert "patience is of another version" in complaint and "--fresh" in complaint, complaint
        sums([worker], 0)
        assert ctl("status")["agent"] == "running"
        ours.unlink()
        kept.rename(ours)
        ctl("reload")
        until(lambda: ctl("status")["agent"] == "running", "it has started again")
        sums([worker], 1)


def test_an_upgrade_makes_the_maps_that_an_older_version_lacks(hosts):
    newer = [DIR / "quotas", DIR / "uplink_quotas"]
    with Agent():
        worker = Worker(hosts[0], 0, size=1).join()
        for pin in newer:
            pin.unlink()
        assert ctl("status")["jobs"] == 1
        ctl("reload")
        until(lambda: ctl("status")["agent"] == "running", "it has started again")
        sums([worker], 0)
        assert all(pin.exists() for pin in newer)


def test_jobs_that_wait_for_ranks_do_not_fill_the_switch(hosts):
    with Agent("--join-timeout=3"):
        answers = [Worker(hosts[0], 0, job=number).ask() for number in range(20, 26)]
        assert answers[0] == "CONFIG" and "FORMING" in answers, answers
        Worker(hosts[1], 0).join()
        until(lambda: not jobs(), "they go")
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        time.sleep(6)
        sums(workers, 0)


def test_one_agent_for_a_switch(_):
    with Agent(ports=["p0"]):
        assert "another inaggd serves this switch" in start_fails("--port=p0", "--run-dir=/run/second")
        assert attached("p0") and ctl("status")["agent"] == "running"
        assert not Path("/run/second").exists()


def test_ports_come_and_go(hosts):
    subprocess.run(["ip", "link", "add", "q0", "type", "veth", "peer", "name", "q1"], check=True)
    with Agent("--job=9:size=1,member=0@q0/10.77.0.99", ports=[*PORTS, "q0"]):
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        place = place_of(9)
        subprocess.run(["ip", "link", "del", "q0"], check=True)
        until(lambda: [port["port"] for port in ctl("status")["ports"]] == PORTS, "the lost port is forgotten")
        sums(workers, 0)
        run("ip", "link", "set", "p0", "mtu", "1400")
        until(lambda: Worker(hosts[1], 0, size=1, elements=352, job=10).ask() == "CONFIG" and jobs()[10]["elements"] < 352,
              "a port's MTU counts, whoever else is gone")
        run("ip", "link", "set", "p0", "mtu", "1500")
        subprocess.run(["ip", "link", "add", "q0", "type", "veth", "peer", "name", "q1"], check=True)
        until(lambda: attached("q0"), "a port that comes back is attached")
        until(lambda: place_of(9) == "q0" == place, "and a member's place is there again")
    agent = Agent()
    workers = [Worker(hosts[rank], rank, size=3).join() for rank in range(3)]
    agent.kill()
    with Agent(ports=PORTS[:2]):
        states = [member["state"] for member in ctl("job", "show", "7")["members"]]
        assert states[:2] == ["joined"] * 2 and states[2:] != ["joined"], states
    subprocess.run(["ip", "link", "del", "q0"], check=True)


def main(tests):
    """Runs the functions of `tests` that are tests, in namespaces."""
    if sys.argv[1:] != ["inside"]:
        enter_namespaces()
    hosts = build_network(len(PORTS))
    for name, test in list(tests.items()):
        if name.startswith("test_"):
            print(f"--- {name}", flush=True)
            test(hosts)
    print("all passed")


if __name__ == "__main__":
    main(globals())
