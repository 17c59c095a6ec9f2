# SPDX-License-Identifier: BSD-2-Clause
"""inagg-perf in a run of inagg-netns, and what must hold of every such run."""

import itertools
import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass

from netns import HERE, RUN_LIMIT, Run, netns

DTYPES = "int32,float32,float16,bfloat16"
TRANSPORTS = ("udp", "afxdp", "xdp")


def compared(sums):
    """Of inagg-perf: so many sums, each of which is compared. Timed ones are not."""
    return ("-n", 0, "--check-iterations", sums)


QUICK = compared(3)


def jobs_of(size):
    """Shell: ranks are shared out to jobs of so many."""
    return f"export INAGG_JOB=$((INAGG_RANK / {size} + 1)) INAGG_RANK=$((INAGG_RANK % {size})) INAGG_SIZE={size}; "


THREE_A_JOB = jobs_of(3)


@dataclass
class Result:
    run: Run
    sizes: list  # one object for each size
    counters: dict  # of all ranks together
    switch: dict  # the job's counters in the switch, or in the servers

    def hashes(self):
        return [entry["hash"] for entry in self.sizes]


def objects(text):
    """The JSON values in `text`, one after the other, other lines left out."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(text):
        if text[at] in "{[":
            value, at = decoder.raw_decode(text, at)
            found.append(value)
        at = text.find("\n", at) + 1 or len(text)
    return found


# While the agent begins a job anew, since all its ranks have left, the job is not in the switch.
COUNTERS = """for try in 1 2 3 4 5 6 7 8 9 10; do
    stats=$(inaggctl --json stats) || exit
    case $stats in *'"job": '$INAGG_JOB,*) break;; esac
    sleep 0.1
done
echo "$stats"
"""


def with_counters(command, server=False):
    """Shell: `command`, then on rank 0 the counters of the switch. A server writes its own when it ends."""
    return ["sh", "-c", command if server else f"{command} || exit; test $INAGG_RANK != 0 || {{ {COUNTERS}}}"]


def server_options(tmp_path, kind="inagg-ps"):
    return ("--switch", kind, "--root-arg", "--stats", "--root-arg", tmp_path / "{}.json")


def server_stats(tmp_path, name="switch"):
    return json.loads((tmp_path / f"{name}.json").read_text())


def operations(perf):
    """(type, operator) of each that inagg-perf is to measure, from its arguments."""
    def listed(default, *names):
        found = [value for name, value in zip(perf, perf[1:]) if name in names]
        return (",".join(found) if found else default).split(",")
    return set(itertools.product(listed("float32", "-d", "--dtype"), listed("sum", "-o", "--op")))


def total(rows):
    """Counters of several jobs together."""
    numbers = [key for key, value in rows[0].items() if isinstance(value, int)]
    return {**{key: sum(row[key] for row in rows) for key in numbers},
            "reasons": dict(sum((Counter(row.get("reasons")) for row in rows), Counter()))}


def sums_of(run, rank=0):
    """What inagg-perf says of each size."""
    return [value for value in objects("\n".join(run.lines(rank)) + "\n") if "wrong" in value and "size" in value]


def are_exact(entries):
    """What inagg-perf has found of each size."""
    return all(entry["wrong"] == 0 and entry["same"] for entry in entries)


def allreduce(tmp_path, workers, *perf, transport="udp", job=1, algorithm="switchml", options=(), environment=None,
              restarts=False, stragglers="", settings="", sources=None, server=False, trees=1, command="{}", limit=RUN_LIMIT):
    """Run a checked allreduce; assert that every element is right, that all ranks have the same bits and that the switch
    made the sums. `restarts`: the switch may forget slots meanwhile, so that it adds some packets again. `stragglers`:
    settings of a trio job that decides blocks without them. `settings`: others of the job. `sources`: what the root of a tree of switches adds for each
    block, ranks and switches, instead of one contribution a rank. `server`: inagg-ps in the place of the root, and for each
    of the other `trees`; "bmv2": and a P4 switch below it."""
    jobs = range(job, job + trees)
    line = shlex.join(map(str, ("inagg-perf", "allreduce", *perf, "--check", "--json")))
    wanted = f"size={workers},algorithm={algorithm}{stragglers}{settings}{',checked' if '--corrupt' in options else ''}"
    configured = [word for number in jobs  # keep their counters at the end
                  for word in ("--root-arg", "--job", "--root-arg", f"{number}:{wanted}")]
    servers = () if not server else server_options(tmp_path) if server is True else server_options(tmp_path, server)
    run = netns(tmp_path, "--workers", workers, "--algorithm", algorithm, "--transport", transport, "--job", job,
                "--trees", trees, *configured, *servers, *options, "--",
                *with_counters(command.format(line), server), environment=environment, limit=limit)
    assert run.status == 0
    values = objects("\n".join(run.lines(0)) + "\n")
    if server:
        values += [server_stats(tmp_path, name) for name in ("switch", *(f"server{tree}" for tree in range(1, trees)))]
    sizes = [value for value in values if "size" in value]
    counters = next(value["counters"] for value in values if "counters" in value)
    switch = total([row for value in values if isinstance(value, list) for row in value if row["job"] in jobs])
    assert sizes
    assert {(entry["dtype"], entry["op"]) for entry in sizes} == operations(perf)
    assert are_exact(sizes)
    assert all(entry["workers"] == workers and entry["transport"] == transport for entry in sizes)
    blocks = counters["blocks"] // workers
    if restarts or stragglers:
        assert switch["completions"] >= blocks
    else:
        # Nothing was summed elsewhere, and nothing twice. The counters travel in blocks of their own, one a rank.
        # A rack's switch passes on to trio's root what it has no room for, and what a rank has asked for too often.
        passed_on = switch["additions"] - (sources or workers) * switch["completions"]
        assert 0 <= passed_on <= (blocks // 10 if sources and algorithm == "trio" else 0)
        assert 0 <= switch["completions"] - blocks <= workers + 2
    return Result(run, sizes, counters, switch)


def assert_exact(run, jobs, ranks=3):
    """Each of so many jobs, of so many ranks, has summed, and every element is right."""
    assert run.status == 0
    for leader in range(0, ranks * jobs, ranks):
        entries = sums_of(run, leader)
        assert entries and are_exact(entries) and all(entry["workers"] == ranks for entry in entries)


def assert_lossy(result):
    """Frames were lost, and packets were sent again because of it."""
    assert result.run.links["total"]["dropped"] + result.run.links["total"]["corrupted"] > 0
    assert result.counters["retransmissions"] + result.counters["requests"] > 0


def miss_the_end(tmp_path, link, *options, environment=None):
    """Rank 0 is started again while `link` of rank 1 or its switch is cut, until nobody says any more that the job was
    restarted: rank 1 asks."""
    run = netns(tmp_path, "--workers", 2, *options, "--cut", f"{link}@2s", "--mend", f"{link}@6s", "--", HERE / "miss-end", "2.2",
                environment={"INAGG_TIMEOUT_MS": "60000", **(environment or {})})
    assert run.status == 0
    assert "refused REPLACED: the run has ended here" in run.error
    assert re.search(r"^\[1\] .*restarted by another run", run.error, re.MULTILINE)
