# SPDX-License-Identifier: BSD-2-Clause
"""A switch's namespace with ports p0, p1, ... and a worker's namespace behind each.

The test starts itself again in new mount, network and process namespaces: what it makes goes with its
processes, also after kill -9.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("INAGG_BUILD", ROOT / "build"))
BPFFS = Path("/sys/fs/bpf")
DIR = BPFFS / "inagg"
SKIP = 77


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIP)


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, **more)


def die_with_parent():
    """Children end with this program, whatever ends it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def enter_namespaces(*arguments):
    """Start this program again, with these and "inside", alone with its mounts, its network and its processes."""
    if os.geteuid() != 0:
        skip("network namespaces and XDP need root")
    for program in ("bpftool", "ip", "ethtool", "unshare", "nsenter"):
        if not shutil.which(program):
            skip(f"{program} is not installed: run `make deps`")
    os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                          sys.executable, "-B", sys.argv[0], *arguments, "inside"])


def inside(holder):
    return ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]


def mount_all():
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    run("mount", "-t", "bpf", "bpf", BPFFS)
    run("mount", "-t", "tmpfs", "tmpfs", "/run")


def build_network(ranks):
    """Bridge br0 with the switch's addresses; port pN leads to worker N's eth0. Returns the namespaces' holders."""
    mount_all()
    run("ip", "-batch", "-", input="link set lo up\nlink add br0 type bridge\naddr add 10.77.0.1/24 dev br0\n"
        "addr add fd77::1/64 dev br0 nodad\nlink set br0 up\n")
    return [add_worker(rank, "master", "br0") for rank in range(ranks)]


def until(true, what, patience=20):
    """Waits, so many seconds."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def add_worker(rank, *master):
    """`master`: where the port belongs to, as ip-link(8) says it."""
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                              stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    holder.stdout.readline()
    run("ip", "-batch", "-", input=f"link add p{rank} type veth peer name eth0 netns {holder.pid}\n"
        f"link set p{rank} {' '.join(master)} up\n")
    run(*inside(holder), "ip", "-batch", "-", input=f"link set lo up\naddr add 10.77.0.{10 + rank}/24 dev eth0\n"
        f"addr add fd77::{10 + rank}/64 dev eth0 nodad\nlink set eth0 up\n")
    run(*inside(holder), "ethtool", "-K", "eth0", "gro", "on")
    return holder


def attached(port):
    """Does the port run an XDP program?"""
    text = run("ip", "-json", "link", "show", "dev", port, capture_output=True).stdout
    return "xdp" in json.loads(text)[0]
