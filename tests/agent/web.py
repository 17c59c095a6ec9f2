#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The agent's page: what it is told beside what inaggctl says, who may read it, and what Chromium makes of it."""

import contextlib
import http.client
import http.server
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import threading
import time

from agent import DECIDES_EARLY, Agent, busy_switch, ctl, expect_nothing_left, late_rank, main, start_fails, sums, until
from network import BUILD

PORT, FRONT_PORT = 8077, 8078
FRESH_FOR = 0.5  # seconds that a state is shown
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def asked(path, host="127.0.0.1", name=None, method="GET"):
    """(status, headers, text) of an answer."""
    connection = http.client.HTTPConnection(host, PORT, timeout=10)
    connection.request(method, path, headers={"Host": name} if name else {})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def state(**where):
    status, headers, text = asked("/state.json", **where)
    assert status == 200 and headers["Content-Type"].startswith("application/json"), (status, text)
    return json.loads(text)


def test_the_state_is_what_inaggctl_says(hosts):
    with Agent(f"--web={PORT}"):
        busy_switch(hosts)
        time.sleep(FRESH_FOR + 0.1)
        seen = state()
        assert seen["status"] == ctl("status")
        assert seen["jobs"] == [ctl("job", "show", "7")]
        assert seen["stats"] == ctl("stats") and seen["drops"] == ctl("drops")
        assert seen["jobs"][0]["joined"] == 2 and {row["job"] for row in seen["stats"]} == {7, None}
        assert seen["waits"] == []


def test_the_state_says_for_whom_a_job_waits(hosts):
    with Agent(f"--web={PORT}"):
        early, late = busy_switch(hosts)
        early.contribute(3, 1)
        until(lambda: ctl("stats", "--job", "7")[0]["additions"] == 7, "rank 0 is in block 3")
        assert state()["waits"] == []  # seen for the first time
        time.sleep(FRESH_FOR + 0.1)
        (wait,) = state()["waits"]
        assert FRESH_FOR < wait["seconds"] < 20 and wait == {"job": 7, "ranks": [1], "children": [], "seconds": wait["seconds"]}
        late.contribute(3, 1)
        until(lambda: ctl("stats", "--job", "7")[0]["completions"] == 4, "nobody is waited for")
        time.sleep(FRESH_FOR + 0.1)
        assert state()["waits"] == []


def test_many_lookers_cost_as_much_as_two_a_second(_):
    with Agent(f"--web={PORT}"):
        start = time.monotonic()
        seen = {state()["uptime_ms"] for _ in range(40)}
        assert len(seen) <= 2 + (time.monotonic() - start) / 0.5, seen


def test_nobody_listens_unless_asked(_):
    with Agent():
        try:
            asked("/")
            raise AssertionError("there is a page that nobody asked for")
        except OSError:
            pass


def test_only_reading_and_only_these_two(_):
    with Agent(f"--web={PORT}"):
        status, headers, text = asked("/")
        assert status == 200 and headers["Content-Type"].startswith("text/html") and "<title>inagg switch" in text
        assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/state", "/index.html", "/etc/passwd", "/../../etc/passwd", "//etc/passwd", "/%2e%2e/etc/passwd"):
            assert asked(path)[0] in (400, 403, 404), path
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            status, _, text = asked("/state.json", method=method)
            assert "uptime_ms" not in text, (method, status, text)
        assert state()["jobs"] == []


def test_names_that_lead_here_from_elsewhere(_):
    with Agent(f"--web={PORT}"):
        for name in ("evil.example", f"evil.example:{PORT}", "127.0.0.1.evil.example", "localhost.evil.example", "10.77.0.1"):
            assert asked("/state.json", name=name)[0] == 403, name
        for name in ("localhost", f"localhost:{PORT}", "127.0.0.1"):
            assert asked("/state.json", name=name)[0] == 200, name
    with Agent(f"--web=10.77.0.1:{PORT}"):  # for all who can reach it, under any name
        assert state(host="10.77.0.1", name="switch.example")["jobs"] == []


def test_a_reload(hosts):
    with Agent(f"--web={PORT}"):
        busy_switch(hosts)
        ctl("reload")
        until(lambda: ctl("status")["agent"] == "running", "the agent is back")
        assert state()["jobs"][0]["job"] == 7


def test_addresses_that_cannot_be(_):
    for where in ("0", "65536", "localhost:8077", "10.77.0.1", "[::1]:8077"):
        done = subprocess.run([BUILD / "bin/inaggd", "--port=p0", f"--web={where}"], capture_output=True, text=True)
        assert done.returncode and "ADDRESS:PORT" in done.stderr, (where, done.stderr)
    assert "--web 10.99.0.1:8077: Cannot assign" in start_fails("--port=p0", "--web=10.99.0.1:8077", "--check")
    with Agent(f"--web={PORT}", ports=["p1"]):
        assert "does another program?" in start_fails("--port=p0", f"--web={PORT}", "--run-dir=/run/second",
                                                      "--bpffs=/sys/fs/bpf/second")
    expect_nothing_left()


