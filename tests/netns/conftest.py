# SPDX-License-Identifier: BSD-2-Clause
import os
import shutil
import subprocess

import pytest


def missing():
    """Why these tests cannot run here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "ethtool", "bpftool"):
        if not shutil.which(program):
            return f"{program} is not installed: run `make deps`"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "name", "a", "type", "veth"],
                           capture_output=True, text=True)
    return tried.returncode and f"no namespaces with veth links here: {tried.stderr.strip()}" or None


def pytest_sessionstart(session):
    if reason := missing():
        print(f"SKIP: {reason}")
        pytest.exit(reason, returncode=77)


def pytest_sessionfinish(session):
    """Where all tests are skipped, so is the file; the reasons are in the report."""
    ended = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if "skipped" in ended and not ended.keys() & {"passed", "failed", "error"}:
        session.exitstatus = 77
