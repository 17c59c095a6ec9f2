#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""inaggctl doctor: each mistake is made on purpose, found by the check that is for it, with a fix, and not found without it."""

import contextlib
import json
import os
import re
import resource
import subprocess
import tempfile
from pathlib import Path

from agent import ELEMENTS, Agent, Worker, ctl, drops, main, start_fails, until
from network import BPFFS, BUILD, ROOT, die_with_parent, inside, run

CTL = BUILD / "bin/inaggctl"
WORKER = {"INAGG_SWITCH": "10.77.0.1", "INAGG_JOB": "7", "INAGG_RANK": "0", "INAGG_SIZE": "2"}


def examine(*interfaces, before=(), options=(), environment=None):
    """{check: [finding]} and the status."""
    done = subprocess.run([*before, CTL, "--json", *options, "doctor", *interfaces], capture_output=True, text=True,
                          env={**os.environ, **(environment or {})})
    assert done.stdout, done.stderr
    found = {}
    for finding in json.loads(done.stdout):
        found.setdefault(finding["check"], []).append(finding)
        assert (finding["state"] == "ok") == (not finding["fix"]), finding
    return found, done.returncode


def expect(found, check, state, *words):
    findings = found.get(check, [])
    matching = [finding for finding in findings
                if finding["state"] == state and all(word in finding["detail"] + finding["fix"] for word in words)]
    assert matching, f"{check} is not {state} with {words}: {findings}"


