#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The metrics of inaggd and inagg-ps beside what inaggctl says, with Debian's Prometheus, and the Grafana dashboard."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from agent import DECIDES_EARLY, Agent, Worker, busy_switch, ctl, expect_nothing_left, late_rank, main, start_fails, sums, until
from network import BUILD, ROOT, die_with_parent

PORT, PROMETHEUS_PORT = 9400, 9090
UNPACKED = Path(BUILD).resolve() / "prometheus"  # Debian's package: if it were installed, it would start a service
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
STILL = {"Blocks missed, by rank", "Collisions and partial sums"}  # panels whose rates stay 0 here


def program(name):
    """A program of the package, installed or unpacked, or None."""
    unpacked = UNPACKED / "usr/bin" / name
    return shutil.which(name) or (str(unpacked) if unpacked.exists() else None)


def fetch():
    """Unpack the package unless its programs are here, or it cannot be downloaded. The namespaces have no way out."""
    if program("prometheus") and program("promtool"):
        return
    UNPACKED.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "-q", "download", "prometheus"], cwd=UNPACKED, timeout=60, capture_output=True)
    for package in UNPACKED.glob("prometheus_*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, UNPACKED], check=True)
        package.unlink()


def text_of(port=PORT, host="127.0.0.1"):
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def parsed(text):
    """{(name, labels): value}; the labels as sorted pairs."""
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            samples[name, tuple(sorted(re.findall(r'(\w+)="(.*?)"', labels or "")))] = float(value)
    return samples


def test_the_counters_are_those_of_inaggctl(hosts):
    with Agent(f"--metrics={PORT}"):
        busy_switch(hosts)
        metrics = parsed(text_of())
        rows = ctl("stats")
        assert {row["job"] for row in rows} == {7, None}
        for row in rows:
            number = row.pop("job")
            job = "none" if number is None else str(number)
            drops = row.pop("drops")
            for name, value in row.items():
                assert metrics[f"inagg_job_{name}_total", (("inagg_job", job),)] == value, (job, name)
            assert drops == sum(value for (name, labels), value in metrics.items()
                                if name == "inagg_job_drops_total" and ("inagg_job", job) in labels)
        assert metrics["inagg_job_completions_total", (("inagg_job", "7"),)] == 3
        for row in ctl("drops"):
            job = "none" if row["job"] is None else str(row["job"])
            assert metrics["inagg_job_drops_total", (("inagg_job", job), ("reason", row["reason"]))] == row["packets"]
        status, job = ctl("status"), ctl("job", "show", "7")
        assert metrics["inagg_slots_used", ()] == status["slots_used"] > 0
        assert metrics["inagg_slots", ()] == status["slots"] and metrics["inagg_jobs", ()] == 1
        assert metrics["inagg_job_ranks_joined", (("inagg_job", "7"),)] == job["joined"] == 2
        assert metrics["inagg_job_info", (("algorithm", "switchml"), ("inagg_job", "7"))] == 1


def test_nobody_listens_unless_asked(_):
    with Agent():
        try:
            text_of()
            raise AssertionError("there are metrics that nobody asked for")
        except urllib.error.URLError:
            pass


def test_another_address_and_a_reload(hosts):
    with Agent(f"--metrics=10.77.0.1:{PORT}"):
        assert parsed(text_of(host="10.77.0.1"))["inagg_jobs", ()] == 0
        busy_switch(hosts)
        ctl("reload")
        until(lambda: ctl("status")["agent"] == "running", "the agent is back")
        assert parsed(text_of(host="10.77.0.1"))["inagg_job_completions_total", (("inagg_job", "7"),)] == 3


def test_addresses_that_cannot_be(_):
    for where in ("0", "65536", "localhost:9400", "10.77.0.1", "[::1]:9400", "10.77.0.1:"):
        done = subprocess.run([BUILD / "bin/inaggd", "--port=p0", f"--metrics={where}"], capture_output=True, text=True)
        assert done.returncode and "ADDRESS:PORT" in done.stderr, (where, done.stderr)
    assert "Cannot assign" in start_fails("--port=p0", "--metrics=10.99.0.1:9400")
    assert "Cannot assign" in start_fails("--port=p0", "--metrics=10.99.0.1:9400", "--check")
    with Agent(f"--metrics={PORT}", ports=["p1"]):
        assert "does another program?" in start_fails("--port=p0", f"--metrics={PORT}", "--run-dir=/run/second",
                                                      "--bpffs=/sys/fs/bpf/second")
    expect_nothing_left()


def test_the_server(_):
    process = subprocess.Popen([BUILD / "bin/inagg-ps", "--address=10.77.0.1", f"--metrics={PORT}", "--job=5:size=2"],
                               preexec_fn=die_with_parent, stderr=subprocess.DEVNULL)

    def scraped():
        try:
            return parsed(text_of())
        except OSError:
            return None

    until(scraped, "inagg-ps has metrics")
    metrics = scraped()
    assert metrics["inagg_jobs", ()] == 1 and metrics["inagg_job_ranks", (("inagg_job", "5"),)] == 2
    assert metrics["inagg_job_packets_total", (("inagg_job", "past"),)] == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0


def rows_of(expression):
    """What Prometheus answers to an instant query; nothing while it is not ready."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/query?{query}", timeout=10) as answer:
            return json.load(answer)["data"]["result"]
    except OSError:
        return []


def ask_prometheus(expression):
    """The values of an instant query, by job."""
    return {row["metric"].get("inagg_job"): float(row["value"][1]) for row in rows_of(expression)}


def greatest(expression):
    return max((float(row["value"][1]) for row in rows_of(expression)), default=None)


def all_panels_have_data(hosts, workers):
    """What the panels show happens between two scrapes: none is empty then, and those that show it are above 0."""
    for block in range(3, 6):
        sums(workers, block)
    workers[0].contribute(5, 1)
    Worker(hosts[2], 0, nonce=workers[0].nonce).contribute(9, 1)
    late_rank(hosts)
    for title, queries in panels(dashboard()).items():
        for query in queries:
            until(lambda: greatest(query) is not None, f"the panel '{title}' has data: {query}")
        if title not in STILL:
            until(lambda: max(map(greatest, queries)) > 0, f"the panel '{title}' shows what happens")


def test_prometheus_takes_them(hosts):
    prometheus, promtool = program("prometheus"), program("promtool")
    if not (prometheus and promtool):
        print("SKIP: Debian's package prometheus is neither installed nor could it be downloaded")
        return
    config = Path(f"/tmp/inagg-prometheus-{os.getpid()}.yml")
    data = config.with_suffix("")
    config.write_text("scrape_configs:\n- job_name: switches\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n"
                      f"  static_configs: [{{targets: ['127.0.0.1:{PORT}']}}]\n")
    try:
        subprocess.run([promtool, "check", "config", config], check=True, stdout=subprocess.DEVNULL)
        with Agent(f"--metrics={PORT}", DECIDES_EARLY):
            workers = busy_switch(hosts)
            done = subprocess.run([promtool, "check", "metrics"], input=text_of(), capture_output=True, text=True)
            assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
            server = subprocess.Popen([prometheus, f"--config.file={config}", f"--storage.tsdb.path={data}",
                                       f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"],
                                      preexec_fn=die_with_parent, stderr=subprocess.DEVNULL)
            try:
                until(lambda: ask_prometheus("inagg_job_completions_total").get("7") == 3, "Prometheus has the counters")
                assert ask_prometheus("up") == {None: 1}
                all_panels_have_data(hosts, workers)
            finally:
                server.terminate()
                server.wait(timeout=20)
    finally:
        config.unlink()
        shutil.rmtree(data, ignore_errors=True)


def dashboard():
    return json.loads((ROOT / "tools/grafana/inagg.json").read_text())


def panels(board):
    """{title: queries} of the dashboard, with its variables as Grafana would fill them in."""
    filled = {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*"}
    found = {}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for variable, value in filled.items():
                query = query.replace(variable, value)
            found.setdefault(panel["title"], []).append(query)
    return found


def test_the_dashboard_shows_what_there_is(_):
    board = dashboard()
    with Agent(f"--metrics={PORT}"):
        known = set(re.findall(r"^# HELP (\w+) ", text_of(), re.M))
    used = set(re.findall(r"\binagg_\w+", json.dumps(board)))
    used -= {"inagg_job"}  # a label
    assert len(used) > 8 and used <= known, used - known
    queries = panels(board)
    assert all("$" not in query for query in sum(queries.values(), []))
    assert STILL < queries.keys() and len(queries) == len(board["panels"])
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


if __name__ == "__main__":
    if sys.argv[1:] != ["inside"]:
        fetch()
    main(globals())
