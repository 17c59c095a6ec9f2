# SPDX-License-Identifier: BSD-2-Clause
"""Jobs with a key: exact or an error, whatever a switch, or a link, does to their sums."""

import pytest

from allreduce import DTYPES, QUICK, allreduce, objects
from netns import BUILD, netns

KEY = {"INAGG_KEY": "5f2b1c0d9e8a7766554433221100ffee"}
SIZES = ("-b", "4K", "-e", "256K", "-f", 8)
TREE = ("--topology", "two-level")


@pytest.mark.parametrize("algorithm, transport, more", [
    ("switchml", "udp", {}),
    ("switchml", "afxdp", {}),
    ("switchml", "udp", {"options": (*TREE, "--loss", 0.01), "sources": 2}),
    ("trio", "udp", {"options": ("--loss", 0.01, "--inaggd-arg=--buckets=16384")}),  # a block that makes room is added to anew
    ("atp", "udp", {"options": (*TREE, "--loss", 0.01), "server": True, "restarts": True}),
])
def test_exact(tmp_path, algorithm, transport, more):
    result = allreduce(tmp_path, 4, *SIZES, *QUICK, "-d", DTYPES, algorithm=algorithm, transport=transport, environment=KEY, **more)
    assert result.counters["mismatches"] == 0


def test_exact_where_leaders_add(tmp_path):
    run = netns(tmp_path, "--workers", 4, "--topology", "leaf-spine", "--algorithm", "canary", "--loss", 0.01, "--",
                *perf("float32"), environment=KEY)
    assert run.status == 0 and rows(run) and wrong(run) == 0


def perf(dtype):
    return ("inagg-perf", "allreduce", "-b", "1M", "-e", "1M", "-n", 1, "-w", 0, "--check-iterations", 30, "-d", dtype,
            "--check", "--json")


def rows(run):
    return [value for rank in range(2) for value in objects("\n".join(run.lines(rank)) + "\n") if "wrong" in value]


def wrong(run):
    return sum(row["wrong"] for row in rows(run))


def expect_error_or_exact(run):
    """No rank takes a wrong sum; if there is one it says so."""
    assert wrong(run) == 0
    assert run.status == 0 or "is not the sum of what the ranks have sent" in run.error or "no progress" in run.error


DAMAGE = ("--workers", 3, "--corrupt", 0.0005, "--corrupt-offset", 106)  # elements only


def test_links_that_damage_elements(tmp_path):
    def run(environment):
        return netns(tmp_path, *DAMAGE, "--", "sh", "-c", "INAGG_CHECKED=0 exec " + " ".join(map(str, perf("int32"))),
                     environment=environment, lies=not environment)

    assert wrong(run({})) > 0, "without the key it goes through"
    expect_error_or_exact(run(KEY))


def test_links_that_damage_elements_with_checksums(tmp_path):
    run = netns(tmp_path, *DAMAGE, "--", *perf("int32"), environment=KEY)
    assert run.status == 0 and rows(run) and wrong(run) == 0


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_memory_of_the_switch_that_changes(tmp_path, dtype):
    def run(environment):
        saboteur = f"{BUILD}/bin/saboteur /sys/fs/bpf/inagg/slots 4"
        return netns(tmp_path, "--workers", 3, "--also-in-switch", saboteur, "--", *perf(dtype),
                     environment={**environment, "INAGG_TIMEOUT_MS": "3000"}, lies=not environment)

    assert wrong(run({})) > 0, "without the key it goes through"
    keyed = run(KEY)
    expect_error_or_exact(keyed)
    assert "is not the sum" in keyed.error


REFUSED_KEYS = [
    ({"INAGG_KEY": "secret"}, "INAGG_KEY has 6 characters"),
    ({"INAGG_KEY": ""}, "INAGG_KEY is empty"),
    ({"INAGG_KEY_FILE": ""}, "INAGG_KEY_FILE is empty"),
    ({"INAGG_KEY_FILE": "/nonexistent"}, "INAGG_KEY_FILE='/nonexistent': No such file or directory"),
    ({**KEY, "INAGG_KEY_FILE": "/nonexistent"}, "set one of them"),
    ({**KEY, "INAGG_AGGREGATE_FROM": "64K"}, "does not verify"),
    ({**KEY, "INAGG_TRANSPORT": "xdp"}, "transport 'xdp' does not verify results with a key: use afxdp, kernel, udp or auto"),
    ({**KEY, "INAGG_ALGORITHM": "atp", "INAGG_SCALE": "3"}, "set INAGG_SCALE=auto"),
]


def test_keys_that_cannot_be(tmp_path):
    def attempt(variables):
        words = " ".join(f"{name}={value}" for name, value in variables.items())
        return f"(export {words}; {' '.join(map(str, perf('int32')))}) && exit 99; echo next >&2; "

    run = netns(tmp_path, "--workers", 1, "--", "sh", "-c", "".join(attempt(variables) for variables, _ in REFUSED_KEYS))
    assert run.status == 0
    said = "\n".join(line for line in run.error.splitlines() if line.startswith("[0] ")).split("[0] next")
    assert all(message in part for (_, message), part in zip(REFUSED_KEYS, said[:-1], strict=True))
    assert "secret" not in run.error


def test_key_in_a_file(tmp_path):
    file = tmp_path / "key"
    file.write_text(KEY["INAGG_KEY"] + "\n")
    run = netns(tmp_path, "--workers", 2, "--", *perf("int32"), environment={"INAGG_KEY_FILE": str(file)})
    assert run.status != 0 and "others than its owner may use it (mode 0644): chmod 600" in run.error
    file.chmod(0o600)
    run = netns(tmp_path, "--workers", 2, "--", *perf("int32"), environment={"INAGG_KEY_FILE": str(file)})
    assert run.status == 0 and wrong(run) == 0
    file.write_text(2 * (KEY["INAGG_KEY"] + "\n"))
    run = netns(tmp_path, "--workers", 2, "--", *perf("int32"), environment={"INAGG_KEY_FILE": str(file)})
    assert run.status != 0 and "it has more than 32 hexadecimal digits" in run.error