def seen_in(browser, url):
    """The page as it is after its script has run for some seconds of its own time."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                               "--virtual-time-budget=4000", "--dump-dom", url], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trouble_of(page):
    return re.search(r'<p id="trouble"[^>]*>(.*?)</p>', page, re.S).group(1)


def rows_of(page):
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.S)]


def number(cell):
    return float(cell.replace(",", ""))


def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        print("SKIP: no Chromium: run `make deps`")
    return found


@contextlib.contextmanager
def front(states):
    """The agent's page with these states, one after the other. To Chromium the time that an answer takes is none."""
    page = asked("/")[2]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            is_page = self.path == "/"
            body = (page if is_page else json.dumps(next(states))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8" if is_page else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", FRONT_PORT), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{FRONT_PORT}/"
        server.shutdown()


@contextlib.contextmanager
def traffic(workers, first):
    """Sums, until the caller has seen enough."""
    enough = threading.Event()

    def work():
        for block in itertools.count(first):
            if enough.is_set():
                return
            sums(workers, block)
            time.sleep(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def test_chromium_shows_it(hosts):
    if not browser():
        return
    with Agent(f"--web={PORT}", DECIDES_EARLY):
        busy_switch(hosts)
        late_rank(hosts)
        page = seen_in(browser(), f"http://127.0.0.1:{PORT}/")
        rows = rows_of(page)
        assert any(row[:3] == ["7", "2/2", "switchml"] for row in rows), rows
        assert any(row[:3] == ["8", "3/3", "trio"] and row[6] != "0" for row in rows), rows
        (straggler,) = [row for row in rows if row[:2] == ["8", "2"]]
        assert straggler[2] in ("present", "temporary") and int(straggler[3]) >= 1, straggler
        for drop in ctl("drops"):
            assert any(row[2:] == [drop["reason"], drop["text"]] for row in rows), (drop, rows)
        assert page.count("<svg") == 2 and len(re.findall(r"<circle", page)) == 5
        assert not trouble_of(page)


def test_chromium_shows_rates_while_traffic_goes_on(hosts):
    if not browser():
        return

    def live():
        while True:
            time.sleep(FRESH_FOR + 0.1)
            yield state()

    with Agent(f"--web={PORT}", "--job=7:size=2,slots=2048,elements=32"):  # a slot for each sum
        with traffic(busy_switch(hosts), 3), front(live()) as url:
            rows = rows_of(seen_in(browser(), url))
        (job,) = [row for row in rows if row[:3] == ["7", "2/2", "switchml"]]
        packets, blocks = map(number, job[3:5])
        assert blocks > 0 and packets > 1.5 * blocks, job  # two contributions to each, or more


def test_chromium_shows_counters_as_rates(hosts):
    if not browser():
        return
    growth = {"packets": 3000, "completions": 84, "elements": 125_000_000, "drops": 14}  # in 2 s

    def states(now):
        while True:
            yield now
            now["uptime_ms"] += 2000
            (row,) = [row for row in now["stats"] if row["job"] == 7]
            row.update({counter: row[counter] + more for counter, more in growth.items()}, degraded=5)

    with Agent(f"--web={PORT}"):
        busy_switch(hosts)
        with front(states(state())) as url:
            rows = rows_of(seen_in(browser(), url))
        assert ["7", "2/2", "switchml", "1,500", "42", "2.000", "5", "7"] in rows, rows


def drawing(hosts, **told_of_job):
    """The rows and the picture of a job of which the agent says this, and that it waits for its rank 1."""
    with Agent(f"--web={PORT}"):
        busy_switch(hosts)
        told = state()
        assert told["jobs"][0]["parent"] == "none" and not told["jobs"][0]["route"]
        told["jobs"][0].update(told_of_job)
        told["waits"] = [{"job": 7, "ranks": [1], "children": [], "seconds": 2.46}]
        with front(itertools.repeat(told)) as url:
            page = seen_in(browser(), url)
    assert not trouble_of(page)
    (picture,) = re.findall(r"<svg.*?</svg>", page, re.S)
    texts = re.findall(r"<text[^>]*>([^<]*)", picture)
    assert re.findall(r'<circle[^>]* class="(\w+)"', picture) == ["joined", "late"]
    return rows_of(page), texts, re.findall(r'<line[^>]* class="(\w*)"', picture)


def test_chromium_draws_a_parent_and_whom_a_job_waits_for(hosts):
    if not browser():
        return
    rows, texts, links = drawing(hosts, parent="10.77.9.1", parent_port="p2")
    assert ["7", "1", "late, 2.5 s", "", ""] in rows, rows
    assert texts == ["p2", "10.77.9.1", "p0", "p1", "10.77.0.1", "0", "1", "late"] and links == ["", "", ""]


def test_chromium_draws_several_parents_and_which_are_not_in_use(hosts):
    if not browser():
        return
    ups = [{"number": at, "port": f"up{at}", "address": f"10.77.9.{at}", "up": at != 1} for at in range(2)]
    _, texts, links = drawing(hosts, route={"up": 1, "policy": "default", "timeout_us": 0, "ports": ups})
    assert texts[:4] == ["up0", "up1", "10.77.9.0", "10.77.9.1"] and links == ["", "down", "", ""]


def test_chromium_says_that_the_agent_is_gone(_):
    if not browser():
        return
    with Agent(f"--web={PORT}"):
        page = asked("/")[2]
    with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
        file.write(page)
        file.flush()
        assert "inaggd does not answer" in trouble_of(seen_in(browser(), f"file://{file.name}"))


if __name__ == "__main__":
    main(globals())
