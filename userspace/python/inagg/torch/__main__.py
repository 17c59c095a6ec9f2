# SPDX-License-Identifier: BSD-2-Clause
"""Run a training program, as it is, with inagg in the place of Gloo or NCCL.

    python3 -m inagg.torch train.py ARGUMENTS
    python3 -m inagg.torch -m package.train ARGUMENTS
    torchrun ... -m inagg.torch train.py ARGUMENTS

init_process_group() and new_group() take "gloo", "nccl" and no backend at all for "inagg". This holds for the process
itself and what it forks, not for interpreters that the program starts. get_backend() then says "inagg", and what torch has
for Gloo alone, as monitored_barrier(), it refuses.
"""

import functools
import os
import runpy
import sys

import torch.distributed
from torch.distributed import distributed_c10d

import inagg.torch  # registers the backend

_REPLACED = ("gloo", "nccl")


def _prefer_inagg(name, default):
    """Make the function of torch.distributed use inagg where the program asks for one of the others."""
    original = getattr(distributed_c10d, name)

    @functools.wraps(original)
    def replacement(*arguments, **named):
        position = original.__code__.co_varnames.index("backend")
        if len(arguments) > position:
            arguments = [*arguments]
            arguments[position] = _choose(arguments[position], default)
        else:
            named["backend"] = _choose(named.get("backend"), default)
        return original(*arguments, **named)

    for module in (distributed_c10d, torch.distributed):
        setattr(module, name, replacement)


def _choose(backend, default):
    if backend is None:
        return default
    return "inagg" if backend.lower() in _REPLACED else backend


def main():
    """Run the program that the command line names."""
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    sys.argv = arguments[as_module:]
    if not sys.argv:
        sys.exit(__doc__)
    _prefer_inagg("init_process_group", "inagg")
    _prefer_inagg("new_group", None)  # that of the default group
    if as_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


main()
