# SPDX-License-Identifier: BSD-2-Clause
"""The backend "inagg" of torch.distributed: sums of tensors are made in the network.

    import inagg.torch

    torch.distributed.init_process_group("inagg")
    model = torch.nn.parallel.DistributedDataParallel(model)

all_reduce, reduce, broadcast and barrier go through the switch; whatever it cannot do goes to Gloo, and stats() tells
what did. INAGG_SWITCH, INAGG_JOB, ... say how to join; rank and size are those of the process group. Each group is a
job of its own: INAGG_JOB for the default group, the numbers that follow (INAGG_TREES of them each) for those of
new_group(), which join at their first call. A call fails when a rank is missing for INAGG_TIMEOUT_MS, or else the
`timeout` of the group.

A program need not be changed: `python3 -m inagg.torch train.py` runs it with this backend, see __main__.py.
"""

import atexit
import importlib.util
import os
import pathlib
import threading
import warnings
import weakref

import torch
import torch.distributed
from torch.distributed import Backend, ProcessGroupGloo, distributed_c10d

import inagg

__all__ = ["stats"]

_EXTENSION = "inagg_torch.so"
_PATIENCE = 10  # seconds that the switch may be silent until we mention it
_groups = weakref.WeakKeyDictionary()  # keys: those that may be in their jobs, in the order in which they were made


def _load():
    """The extension module beside libinagg, or where `make install` puts it."""
    here = pathlib.Path(__file__).resolve().parent
    folders = [here, here.parents[3] / "build" / "lib"]
    if "INAGG_LIBRARY" in os.environ:
        folders.insert(0, pathlib.Path(os.environ["INAGG_LIBRARY"]).parent)
    for path in (folder / _EXTENSION for folder in folders):
        if path.exists():
            spec = importlib.util.spec_from_file_location("inagg_torch", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"{_EXTENSION} is in none of {', '.join(map(str, folders))}: it is built where libtorch-dev, "
                      "python3-torch and pybind11-dev are installed")


_extension = _load()


def _number(options):
    """Of a group, the same on all ranks: 0 is the default one, torch numbers the others."""
    if not options.global_ranks_in_group:
        return 0
    default = distributed_c10d._pg_names[distributed_c10d._get_default_group()]
    return int(options.group_id) + (default != "0")  # a default group with a name of its own has no number


def _create(options, pg_options):
    """Called by init_process_group() and new_group()."""
    if pg_options is not None:
        raise ValueError("the backend inagg has no pg_options: its settings are the variables INAGG_...")
    _leave(group for group in _groups if group not in distributed_c10d._pg_map)  # destroyed, but in use by a model
    ranks = options.global_ranks_in_group
    group = _extension.ProcessGroupInagg(
        lambda: ProcessGroupGloo(options.store, options.group_rank, options.group_size, options.timeout),
        options.group_rank, options.group_size, number=_number(options), timeout=options.timeout,
        scope=f" (ranks of a group: they are {', '.join(map(str, ranks))} of all)" if ranks else "")
    _groups[group] = None
    if not ranks:
        _join(group)
    return group


def _join(group):
    """Join now. The time-outs of torch are long, and who waits for a switch wants to know."""
    reminder = threading.Timer(_PATIENCE, warnings.warn, [
        f"rank {group.rank()} still waits for an inagg switch at {os.environ.get('INAGG_SWITCH')}: does inaggd run there?"])
    reminder.daemon = True
    reminder.start()
    try:
        group.join()
    finally:
        reminder.cancel()


def _leave(groups):
    """In the same order on all ranks: each waits for the others that leave."""
    for group in list(groups):
        group.leave()


# Groups that nobody destroyed would leave when the interpreter is half gone, or never.
atexit.register(_leave, _groups)
os.register_at_fork(after_in_child=_groups.clear)  # a child is no rank, and has not our threads


def stats(group=None):
    """What the process group (the default one if None) has done so far.

    job, transport: of this group; the transport is empty before the group has joined.
    carried: by operation, {"calls", "bytes"} that went through the switch.
    gloo: the same for what did not, by operation and reason, as "all_reduce: PRODUCT".
    counters: libinagg's (inagg_stats_t): blocks, contributions, retransmissions, ...
    """
    group = group or distributed_c10d._get_default_group()
    if not isinstance(group, _extension.ProcessGroupInagg):
        raise TypeError(f"a group of the backend {group.name()!r}, not of inagg")
    return {"job": group.job(), "transport": group.transport(), "carried": _table(group.carried()),
            "gloo": _table(group.delegated()),
            "counters": inagg._Stats.from_buffer_copy(group.counters()).as_dict()}


def _table(numbers):
    return {what: {"calls": calls, "bytes": size} for what, (calls, size) in numbers.items()}


Backend.register_backend("inagg", _create, extended_api=True)