@contextlib.contextmanager
def instead(path, text):
    """A file of the kernel's says this, in these namespaces only."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        run("mount", "--no-mtab", "--bind", file.name, path)
        try:
            yield
        finally:
            run("umount", "--no-mtab", path)


@contextlib.contextmanager
def changed(there, back):
    run(*there)
    try:
        yield
    finally:
        run(*back)


# The machine.


def test_nothing_is_wrong(_):
    found, status = examine("p0")
    missing = [finding for findings in found.values() for finding in findings if finding["state"] == "missing"]
    assert status == 0 and not missing, missing
    for check in ("privileges: switch", "kernel", "XDP programs", "devmap", "ring buffer", "bpffs", "p0: link", "p0: address",
                  "p0: other programs", "p0: native XDP", "p0: MTU"):
        expect(found, check, "ok")
    assert not any(check.startswith(("worker", "switch")) for check in found), found


def test_no_privileges(_):
    found, status = examine(before=["setpriv", "--reuid=65534", "--clear-groups"])
    assert status == 1
    expect(found, "privileges: switch", "missing", "CAP_BPF", "root")
    expect(found, "privileges: xdp", "warn", "CAP_SYS_ADMIN")
    expect(found, "privileges: afxdp", "warn", "CAP_NET_RAW", "udp")
    for check in ("XDP programs", "devmap", "ring buffer"):
        expect(found, check, "warn", "as root")
    expect(found, "AF_XDP", "warn", "CAP_NET_RAW")


def test_no_privileges_to_know_whose_a_port_is(_):
    with Agent(ports=["p0"]):
        expect(examine("p0")[0], "p0: other programs", "ok", "none but the switch of")
        found, _status = examine("p0", before=["setpriv", "--reuid=65534", "--clear-groups"])
        expect(found, "p0: other programs", "warn", "is attached", "as root")


def test_an_old_kernel(_):
    found, status = examine(before=["setarch", "--uname-2.6"])
    assert status == 1
    expect(found, "kernel", "missing", "2.6", "6.1")


def test_no_bpffs(_):
    found, status = examine(options=["--bpffs=/tmp/inagg"])
    assert status == 1
    expect(found, "bpffs", "missing", "mount -t bpf")


def test_io_uring_is_disabled(_):
    path = Path("/proc/sys/kernel/io_uring_disabled")
    if not path.exists():
        print("SKIP: this kernel cannot disable io_uring")
        return
    with instead(path, "2\n"):
        expect(examine()[0], "io_uring", "warn", "sysctl kernel.io_uring_disabled=0")
    with instead(path, "0\n"):
        expect(examine()[0], "io_uring", "ok")


def test_little_locked_memory(_):
    expect(examine(before=["prlimit", "--memlock=65536"])[0], "memlock", "warn", "64 KiB", "ulimit -l")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    expect(examine()[0], "memlock", "ok" if soft == resource.RLIM_INFINITY or soft >= 8 << 20 else "warn")


def test_no_module(_):
    expect(examine()[0], "AF_INAGG", "ok" if Path("/proc/net/inagg").exists() else "warn")


def test_a_kernel_update_without_headers(_):
    if Path("/proc/net/inagg").exists():
        print("SKIP: the module is loaded")
        return
    dkms, release = Path("/var/lib/dkms/inagg"), os.uname().release
    with changed(["mount", "--no-mtab", "-t", "tmpfs", "tmpfs", "/var/lib"], ["umount", "--no-mtab", "/var/lib"]):
        (dkms / "0.1.0").mkdir(parents=True)
        (dkms / f"kernel-{release}1-x86_64").touch()  # another kernel
        expect(examine()[0], "AF_INAGG", "warn", f"for {release}", f"apt install linux-headers-{release} && dkms autoinstall")
        (dkms / f"kernel-{release}-x86_64").touch()
        expect(examine()[0], "AF_INAGG", "warn", "no such address family", "modprobe af_inagg")


def test_programs_that_are_not_installed(_):
    for program in ("clang", "bpftool"):
        expect(examine()[0], program, "ok", f"/{program}")
    with tempfile.TemporaryDirectory() as empty:
        run("mount", "--no-mtab", "--bind", empty, "/usr/sbin")  # where it looks, too
        try:
            found, status = examine(environment={"PATH": "/nonexistent"})
        finally:
            run("umount", "--no-mtab", "/usr/sbin")
    assert status == 0
    for program in ("clang", "bpftool"):
        expect(found, program, "warn", f"apt install {program}")


def test_a_kernel_without_btf(_):
    with changed(["mount", "--no-mtab", "-t", "tmpfs", "tmpfs", "/sys/kernel/btf"], ["umount", "--no-mtab", "/sys/kernel/btf"]):
        expect(examine()[0], "BTF", "warn", "CONFIG_DEBUG_INFO_BTF")
    expect(examine()[0], "BTF", "ok")


# Interfaces.


def test_no_such_interface(_):
    found, status = examine("nosuch")
    assert status == 1
    expect(found, "nosuch", "missing", "no such interface")


def test_an_interface_without_a_link(hosts):
    def states():
        return [examine("p0")[0]["p0: link"][0]["state"], examine("eth0", before=inside(hosts[0]))[0]["eth0: link"][0]["state"]]

    with changed([*inside(hosts[0]), "ip", "link", "set", "eth0", "down"], [*inside(hosts[0]), "ip", "link", "set", "eth0", "up"]):
        until(lambda: states() == ["warn", "warn"], "the link is seen to be down")  # the kernel tells it a moment later
        expect(examine("p0")[0], "p0: link", "warn", "other end")
        expect(examine("eth0", before=inside(hosts[0]))[0], "eth0: link", "warn", "ip link set dev eth0 up")
    run(*inside(hosts[0]), "ip", "addr", "replace", "fd77::10/64", "dev", "eth0", "nodad")  # it goes with the link
    until(lambda: states() == ["ok", "ok"], "the link is seen to be up")


def test_an_interface_without_an_address(_):
    run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
    with changed(["ip", "link", "set", "d0", "addrgenmode", "none", "up"], ["ip", "link", "del", "d0"]):
        expect(examine("d0")[0], "d0: address", "warn", "ip addr add")


@contextlib.contextmanager
def object_file(name):
    """An XDP program of that name that passes all."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pass.c").write_text(f'__attribute__((section("xdp"), used)) int {name}(void *ctx) {{ return 2; }}\n'
                                             'char licence_text[] __attribute__((section("license"), used)) = "GPL";\n')
        run("clang", "-O2", "-g", "-target", "bpf", "-c", f"{folder}/pass.c", "-o", f"{folder}/pass.o")
        yield f"{folder}/pass.o"


@contextlib.contextmanager
def attached_by_hand(name):
    """That program has the port p0, in generic mode."""
    pin = BPFFS / "by_hand"
    with object_file(name) as file:
        run("bpftool", "prog", "load", file, pin)
    with changed(["bpftool", "net", "attach", "xdpgeneric", "pinned", pin, "dev", "p0"],
                 ["bpftool", "net", "detach", "xdpgeneric", "dev", "p0"]):
        yield
    pin.unlink()


def expect_owner(state, *words):
    """Of the port p0, which inaggd cannot take."""
    found, status = examine("p0")
    expect(found, "p0: other programs", state, *words)
    assert (status == 1) == (state == "missing"), found
    refusal = start_fails("--port=p0", "--check")
    assert "port p0: another XDP program is attached" in refusal, refusal


def test_another_program_has_the_port(_):
    with attached_by_hand("others_pass"):
        expect_owner("missing", "others_pass", "ip link set dev p0 xdp off")
        expect(examine("p0")[0], "p0: native XDP", "warn", "generic")
    expect(examine("p0")[0], "p0: other programs", "ok", "none")


