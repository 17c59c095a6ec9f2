# SPDX-License-Identifier: BSD-2-Clause
"""The tests of mpi4py: they are in Debian's source package only."""

import os
import re
from pathlib import Path

from kernels import APT_LIMIT, Unavailable, apt_options, command, the_only
from netns import BUILD


def installed_version():
    """Upstream version of the module that the tests are for."""
    version = command(["dpkg-query", "-W", "-f", "${source:Version}", "python3-mpi4py"])
    return re.sub(r"-[^-]*$", "", version)


def download(folder):
    """Unpack the source package in `folder`; apt's state stays there, too."""
    options = apt_options("bookworm", folder / "apt")
    sources = folder / "apt/sources.list"
    sources.write_text(re.sub("^deb ", "deb-src ", sources.read_text(), flags=re.M))
    command(["apt-get", *options, "update"], timeout=APT_LIMIT)
    command(["apt-get", *options, "source", "--download-only", "mpi4py"], cwd=folder, timeout=APT_LIMIT)
    archive = the_only(folder.glob("mpi4py_*.orig.tar.*[!c]"), "source archives of mpi4py")
    (folder / "source").mkdir(exist_ok=True)
    command(["tar", "xf", archive, "-C", folder / "source", "--strip-components", "1"])


def mpi4py_tests():
    """Path of runtests.py: of $INAGG_MPI4PY, a source tree of mpi4py, or of what is kept in the build folder."""
    version = installed_version()
    folder = BUILD / f"mpi4py-{version}"
    tree = Path(os.environ.get("INAGG_MPI4PY") or folder / "source")
    if not (tree / "test/runtests.py").exists():
        try:
            download(folder)
        except Unavailable as error:
            raise Unavailable(f"no source package of mpi4py {version}: {error}; INAGG_MPI4PY can name its tree") from error
    return tree / "test/runtests.py"
