# SPDX-License-Identifier: BSD-2-Clause
"""What happens in a scenario, from its seed alone: the same seed makes the same plan."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    kind: str
    begin: float  # seconds from the start of the ranks
    end: float
    where: str = ""  # a switch, a link or a rank


@dataclass(frozen=True)
class Scenario:
    seed: int
    algorithm: str
    topology: str
    transport: str
    switch: str  # inaggd, or inagg-ps in the place of the root
    leaves: int
    spines: int
    trees: int
    workers: int
    jobs: int
    seconds: float  # that the ranks go on
    elements: int  # at most, of a tensor
    ipv6: bool
    links: tuple  # (impairment, value)
    faults: tuple
    shares: int  # of switches' aggregators and descriptors: two jobs meet in them only if there is one

    def leaf_spine(self):
        return self.topology == "leaf-spine"

    def switches(self):
        """Those with an agent, by inagg-netns's names; the first one is the root."""
        leaves = {"star": 0, "bridge": 0, "two-level": 2}.get(self.topology, self.leaves)
        roots = [f"spine{spine}" for spine in range(self.spines)] if self.leaf_spine() else ["switch"]
        return (roots if self.switch == "inaggd" else []) + [f"leaf{leaf}" for leaf in range(leaves)]

    def shape(self):
        """For people."""
        server = " with inagg-ps" if self.switch == "inagg-ps" else ""
        return (f"{self.algorithm}, {self.topology}{server}, {self.transport}, {self.workers} ranks, {self.jobs} job"
                f"{'s' * (self.jobs > 1)}{f' of {self.trees} trees' * (self.trees > 1)}, up to {self.elements} elements"
                f"{', IPv6' * self.ipv6}{f', {self.shares} shares' * (self.shares > 1)}")


# Algorithm, topologies, transports: afxdp and xdp take their host's port, so that jobs do not share one.
SHAPES = (
    ("switchml", ("star", "bridge", "two-level", "leaf-spine"), ("udp", "udp", "afxdp", "xdp")),
    ("trio", ("star", "two-level"), ("udp", "afxdp")),
    ("panama", ("star", "two-level"), ("udp", "afxdp")),
    ("canary", ("star", "leaf-spine"), ("udp",)),
    ("atp", ("two-level",), ("udp",)),
    ("switchml", ("star", "two-level"), ("udp",)),  # with a server
)
LINKS = {"loss": (0.002, 0.01, 0.03), "dup": (0.02, 0.1), "reorder": (0.02, 0.1), "corrupt": (0.002, 0.01)}
SURVIVED = ("agent-killed", "upgrade", "slots-cleared", "link-cut", "mtu", "worker-stopped")
FATAL = ("worker-killed", "worker-restarted")
FATAL_WITH_SERVER = FATAL + ("server-killed", "server-restarted")
FATAL_SHARE = 0.25  # of the scenarios: the others must not lose anything
FIRST_FAULT = 2  # the ranks have joined by then, mostly
IN_A_TREE = 1.5  # so much later there


def links_of(rng):
    names = rng.sample(sorted(LINKS), rng.choice((0, 0, 1, 2, 4)))
    return tuple((name, rng.choice(LINKS[name])) for name in names)


def fault_of(rng, kind, shape, begin):
    """A fault of `kind` that is over in good time; None where there is no place for it."""
    where, end = "", begin + rng.uniform(0.2, 0.9)
    if kind in ("agent-killed", "upgrade", "slots-cleared"):
        if not shape.switches():
            return None
        where = rng.choice(shape.switches())
    elif kind == "mtu":
        if shape.switch != "inaggd" or shape.topology != "star":
            return None
        where = f"p{rng.randrange(shape.workers)}"
    elif kind == "link-cut":
        uplinks = [f"leaf{leaf}/uplink{spine}" for leaf in range(shape.leaves) for spine in range(shape.spines)]
        spread = shape.algorithm == "canary" and shape.leaf_spine()  # else a cut moves trees, which are not here to stay
        where = rng.choice(uplinks if spread and rng.random() < 0.5 else [f"host{rng.randrange(shape.workers)}"])
    elif kind.startswith("worker"):
        where = str(rng.randrange(shape.workers))
    return Fault(kind, round(begin, 2), round(end, 2), where)


def faults_of(rng, shape):
    """One that may end jobs, or a few that must not, apart in time only where they are of one kind and place."""
    first = FIRST_FAULT + (IN_A_TREE if shape.topology not in ("star", "bridge") else 0)
    if rng.random() < FATAL_SHARE:
        kind = rng.choice(FATAL_WITH_SERVER if shape.switch == "inagg-ps" else FATAL)
        return (fault_of(rng, kind, shape, rng.uniform(first, first + 1)),)
    faults, busy = [], {}
    for _ in range(rng.randint(1, 5)):
        fault = fault_of(rng, rng.choice(SURVIVED), shape, rng.uniform(first, shape.seconds - 0.5))
        if fault and fault.kind == "agent-killed" and ("agent-killed", fault.where) in {(seen.kind, seen.where) for seen in faults}:
            continue  # inagg-netns takes an agent that ends before it is ready for one that cannot start
        if fault and all(fault.begin > end + 0.5 or fault.end + 0.5 < begin for begin, end in busy.get(fault.where, ())):
            busy.setdefault(fault.where, []).append((fault.begin, fault.end))
            faults.append(fault)
    return tuple(sorted(faults, key=lambda fault: fault.begin))


def plan(seed):
    """The scenario of a seed."""
    rng = random.Random(seed)
    index = rng.randrange(len(SHAPES))
    algorithm, topologies, transports = SHAPES[index]
    topology = rng.choice(topologies)
    transport = rng.choice(transports if topology in ("star", "two-level") else ("udp",))
    leaf_spine = topology == "leaf-spine"
    workers = rng.choice((4, 6) if leaf_spine else (2, 3, 4, 5))
    values = dict(
        seed=seed, algorithm=algorithm, topology=topology, transport=transport,
        switch="inagg-ps" if index >= len(SHAPES) - 2 else "inaggd", leaves=2 if leaf_spine else 0, spines=2 if leaf_spine else 0,
        trees=rng.choice((1, 2)) if leaf_spine and algorithm == "switchml" else 1, workers=workers,
        jobs=rng.choice((1, 2)) if transport == "udp" else 1, seconds=round(rng.uniform(4.5, 7), 1),
        elements=rng.choice((500, 5000, 50000)), ipv6=rng.random() < 0.3, links=links_of(rng))
    faults = faults_of(rng, Scenario(**values, faults=(), shares=1))
    return Scenario(**values, faults=faults, shares=rng.choice((1, 2, 64)) if algorithm in ("atp", "canary") else 1)