def test_another_switch_has_the_port(_):
    with attached_by_hand("inagg_switch"):
        expect_owner("warn", "XDP program inagg_switch is attached", "by hand goes with ip link set dev p0 xdp off")
    with Agent(f"--bpffs={BPFFS}/second", ports=["p0"]):
        expect_owner("warn", "XDP program inagg_switch is attached", "end the agent that has it")
        expect(examine("p0", options=[f"--bpffs={BPFFS}/second"])[0], "p0: other programs", "ok", f"the switch of {BPFFS}/second")


def test_the_loader_of_libxdp_has_the_port(_):
    with attached_by_hand("xdp_dispatcher"):
        expect_owner("warn", "XDP program xdp_dispatcher is attached", "ip link set dev p0 xdp off")
        expect(examine("p0", environment={"INAGG_RANK": "0"})[0], "p0: other programs", "ok", "xdp_dispatcher")


def test_large_frames(_):
    with changed(["ip", "link", "set", "p0", "mtu", "9000"], ["ip", "link", "set", "p0", "mtu", "1500"]):
        expect(examine("p0")[0], "p0: MTU", "warn", "9000", "3498")


def test_a_veth_without_gro(hosts):
    with changed([*inside(hosts[0]), "ethtool", "-K", "eth0", "gro", "off"], [*inside(hosts[0]), "ethtool", "-K", "eth0", "gro", "on"]):
        expect(examine("eth0", before=inside(hosts[0]))[0], "eth0: GRO or XDP", "warn", "ethtool -K eth0 gro on")
    expect(examine("eth0", before=inside(hosts[0]))[0], "eth0: GRO or XDP", "ok")


# A rank.


def test_a_rank_without_a_size(_):
    found, status = examine(environment={"INAGG_RANK": "0"})
    assert status == 1
    expect(found, "worker: environment", "missing", "INAGG_SIZE")
    found, status = examine(environment={"INAGG_RANK": "0", "INAGG_SIZE": "1"})
    assert status == 1
    expect(found, "worker: environment", "missing", "INAGG_SWITCH")


def test_a_rank_with_a_wrong_setting(_):
    expect(examine(environment={**WORKER, "INAGG_ALGORITHM": "ring"})[0], "worker: environment", "missing", "ring", "switchml")


def test_a_rank_with_a_name_for_an_address(_):
    expect(examine(environment={**WORKER, "INAGG_SWITCH": "switch.local"})[0], "worker: route", "missing", "switch.local")


def test_a_rank_without_a_route(hosts):
    found, status = examine(before=inside(hosts[0]), environment={**WORKER, "INAGG_SWITCH": "192.0.2.1"})
    assert status == 1
    expect(found, "worker: route", "missing", "192.0.2.1", "ip addr")


def test_a_switch_that_does_not_answer(hosts):
    found, status = examine(before=inside(hosts[0]), environment=WORKER)
    assert status == 1
    expect(found, "worker: environment", "ok", "rank 0 of 2 in job 7")
    expect(found, "worker: route", "ok")
    expect(found, "worker: switch answers", "missing", "inaggd")


def test_a_switch_that_answers_and_is_not_changed(hosts):
    for address in ("10.77.0.1", "fd77::1"):
        with Agent():
            found, status = examine(before=inside(hosts[0]), environment={**WORKER, "INAGG_SWITCH": address})
            assert status == 0, (address, found)
            expect(found, "worker: switch answers", "ok")
            assert not ctl("job", "list"), "the question has made a job"
            worker = Worker(hosts[0], 0).join()
            expect(examine(before=inside(hosts[0]), environment={**WORKER, "INAGG_SWITCH": address})[0], "worker: switch answers", "ok")
            assert [job["generation"] for job in ctl("job", "list")] == [worker.generation], "the question has changed a job"


def test_a_server_that_answers(hosts):
    server = subprocess.Popen([BUILD / "bin/inagg-ps", "--address=10.77.0.1"], preexec_fn=die_with_parent, stderr=subprocess.DEVNULL)
    until(lambda: examine(before=inside(hosts[0]), environment=WORKER)[1] == 0, "the server answers")
    server.terminate()
    assert server.wait(timeout=20) == 0


# A switch.


def test_a_switch_without_an_agent(hosts):
    agent = Agent()
    expect(examine()[0], "switch: agent", "ok")
    agent.kill()
    expect(examine()[0], "switch: agent", "warn", "start inaggd")
    Agent().stop()
    assert "switch: agent" not in examine()[0]


def test_a_job_that_waits_for_a_rank(hosts):
    with Agent():
        Worker(hosts[0], 0, size=3).join()
        expect(examine()[0], "switch: job 7", "warn", "waits for ranks 1, 2")
        for rank in (1, 2):
            Worker(hosts[rank], rank, size=3).join()
        expect(examine()[0], "switch: job 7", "ok")


