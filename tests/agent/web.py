#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The agent's page: what it is told beside what inaggctl says, who may read it, and what Chromium makes of it."""

import http.client
import json
import re
import shutil
import subprocess
import tempfile
import time

from agent import Agent, Worker, busy_switch, ctl, expect_nothing_left, main, start_fails, until
from network import BUILD

PORT = 8077
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DECIDES_EARLY = "--job=8:size=3,elements=32,algorithm=trio,expiry=10ms"
TRIO = 1


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


def late_rank(hosts):
    """Job 8 decides a block without its rank 2."""
    workers = [Worker(hosts[rank], rank, size=3, algorithm=TRIO, job=8).join() for rank in range(3)]

    def decided():
        for worker in workers[:2]:
            worker.contribute(0, 1)
        answers = [worker.receive(0.05) for worker in workers[:2]]
        return any(answer and answer[0] == "RESULT" for answer in answers)

    until(decided, "a block is decided without rank 2")
    until(lambda: ctl("job", "show", "8")["stragglers"], "rank 2 is a straggler")


def test_the_state_is_what_inaggctl_says(hosts):
    with Agent(f"--web={PORT}"):
        busy_switch(hosts)
        time.sleep(0.6)  # a state is shown for half a second
        seen = state()
        assert seen["status"] == ctl("status")
        assert seen["jobs"] == [ctl("job", "show", "7")]
        assert seen["stats"] == ctl("stats") and seen["drops"] == ctl("drops")
        assert seen["jobs"][0]["joined"] == 2 and {row["job"] for row in seen["stats"]} == {7, None}


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


def test_chromium_shows_it(hosts):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        print("SKIP: no Chromium (apt-get install chromium)")
        return
    with Agent(f"--web={PORT}", DECIDES_EARLY):
        busy_switch(hosts)
        late_rank(hosts)
        page = seen_in(browser, f"http://127.0.0.1:{PORT}/")
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.S)]
        assert any(row[:3] == ["7", "2/2", "switchml"] for row in rows), rows
        assert any(row[:3] == ["8", "3/3", "trio"] and row[6] != "0" for row in rows), rows
        (straggler,) = [row for row in rows if row[:2] == ["8", "2"]]
        assert straggler[2] in ("present", "temporary") and int(straggler[3]) >= 1, straggler
        for drop in ctl("drops"):
            assert any(row[2:] == [drop["reason"], drop["text"]] for row in rows), (drop, rows)
        assert page.count("<svg") == 2 and len(re.findall(r"<circle", page)) == 5
        assert not trouble_of(page)


def test_chromium_says_that_the_agent_is_gone(_):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        print("SKIP: no Chromium (apt-get install chromium)")
        return
    with Agent(f"--web={PORT}"):
        page = asked("/")[2]
    with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
        file.write(page)
        file.flush()
        assert "inaggd does not answer" in trouble_of(seen_in(browser, f"file://{file.name}"))


if __name__ == "__main__":
    main(globals())
