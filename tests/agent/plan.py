#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""inaggctl plan: where trees go, what it says of files that are wrong; and a fabric that runs with what it writes."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from network import BPFFS, BUILD, die_with_parent, enter_namespaces, inside, mount_all, run, until

INAGGCTL = BUILD / "bin/inaggctl"
LEAVES, SPINES = range(2), range(2)
SWITCHES = ("spine0", "spine1", "leaf0", "leaf1")


def spines(count):
    return "".join(f'[[spine]]\nname = "spine{i}"\naddress = "10.1.0.{i + 1}"\n' for i in range(count))


def leaf(number, spine_numbers, hosts=2):
    up = ", ".join(f'spine{i} = ["up{i}", "down{number}"]' for i in spine_numbers)
    behind = ", ".join(f'h{i} = "10.1.{number + 1}.{i + 11}"' for i in range(hosts))
    rack = f"10.1.{number + 1}"
    return f'[[leaf]]\nname = "leaf{number}"\naddress = "{rack}.1"\nup = {{ {up} }}\nhosts = {{ {behind} }}\n'


def job(name, **keys):
    lines = (f"{key.replace('_', '-')} = {json.dumps(value)}\n" for key, value in keys.items())
    return f'[[job]]\nname = "{name}"\n' + "".join(lines)


