# SPDX-License-Identifier: BSD-2-Clause
"""How faults are injected, what may follow, and how to see that they were."""

import re

from plan import FATAL_WITH_SERVER

JOBS = (10, 20)  # numbers; those of a job's trees follow
MARK = "injected"
REFUSED = "could not inject"
KEPT = "has jobs or slots that nobody uses"


def pins(switch):
    """Options of inaggctl for a switch, and its directories."""
    own = "" if switch in ("switch", "spine0") else f"-{switch}"
    return f"--bpffs /sys/fs/bpf/inagg{own} --run-dir /run/inagg{own}"


def beside(fault, command, undo=""):
    """Shell in the switch's namespace: at its time the fault, and its end; a mark says whether it was done."""
    later = f"; sleep {fault.end - fault.begin:.2f}; {undo}" if undo else ""
    return ["--also-in-switch", f"sleep {fault.begin}; if {command}; then echo {MARK} {fault.kind} {fault.where}{later}; "
                                f"else echo {REFUSED} {fault.kind} {fault.where}; fi; true"]


def agent_of(switch, server=False):
    """The name in the log."""
    return "inagg-ps" if server else "inaggd" if switch == "switch" else switch


def options(scenario, fault):
    """What inagg-netns is told; what happens to workers their own shell does."""
    begin, end, where = f"{fault.begin}s", f"{fault.end}s", fault.where
    at = f"{where}@" if where not in ("switch", "") else ""
    match fault.kind:
        case "agent-killed":
            return ["--kill-inaggd", at + begin, "--restart-inaggd", at + end]
        case "upgrade":
            return beside(fault, f"inaggctl {pins(where)} reload")
        case "slots-cleared":
            keep = "--keep-boot" if scenario.seed % 2 else ""
            return beside(fault, f"inaggctl {pins(where)} slots clear {keep}")
        case "mtu":
            return beside(fault, f"ip link set {where} mtu 1280", f"ip link set {where} mtu 1500")
        case "link-cut":
            return ["--cut", f"{where}@{begin}", "--mend", f"{where}@{end}"]
        case "server-killed":
            return ["--kill-inaggd", begin]
        case "server-restarted":
            return ["--kill-inaggd", begin, "--restart-inaggd", end]
        case "worker-killed":
            return ["--kill", f"{where}@{begin}"]
    return []


def around(scenario, rank):
    """Shell that runs `rank`, a command, with what is to happen to it."""
    for fault in scenario.faults:
        mine = f"test $INAGG_RANK = {fault.where}"
        if fault.kind == "worker-restarted":  # the others are told; then all begin again
            return (f"if {mine}; then {rank} & sleep {fault.begin}; kill -KILL $! && echo {MARK} {fault.kind}; {rank}; "
                    f"else {rank} || {{ test $? = 1 && {rank}; }}; fi")
        if fault.kind == "worker-stopped":
            pause = f"sleep {fault.begin}; kill -STOP $p && echo {MARK} {fault.kind}; sleep {fault.end - fault.begin:.2f}; kill -CONT $p"
            rank = f"{{ {rank} & p=$!; if {mine}; then ({pause}) & fi; wait $p; }}"
    return rank


def settled(scenario):
    """Shell: wait until all switches have given back what the jobs had, or say that one has not."""
    checks = []
    for switch in scenario.switches():
        status = f"inaggctl {pins(switch)} --json status | grep -Eq '\"(jobs|slots_used)\": [1-9]'"
        checks.append(f"for try in $(seq 50); do {status} || break; sleep 0.1; done; if {status}; then echo {switch} {KEPT}; fi")
    return "; ".join(checks)


def injected(scenario, fault, run):
    """Did the run see it?"""
    match fault.kind:
        case "agent-killed":
            return len(re.findall(rf"^\[{agent_of(fault.where)}\].* boot id", run.error, re.M)) > 1
        case "server-restarted" | "server-killed" | "worker-killed" | "link-cut":
            return run.seconds > fault.begin  # nobody tells of it, and inagg-netns keeps its times
    return re.search(rf"^\[\w+\] {MARK} {fault.kind}( {fault.where})?$", run.output, re.M) is not None


def refused(scenario, run):
    """What the run says of faults whose command failed, though the agent that it needs was not killed."""
    killed = {fault.where for fault in scenario.faults if fault.kind == "agent-killed"}
    lines = {f"{REFUSED} {fault.kind} {fault.where}" for fault in scenario.faults if fault.where not in killed}
    return [line for line in run.output.splitlines() if re.sub(r"^\[\w+\] ", "", line) in lines]


def impairments(run):
    """Frames that the links lost, doubled, damaged and held up."""
    total = run.links.get("total", {})
    return {name: total.get(name, 0) for name in ("dropped", "duplicated", "corrupted", "reordered")}


def fatal(scenario):
    """The fault that may end jobs, or None."""
    return next((fault for fault in scenario.faults if fault.kind in FATAL_WITH_SERVER), None)


def goes_on(scenario):
    """Must all jobs come to a good end, perhaps after a new start?"""
    return fatal(scenario) is None or fatal(scenario).kind == "worker-restarted"
