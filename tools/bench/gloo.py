# SPDX-License-Identifier: BSD-2-Clause
"""Gloo's ring among the ranks of an inagg-netns run, by libgloo-c."""

import ctypes
import os
import sys


def library(build):
    """The file; it exists if Gloo was there when this was built."""
    return build.resolve() / "lib" / "libgloo-c.so"


def missing(build):
    """Why Gloo cannot run here."""
    return "" if library(build).exists() else "gloo: not installed (libgloo-dev), or was not when this was built"


def environment(build, folder):
    """For the ranks, which meet in `folder`."""
    return {"BENCH_GLOO": str(library(build)), "BENCH_FOLDER": str(folder)}


class Gloo:
    """A ring, one of each name; nobody is done before all are."""

    def __init__(self, name="all"):
        self.rank, self.size = int(os.environ["INAGG_RANK"]), int(os.environ["INAGG_SIZE"])
        self.library = ctypes.CDLL(os.environ["BENCH_GLOO"])
        self.library.gloo_c_join.restype = ctypes.c_void_p
        self.library.gloo_c_sum.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
        self.library.gloo_c_leave.argtypes = ctypes.c_void_p,
        folder = os.path.join(os.environ["BENCH_FOLDER"], name)
        os.makedirs(folder, exist_ok=True)
        self.group = self.library.gloo_c_join(self.rank, self.size, folder.encode())
        if not self.group:
            sys.exit(1)

    def allreduce(self, vector):
        """The sum, in place."""
        if self.library.gloo_c_sum(self.group, vector.ctypes.data, vector.size):
            sys.exit(1)
        return vector

    def iallreduce(self, vector):
        """The same, in the way of inagg.Communicator; it is done at once."""
        return Done(self.allreduce(vector))

    def leave(self):
        self.library.gloo_c_leave(self.group)


class Done:
    def __init__(self, result):
        self.result = result

    def wait(self):
        return self.result