def planned(text, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([INAGGCTL, "--json", "plan", file.name, *options], capture_output=True, text=True)
        return done, done.stderr.replace(file.name, "FILE")


def trees_of(text):
    """By job, (number, spine) of its trees."""
    done, error = planned(text)
    assert done.returncode == 0, error
    jobs = json.loads(done.stdout)["jobs"]
    return {one["name"]: [(tree["job"], int(tree["spine"].removeprefix("spine"))) for tree in one["trees"]] for one in jobs}


def pools():
    text = spines(1) + leaf(0, range(1)) + job("a", algorithm="switchml") + job("b", algorithm="panama")
    slow = 'host-rate = "50mbit"\nuplink-rate = "10gbit"\n'
    for rates, slots in (("", ""), ('uplink-rate = "10gbit"\n', ""), (slow, ",slots=64")):
        done, error = planned(rates + text)
        assert done.returncode == 0, error
        jobs = f'job = ["0:size=2,algorithm=switchml{slots}", "1:size=2,algorithm=panama"]'
        assert jobs in json.loads(done.stdout)["files"]["spine0.toml"], done.stdout


def places():
    four = spines(4) + leaf(0, range(4)) + leaf(1, range(4))
    assert trees_of(four + job("a")) == {"a": [(0, 0), (1, 1), (2, 2), (3, 3)]}
    # A number says at which spine, so some are passed over; loads are level.
    assert trees_of(four + job("a", trees=2) + job("b", trees=2) + job("c", trees=1)) == {
        "a": [(0, 0), (1, 1)], "b": [(2, 2), (3, 3)], "c": [(4, 0)]}
    assert trees_of("first-job = 100\n" + four + job("a", trees=3) + job("b", trees=1)) == {
        "a": [(100, 0), (101, 1), (102, 2)], "b": [(103, 3)]}
    # Around the list, where that is what the operator allows.
    assert trees_of(four + job("a", spines=["spine3", "spine0"])) == {"a": [(3, 3), (4, 0)]}
    assert trees_of(four + job("a", trees=1, numbers=10) + job("b", trees=1)) == {"a": [(0, 0)], "b": [(13, 1)]}
    assert trees_of(four + job("a", algorithm="canary") + job("b", trees=1)) == {"a": [(0, i) for i in range(4)], "b": [(4, 0)]}
    # The third spine has no link to a leaf: nobody has it as a parent, and numbers count the others.
    done, _ = planned(spines(3) + leaf(0, range(3)) + leaf(1, range(2)) + job("a") + job("b", trees=1))
    plan = json.loads(done.stdout)
    assert plan["warnings"] == ["spine2 carries no trees: it has no link to leaf1"]
    assert [tree["job"] for tree in plan["jobs"][0]["trees"]] == [0, 1] and "spine2.toml" not in plan["files"]
    assert "spine2" not in plan["files"]["leaf0.toml"] and "10.1.0.3" not in plan["files"]["leaf0.toml"]
    # Links are level, not spines: jobs within racks.
    racks = spines(2) + leaf(0, range(2)) + leaf(1, range(2))
    within = "".join(job(f"a{i}", trees=1, hosts=[f"10.1.{i % 2 + 1}.11", f"10.1.{i % 2 + 1}.12"]) for i in range(4))
    done, _ = planned(racks + within)
    assert [link["tensors"] for link in json.loads(done.stdout)["links"]] == [1, 1, 1, 1]
    # Enough slots for all jobs of a switch.
    done, _ = planned(racks + "".join(job(f"b{i}") for i in range(16)))
    files = json.loads(done.stdout)["files"]
    assert "slots = 4352\n" in files["leaf0.toml"] and "slots" not in files["spine0.toml"]
    # Who has no ranks behind a leaf puts nothing on its links.
    done, _ = planned(four + job("a", trees=2, hosts=["10.1.1.11"]))
    assert [link["tensors"] for link in json.loads(done.stdout)["links"]] == [0.5, 0.5, 0, 0, 0, 0, 0, 0]


def complaints():
    good = spines(2) + leaf(0, range(2)) + leaf(1, range(2)) + job("a")
    for text, expected in (
            (good.replace("spine1 =", "spine9 ="), "leaf leaf0: there is no spine spine9"),
            (good.replace('"down1"', '"down0"'), "leaf leaf1: port down0 of spine0 leads elsewhere, too"),
            (good.replace("10.1.2.11", "10.1.1.11"), "leaf leaf1: address 10.1.1.11 is somebody else's, too"),
            (good.replace("10.1.0.1", "10.1.0"), "spine spine0: address '10.1.0' is no address that others reach"),
            (good.replace("10.1.0.1", "fe80::1"), "spine spine0: address 'fe80::1' is no address that others reach"),
            (good.replace("10.1.1.1\"", "fd77::1\""), "leaf leaf0: address fd77::1: all addresses must be IPv4, or all IPv6"),
            (good.replace('"down1"', '"a/b"'), "port 'a/b' of spine0 is no name of an interface"),
            (good.replace('name = "leaf1"', 'name = "leaf0"'), "leaf leaf0: the name is taken"),
            (good.replace('name = "leaf1"', 'name = "../leaf1"'), "a name has letters, digits"),
            (good + "size = 4\n", "job a: unknown key 'size'; known are aggregate-from, algorithm"),
            (good + "trees = 3\n", "job a: 3 trees, but 2 spines for them: spine0, spine1"),
            (good + "trees = 0\n", "job a: trees must be a number, 1 to 64"),
            (good + "ranks-per-host = 17\n", "4 hosts with 17 ranks each are 68 ranks; a job has 64 at most"),
            (good + 'hosts = ["10.9.9.9"]\n', "job a: no leaf has a host 10.9.9.9"),
            (good + "hosts = []\n", "job a: it has no hosts"),
            ("only-planned = true\n" + good + "numbers = 4\n", "numbers = 4: with only-planned spines admit none but"),
            (good + "".join(job(f"b{i}") for i in range(32)), "leaf0 has 66 trees, and a switch 64 jobs at most"),
            (good + 'algorithm = "atp"\n', "atp has a server above its switches"),
            (good + 'algorithm = "canary"\ntrees = 2\n', "canary uses all spines, by one job: leave out trees and spines"),
            (good + 'aggregate-from = "40MB"\n', "aggregate-from '40MB': write bytes"),
            (good + 'aggregate-from = "99999999999999999999G"\n', "write bytes"),
            ("first-job = 65535\n" + good, "no 2 job numbers left after 65534"),
            ('uplink-rate = "fast"\n' + good, "uplink-rate: 'fast' is not a rate"),
            (spines(4) + leaf(0, range(4)) + job("a", spines=["spine0", "spine2"]), "spines that follow each other"),
            (spines(2) + leaf(0, [0]) + leaf(1, [1]) + job("a"), "no spine has links to all leaves"),
            (spines(2) + job("a"), "leaf is missing: write at least one table [[leaf]]"),
            ("spine = 3\n", "write each spine as a table [[spine]]"),
            ("[[spine]\n", "FILE:1: Error while parsing")):
        done, error = planned(text)
        assert done.returncode == 1 and expected in error and not done.stdout, (text, expected, error)
    for file, expected in (("/", "/: it is a directory"), ("/none", "File could not be opened")):
        done = subprocess.run([INAGGCTL, "plan", file], capture_output=True, text=True)
        assert done.returncode == 1 and expected in done.stderr, done.stderr
    with open("/dev/full", "w") as full, tempfile.NamedTemporaryFile("w") as file:
        file.write(good)
        file.flush()
        assert subprocess.run([INAGGCTL, "plan", file.name], stdout=full, stderr=subprocess.PIPE).returncode == 1
    done, error = planned(good, "--into", "/proc/none")
    assert done.returncode == 1 and "--into /proc/none:" in error, error


class Fabric:
    """Namespaces of two leaves, two spines and four hosts, with routes instead of bridges: each switch has one address."""

    def __init__(self):
        self.spaces = {name: subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                                              stdout=subprocess.PIPE, preexec_fn=die_with_parent)
                       for name in (*SWITCHES, "host11", "host12", "host21", "host22")}
        for name, space in self.spaces.items():
            space.stdout.readline()
            self.on(name, "ip", "link", "set", "lo", "up")
            self.on(name, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        for spine in SPINES:
            self.on(f"spine{spine}", "ip", "addr", "add", f"10.1.0.{spine + 1}/32", "dev", "lo")
        for number in LEAVES:
            self.build_rack(f"leaf{number}", f"10.1.{number + 1}", number)
        for number in LEAVES:  # what is not inagg's goes over the first spine
            self.on(f"leaf{number}", "ip", "route", "add", f"10.1.{2 - number}.0/24", "via", "10.1.0.1", "dev", "up0", "onlink")

    def build_rack(self, leaf_name, rack, number):
        self.on(leaf_name, "ip", "addr", "add", f"{rack}.1/32", "dev", "lo")
        for spine in SPINES:
            self.connect(leaf_name, f"up{spine}", f"10.1.0.{spine + 1}", f"spine{spine}", f"down{number}", f"{rack}.1")
            self.on(f"spine{spine}", "ip", "route", "add", f"{rack}.0/24", "via", f"{rack}.1", "dev", f"down{number}")
        for host in range(2):
            name, address = f"host{number + 1}{host + 1}", f"{rack}.{host + 11}"
            self.on(name, "ip", "addr", "add", f"{address}/32", "dev", "lo")
            self.connect(leaf_name, f"h{host}", address, name, "eth0", f"{rack}.1")
            self.on(name, "ip", "route", "add", "default", "dev", "eth0", "via", f"{rack}.1", "onlink", "src", address)

    def on(self, name, *command):
        return run(*inside(self.spaces[name]), *command, capture_output=True)

    def connect(self, one, port, route, other, other_port, other_route):
        run(*inside(self.spaces[one]), "ip", "link", "add", port, "type", "veth", "peer", "name", other_port, "netns",
            str(self.spaces[other].pid))
        for name, at, to in ((one, port, route), (other, other_port, other_route)):
            self.on(name, "ip", "link", "set", at, "up")
            self.on(name, "ethtool", "-K", at, "gro", "on")
            self.on(name, "ip", "route", "add", to, "dev", at)

    def start(self, name, folder):
        return subprocess.Popen([*inside(self.spaces[name]), BUILD / "bin/inaggd", "--config", folder / f"{name}.toml",
                                 "--bpffs", BPFFS / name, "--run-dir", f"/run/{name}"],
                                stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def perf(self, host, environment):
        settings = dict(line.split("=", 1) for line in environment.read_text().splitlines() if "=" in line)
        sizes = ["-b", "4K", "-e", "256K", "-f", "64", "-n", "4"]
        return subprocess.Popen([*inside(self.spaces[host]), BUILD / "bin/inagg-perf", "allreduce", *sizes, "--check", "--json"],
                                env={**os.environ, **settings, "INAGG_TRANSPORT": "udp"}, stdout=subprocess.PIPE, text=True,
                                preexec_fn=die_with_parent)


def is_ready(switch):
    """The agent listens once its ports are served."""
    return Path(f"/run/{switch}/inaggd.sock").exists()


def stats(switch):
    done = run(INAGGCTL, "--bpffs", BPFFS / switch, "--json", "stats", capture_output=True)
    return {row["job"]: row for row in json.loads(done.stdout)}


def runs():
    mount_all()
    text = ('only-planned = true\n' + spines(2) + leaf(0, SPINES) + leaf(1, SPINES) +
            job("large", aggregate_from="64K") +
            job("one", trees=1, spines=["spine1"], aggregate_from="0", hosts=["10.1.2.12", "10.1.1.11"]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done, error = planned(text, "--into", name)
        assert done.returncode == 0, error
        fabric = Fabric()
        agents = [fabric.start(switch, folder) for switch in SWITCHES]
        until(lambda: all(is_ready(switch) for switch in SWITCHES), "the agents don't start")
        hosts = {"host11": "10.1.1.11", "host12": "10.1.1.12", "host21": "10.1.2.11", "host22": "10.1.2.12"}
        ranks = [fabric.perf(host, folder / f"large.{address}.env") for host, address in hosts.items()]
        ranks += [fabric.perf(host, folder / f"one.{hosts[host]}.env") for host in ("host22", "host11")]
        for rank in ranks:
            output, _ = rank.communicate(timeout=100)
            sizes = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
            assert rank.returncode == 0, output
            assert all(entry["wrong"] == 0 for entry in sizes if "size" in entry), output
        large0, large1 = stats("spine0")[0], stats("spine1")[1]
        assert large0["additions"] > 0 and abs(large0["additions"] - large1["additions"]) < large0["additions"] / 4
        assert [{job for job in stats(spine) if job is not None} for spine in ("spine0", "spine1")] == [{0}, {1, 3}]
        # 4 KiB, by the ring for the one and by its spine for the other.
        assert stats("spine1")[3]["additions"] > 0
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait()


def main():
    if sys.argv[1:] != ["inside"]:
        pools()
        places()
        complaints()
        enter_namespaces()
    runs()
    print("plan: PASS")


main()