def test_ranks_that_are_refused(hosts):
    with Agent():
        Worker(hosts[0], 0).join()
        examine(before=inside(hosts[1]), environment={**WORKER, "INAGG_RANK": "1"})  # its question does not count
        expect(examine()[0], "switch: refusals", "ok", "none in the last 10 minutes")
        for _ in range(2):
            assert Worker(hosts[1], 0).ask() == "TAKEN"
        assert Worker(hosts[1], 1, size=3).ask() == "SIZE"
        found, status = examine()
        assert status == 0 and len(found["switch: refusals"]) == 2, found
        expect(found, "switch: refusals", "warn", "TAKEN: 2 joins, the last ",
               " s ago: job 7, rank 0 from p1/10.77.0.11: rank is held by 10.77.0.10", "INAGG_RANK")
        expect(found, "switch: refusals", "warn", "SIZE: 1 joins", "job 7, rank 1 from p1/10.77.0.11: job has 2 ranks, not 3", "INAGG_SIZE")


def test_a_full_switch(hosts):
    with Agent("--slots=256"):
        expect(examine()[0], "switch: slots", "ok", "256 of 256")
        Worker(hosts[0], 0).join()
        expect(examine()[0], "switch: slots", "warn", "120 of 256", "--slots")


def test_ports_of_different_mtu(_):
    with Agent():
        expect(examine()[0], "switch: MTUs", "ok")
        with changed(["ip", "link", "set", "p1", "mtu", "1400"], ["ip", "link", "set", "p1", "mtu", "1500"]):
            expect(examine()[0], "switch: MTUs", "warn", "p1 1400", "p0 1500")


def test_a_port_without_a_link(hosts):
    with Agent():
        assert "switch: link" not in examine()[0]
        with changed([*inside(hosts[0]), "ip", "link", "set", "eth0", "down"], [*inside(hosts[0]), "ip", "link", "set", "eth0", "up"]):
            until(lambda: "switch: link" in examine()[0], "the link is seen to be down")
            (finding,) = examine()[0]["switch: link"]
            assert (finding["state"], finding["detail"]) == ("warn", "p0 has none"), finding
        run(*inside(hosts[0]), "ip", "addr", "replace", "fd77::10/64", "dev", "eth0", "nodad")  # it goes with the link
        until(lambda: "switch: link" not in examine()[0], "the link is seen to be up")


def test_ports_in_generic_mode(_):
    with changed(["ip", "link", "add", "d0", "type", "bridge"], ["ip", "link", "del", "d0"]):
        with Agent(ports=["p0", "d0"]):
            expect(examine()[0], "switch: native XDP", "warn", "slower: d0")
            expect(examine("d0")[0], "d0: native XDP", "warn", "generic")
    with Agent():
        expect(examine()[0], "switch: native XDP", "ok")


def test_a_switch_that_cannot_be_read(_):
    with Agent():
        found, _ = examine(before=["setpriv", "--reuid=65534", "--clear-groups"])
        (finding,) = found["switch: state"]
        assert finding["state"] == "warn" and "--bpffs and --run-dir" in finding["fix"], finding
        assert "switch: state" not in examine()[0]


def test_the_recipes_for_bpftool(hosts):
    document = (ROOT / "docs/TROUBLESHOOTING.md").read_text()
    (recipes,) = re.findall(r"<!-- bpftool-recipes:begin -->\n```bash\n(.*?)```\n<!-- bpftool-recipes:end -->", document, re.S)
    with Agent():
        Worker(hosts[0], 0).join()
        done = run("bash", "-e", "-c", recipes, capture_output=True)
        for shown in ("p0", "inagg_switch", '"address4"', '"generation"', '"rank"'):
            assert shown in done.stdout, (shown, done.stdout)


def test_drops_that_mean_something(hosts):
    with Agent():
        workers = [Worker(hosts[rank], rank).join() for rank in range(2)]
        expect(examine()[0], "switch: drops", "ok", "none but of late and doubled packets")
        liar = Worker(hosts[2], 0, nonce=workers[0].nonce)
        liar.generation = workers[0].generation
        liar.contribute(0, 1)
        until(lambda: drops("PORT"), "the forged contribution is counted")
        expect(examine()[0], "switch: drops", "warn", "PORT", "INAGG_RANK")
        workers[0].send("CONTRIBUTION", generation=workers[0].generation, slot=5000, elements=[1] * ELEMENTS)
        until(lambda: drops("SLOT"), "the slot that is not there is counted")
        expect(examine()[0], "switch: drops", "warn", "SLOT: 1 packets", "start the job again")
        workers[0].generation += 1
        workers[0].contribute(0, 1)
        until(lambda: drops("GENERATION"), "the late packet is counted")
        assert not any("GENERATION" in finding["detail"] for finding in examine()[0]["switch: drops"])


if __name__ == "__main__":
    main(globals())
