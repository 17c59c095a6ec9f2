#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""--log-format json: each line of inaggd and inagg-ps is an object that says what it is about; text is as ever."""

import datetime
import json
import signal
import subprocess
import tempfile
from pathlib import Path

from agent import Agent, Worker, ctl, main, until
from network import BUILD, die_with_parent, inside, run

SWITCH = "10.77.0.1"


def text_of(file):
    """Read at a place of its own: who writes moves that of `file`."""
    return Path(f"/proc/self/fd/{file.fileno()}").read_text()


def lines_of(file):
    return [json.loads(line) for line in text_of(file).splitlines()]


def expect_time(line):
    time = datetime.datetime.fromisoformat(line["time"].removesuffix("Z") + "+00:00")
    now = datetime.datetime.now(datetime.timezone.utc)
    assert line["time"].endswith("Z") and abs(now - time) < datetime.timedelta(minutes=5), line


def find(lines, **fields):
    found = [line for line in lines if fields.items() <= line.items()]
    assert found, f"no line has {fields}: {lines}"
    return found[0]


def test_the_agent(hosts):
    with tempfile.TemporaryFile("a+") as file:
        with Agent("--log-format=json", stderr=file):
            worker = Worker(hosts[1], 1).join()
            assert Worker(hosts[0], 2).ask() == "RANK"
            worker.leave()
            until(lambda: not ctl("job", "list"), "the job has gone")
        lines = lines_of(file)
        for line in lines:
            assert list(line)[:4] == ["time", "level", "program", "message"], line
            assert line["program"] == "inaggd", line
            expect_time(line)
        assert find(lines, port="p1", switch=SWITCH)["message"].startswith("port p1: attached")
        join = find(lines, job=7, rank=1, port="p1", address="10.77.0.11")
        assert join["level"] == "info" and join["switch"] == SWITCH, join
        assert "refused" in find(lines, job=7, rank=2, port="p0")["message"]
        assert "rank" not in find(lines, message="job 7: removed")  # that field was the LEAVE's


def test_the_agent_in_text(_):
    with tempfile.TemporaryFile("a+") as file:
        with Agent(stderr=file):
            pass
        text = text_of(file)
        assert "[inaggd] [info] port p0: attached" in text and not text.startswith("{"), text


def test_an_error(_):
    done = subprocess.run([BUILD / "bin/inaggd", "--port=nosuch", "--log-format=json"], capture_output=True, text=True)
    assert done.returncode == 1
    error = json.loads(done.stderr.splitlines()[-1])
    assert error["level"] == "error" and "nosuch" in error["message"], error


def test_a_format_that_there_is_not(_):
    done = subprocess.run([BUILD / "bin/inaggd", "--port=p0", "--log-format=xml"], capture_output=True, text=True)
    assert done.returncode and "xml" in done.stderr, done.stderr


def test_the_server(hosts):
    with tempfile.TemporaryFile("a+") as file:
        process = subprocess.Popen([BUILD / "bin/inagg-ps", f"--address={SWITCH}", "--log-format=json"],
                                   preexec_fn=die_with_parent, stderr=file)
        until(lambda: f"server {SWITCH}" in text_of(file), "the server has begun")
        run(*inside(hosts[0]), "env", f"INAGG_SWITCH={SWITCH}", "INAGG_JOB=7", "INAGG_RANK=0", "INAGG_SIZE=1",
            "INAGG_TRANSPORT=udp", BUILD / "bin/inagg-perf", "allreduce", "-b", "4", "-e", "4", "-n", "1",
            stdout=subprocess.DEVNULL)
        until(lambda: "removed" in text_of(file), "the job has gone")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        lines = lines_of(file)
        assert all(line["program"] == "inagg-ps" and line["switch"] == SWITCH for line in lines), lines
        find(lines, job=7, rank=0, address="10.77.0.10")
        find(lines, job=7, message="job 7: removed")


if __name__ == "__main__":
    main(globals())
