# SPDX-License-Identifier: BSD-2-Clause
"""mpi4py's own tests, with the library and without."""

import re

import pytest

from kernels import Unavailable
from mpi import mpi
from mpi4py_source import mpi4py_tests
from netns import PYTHON

COLLECTIVE = ["cco_buf", "cco_obj", "cco_nb_buf", "cco_vec", "cco_nb_vec", "cco_ngh_buf", "cco_ngh_obj", "cco_obj_inter"]
OTHER = ["comm", "comm_inter", "comm_topo", "op", "request", "grequest", "attributes", "errhandler", "errorcode", "exceptions",
         "group", "pack", "p2p_buf", "p2p_obj", "msgspec", "threads", "util_pkl5"]
LIMIT = 400  # seconds


@pytest.fixture(scope="session")
def runtests():
    try:
        return mpi4py_tests()
    except Unavailable as error:
        pytest.skip(str(error))


def run_tests(tmp_path, runtests, ranks, modules, **options):
    """Run these modules; how many tests each rank ran. All pass."""
    pattern = rf"^test_({'|'.join(modules)})$"
    run = mpi(tmp_path, ranks, PYTHON, "-B", runtests, "--no-builddir", "--quiet", "--include", pattern, limit=LIMIT, **options)
    counts = set(re.findall(r"Ran (\d+) tests", run.output + run.error))
    assert run.status == 0 and len(counts) == 1 and int(counts.pop()) > 0
    return run


def test_short(tmp_path, runtests):
    run_tests(tmp_path, runtests, 4, ["cco_buf", "cco_obj"]).check_offload()


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 4, 5])
@pytest.mark.parametrize("preload", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("modules", [COLLECTIVE, OTHER], ids=["collective", "other"])
def test_all(tmp_path, runtests, ranks, preload, modules):
    run = run_tests(tmp_path, runtests, ranks, modules, preload=preload)
    if preload:
        run.check_offload()
