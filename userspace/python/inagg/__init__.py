# SPDX-License-Identifier: BSD-2-Clause
"""Allreduce through an inagg switch, for NumPy arrays.

    import inagg, numpy

    with inagg.Communicator() as comm:              # joins, as INAGG_SWITCH, INAGG_JOB, ... say
        gradient = comm.allreduce(gradient)         # the sum over all ranks

All ranks make the same calls in the same order with the same shapes and types. Arrays of int32, int64, float16, float32 and
float64 are taken as they are; bfloat16, for which NumPy has no type, is an array of uint16 and
dtype=inagg.BFLOAT16.

The library is $INAGG_LIBRARY, or else libinagg.so of the build tree or prefix that this file lies in, or
else what the dynamic linker finds.
"""

import ctypes
import operator
import os
import pathlib
import weakref

import numpy

__all__ = ["Communicator", "Error", "Outcome", "Request", "SUM", "MIN", "MAX", "AVG", "INT32", "FLOAT32", "FLOAT16",
           "BFLOAT16", "INT64", "FLOAT64",
           "last_contributors", "last_outcome"]

INT32, FLOAT32, FLOAT16, BFLOAT16 = range(4)
INT64, FLOAT64 = 16, 17
SUM, MIN, MAX, AVG = range(4)

_SONAME = "libinagg.so.0"
_DTYPES = {"int32": INT32, "float32": FLOAT32, "float16": FLOAT16, "int64": INT64, "float64": FLOAT64}
_WIDTHS = {INT32: 4, FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2, INT64: 8, FLOAT64: 8}


class Error(RuntimeError):
    """A failed call. `code` is its enum inagg_error; the text is inagg_message()."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("switch_address", ctypes.c_char * 256),
        ("job", ctypes.c_uint16),
        ("rank", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("algorithm", ctypes.c_char * 16),
        ("transport", ctypes.c_char * 16),
        ("timeout_ms", ctypes.c_uint32),
        ("scale", ctypes.c_int32),
        ("checked", ctypes.c_int),
        ("expiry_us", ctypes.c_uint32),
        ("quorum", ctypes.c_uint16),
        ("history_mib", ctypes.c_uint32),
        ("exclude_ms", ctypes.c_uint32),
        ("congestion_control", ctypes.c_int),
        ("trees", ctypes.c_uint16),
        ("poll_us", ctypes.c_uint32),
        ("aggregate_from", ctypes.c_uint64),
        ("key", ctypes.c_char * 33),
        ("join_key", ctypes.c_char * 33),
        ("join_timeout_ms", ctypes.c_uint32),
    ]


class _Stats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "blocks", "contributions", "retransmissions", "requests", "restores", "duplicates", "rejected",
            "reboots", "srtt_ns", "degraded", "skipped", "abstained", "refused", "cuts",
            "parts", "reissues", "mismatches",
        )
    ]

    def as_dict(self):
        return {name: getattr(self, name) for name, _ in self._fields_}


class Outcome(ctypes.Structure):
    """Of whom a result is made (inagg_outcome). Bitmaps: bit r is rank r.

    blocks: how many the elements travelled in; degraded_blocks: those of them without some rank; in_all, in_any:
    bitmaps of the ranks that are in every block, and in at least one; block_elements: elements in a block;
    fewest: ranks in the block that has the fewest.
    """

    _fields_ = [
        ("_struct_size", ctypes.c_size_t),
        ("blocks", ctypes.c_uint64),
        ("degraded_blocks", ctypes.c_uint64),
        ("in_all", ctypes.c_uint64),
        ("in_any", ctypes.c_uint64),
        ("block_elements", ctypes.c_uint32),
        ("fewest", ctypes.c_uint16),
    ]


def _candidates():
    """Where libinagg may be, the most specific place first."""
    if "INAGG_LIBRARY" in os.environ:
        return [os.environ["INAGG_LIBRARY"]]
    here = pathlib.Path(__file__).resolve().parent.parent
    near = [here.parent.parent / "build" / "lib" / "libinagg.so"]  # source tree
    near += [folder / _SONAME for folder in (here, *here.parents)]  # PREFIX/lib/python3/... in PREFIX/lib
    near += sorted(here.parent.glob(f"*/{_SONAME}"))
    return [str(path) for path in near if path.exists()] + [_SONAME, "libinagg.so"]


def _load():
    problems = []
    for path in _candidates():
        try:
            return _declare(ctypes.CDLL(path))
        except OSError as error:
            problems.append(str(error))
    raise ImportError("libinagg.so is not found, set INAGG_LIBRARY to it: " + "; ".join(problems))


def _declare(library):
    pointer, size, u16, out = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint16, ctypes.POINTER(ctypes.c_void_p)
    number = ctypes.c_int
    for name, result, arguments in [
        ("options_init", None, [ctypes.POINTER(_Options)]),
        ("options_from_env", number, [ctypes.POINTER(_Options)]),
        ("options_for_rank", number, [ctypes.POINTER(_Options), u16, u16]),
        ("join", number, [ctypes.POINTER(_Options), out]),
        ("leave", number, [pointer]),
        ("rank", u16, [pointer]),
        ("size", u16, [pointer]),
        ("transport", ctypes.c_char_p, [pointer]),
        ("transport_note", ctypes.c_char_p, [pointer]),
        ("get_stats", None, [pointer, ctypes.POINTER(_Stats)]),
        ("allreduce", number, [pointer, pointer, pointer, size, number, number]),
        ("iallreduce", number, [pointer, pointer, pointer, size, number, number, out]),
        ("broadcast", number, [pointer, pointer, size, number, u16]),
        ("reduce", number, [pointer, pointer, pointer, size, number, number, u16]),
        ("barrier", number, [pointer]),
        ("ibroadcast", number, [pointer, pointer, size, number, u16, out]),
        ("ireduce", number, [pointer, pointer, pointer, size, number, number, u16, out]),
        ("ibarrier", number, [pointer, out]),
        ("wait", number, [pointer]),
        ("test", number, [pointer]),
        ("last_outcome", number, [ctypes.POINTER(Outcome)]),
        ("last_contributors", ctypes.c_uint64, [ctypes.c_uint64]),
        ("blocks_ahead", number, [pointer, ctypes.POINTER(ctypes.c_uint64)]),
        ("excluded", number, [pointer, ctypes.POINTER(ctypes.c_uint64)]),
        ("stragglers", number, [pointer, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)]),
        ("renew", number, [pointer, ctypes.POINTER(number)]),
        ("message", ctypes.c_char_p, []),
        ("version", ctypes.c_char_p, []),
    ]:
        function = getattr(library, "inagg_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _load()


def _check(code):
    if code:
        raise Error(code, _library.inagg_message().decode())


def last_outcome():
    """The Outcome of this thread's last call or Request.wait() that succeeded."""
    outcome = Outcome(_struct_size=ctypes.sizeof(Outcome))
    _check(_library.inagg_last_outcome(ctypes.byref(outcome)))
    return outcome


def last_contributors(block):
    """Bitmap of the ranks in one block of that result; 0 if it has no such block."""
    return _library.inagg_last_contributors(_fit("block", block, ctypes.c_uint64))


def version():
    """Version of the library."""
    return _library.inagg_version().decode()


def _fit(name, value, kind):
    """`value` if the C type `kind` holds it: ctypes would cut it to another number without a word."""
    bits = 8 * ctypes.sizeof(kind)
    low = -1 << (bits - 1) if kind(-1).value < 0 else 0
    high = low + (1 << bits) - 1
    if not low <= operator.index(value) <= high:
        raise ValueError(f"{name} {value}: it must be {low} to {high}")
    return value


def _op(op):
    if not hasattr(op, "__index__"):
        raise TypeError(f"operator {op!r}: it must be inagg.SUM, MIN, MAX or AVG")
    return _fit("operator", op, ctypes.c_int)


def _root(root):
    return _fit("root", root, ctypes.c_uint16)


def _dtype_of(array, dtype):
    if not array.dtype.isnative:
        raise TypeError(f"array of {array.dtype.str!r}, which is not this machine's byte order: "
                        f"give array.astype({array.dtype.newbyteorder('=').name!r})")
    if dtype is not None:
        _fit("dtype", dtype, ctypes.c_int)
        width = _WIDTHS.get(dtype, array.dtype.itemsize)  # the library knows what to say of others
        if array.dtype.itemsize != width:
            raise TypeError(f"data type {dtype} needs elements of {width} bytes, not {array.dtype}")
        return dtype
    try:
        return _DTYPES[array.dtype.name]
    except KeyError:
        raise TypeError(f"no inagg type for {array.dtype}: use int32, int64, float16, float32, float64 or dtype=BFLOAT16") from None


def _input(array):
    return numpy.asarray(array, order="C")


def _output(out, like):
    if out is None:
        return numpy.empty_like(like)
    if not (out.flags.c_contiguous and out.flags.writeable) or out.shape != like.shape or out.dtype != like.dtype:
        raise ValueError(f"out must be a writable C-contiguous array of {like.dtype} and shape {like.shape}")
    return out


class Request:
    """An operation under way; keeps its arrays and its communicator alive until wait()."""

    def __init__(self, comm, handle, send, recv):
        self._comm, self._handle, self._send, self._recv = comm, handle, send, recv
        self._error = None

    def test(self):
        """True when the operation is done."""
        return self._handle is None or bool(_library.inagg_test(self._handle))

    def wait(self):
        """Wait for the operation and return its result."""
        self._finish()
        if self._error is not None:
            raise self._error
        return self._recv

    def _finish(self):
        """Wait, and leave an error for wait() to raise."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        try:
            self._comm._open()  # the library's handle is no longer valid after leaving
            _check(_library.inagg_wait(handle))
        except Error as error:
            self._error = error

    def __del__(self):
        if hasattr(self, "_handle"):
            self._finish()


class Communicator:
    """A rank's membership of a job, to be used in a with statement.

    The arguments default to the environment: INAGG_SWITCH, INAGG_JOB, INAGG_RANK, INAGG_SIZE (or torchrun's,
    Open MPI's or Slurm's), INAGG_ALGORITHM, INAGG_TRANSPORT, INAGG_TIMEOUT_MS, INAGG_SCALE, INAGG_CHECKED,
    INAGG_EXPIRY, INAGG_QUORUM, INAGG_EXCLUDE_AFTER, INAGG_HISTORY, INAGG_CONGESTION_CONTROL, INAGG_TREES,
    INAGG_AGGREGATE_FROM, INAGG_POLL and the keys. What the environment says has to make sense by itself.
    """

    def __init__(self, **options):
        """Options are the fields of inagg_options: switch_address, job, rank, size, algorithm, transport,
        timeout_ms, scale, checked, expiry_us, quorum, history_mib, exclude_ms, congestion_control, trees,
        aggregate_from, key, join_key, join_timeout_ms, poll_us."""
        self._comm = None
        self._requests = weakref.WeakSet()  # under way; leave() finishes them
        values = self._options(options)
        comm = ctypes.c_void_p()
        _check(_library.inagg_join(ctypes.byref(values), ctypes.byref(comm)))
        self._comm = comm

    @staticmethod
    def _options(changes):
        known = dict(_Options._fields_)
        del known["struct_size"]
        unknown = set(changes) - set(known)
        if unknown:
            raise TypeError(f"unknown options {sorted(unknown)}; there are {sorted(known)}")
        fitting = {name: value.encode() if isinstance(value, str) else _fit(name, value, known[name])
                   for name, value in changes.items()}
        values = _Options()
        if {"rank", "size"} <= set(changes):
            _check(_library.inagg_options_for_rank(ctypes.byref(values), fitting["rank"], fitting["size"]))
        else:
            _check(_library.inagg_options_from_env(ctypes.byref(values)))
        for name, value in fitting.items():
            setattr(values, name, value)
        return values

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.leave()
        else:  # the error that brought us here matters more than that of leaving
            self._leave()

    def _leave(self):
        for request in list(self._requests):
            request._finish()
        comm, self._comm = self._comm, None
        return _library.inagg_leave(comm) if comm else 0

    def leave(self):
        """Finish what is under way and leave the job."""
        _check(self._leave())

    def __del__(self):
        if getattr(self, "_comm", None):
            self._leave()

    @property
    def rank(self):
        """This process's number, 0 .. size-1."""
        return _library.inagg_rank(self._open())

    @property
    def size(self):
        """Number of ranks in the job."""
        return _library.inagg_size(self._open())

    @property
    def transport(self):
        """Name of the transport in use."""
        return _library.inagg_transport(self._open()).decode()

    @property
    def transport_note(self):
        """Why `auto` did not choose a faster transport; empty if it did."""
        return _library.inagg_transport_note(self._open()).decode()

    def blocks_ahead(self):
        """How many data blocks of the calls to come are decided already: a straggler may skip computing them."""
        blocks = ctypes.c_uint64()
        _check(_library.inagg_blocks_ahead(self._open(), ctypes.byref(blocks)))
        return blocks.value

    def excluded(self):
        """Bitmap of the ranks that the job goes on without."""
        ranks = ctypes.c_uint64()
        _check(_library.inagg_excluded(self._open(), ctypes.byref(ranks)))
        return ranks.value

    def stragglers(self):
        """Bitmaps of the ranks that the switch takes for stragglers: temporary ones, permanent ones."""
        temporary, permanent = ctypes.c_uint64(), ctypes.c_uint64()
        _check(_library.inagg_stragglers(self._open(), ctypes.byref(temporary), ctypes.byref(permanent)))
        return temporary.value, permanent.value

    def renew(self):
        """Take back ranks that were excluded and have joined again; True, on all ranks, if there were any.

        All ranks call it at the same place, now and then. The next call is the first one of those that are back.
        """
        renewed = ctypes.c_int()
        _check(_library.inagg_renew(self._open(), ctypes.byref(renewed)))
        return bool(renewed.value)

    def stats(self):
        """Counters since the join, as a dictionary (inagg_stats_t)."""
        values = _Stats()
        _library.inagg_get_stats(self._open(), ctypes.byref(values))
        return values.as_dict()

    def allreduce(self, array, op=SUM, out=None, dtype=None):
        """Sum (minimum, maximum, average) of all ranks' arrays, on all ranks. `out` may be `array` itself."""
        send = _input(array)
        recv = _output(out, send)
        _check(_library.inagg_allreduce(self._open(), send.ctypes.data, recv.ctypes.data, send.size,
                                        _dtype_of(send, dtype), _op(op)))
        return recv

    def iallreduce(self, array, op=SUM, out=None, dtype=None):
        """The same without waiting: a Request. Leave the arrays alone until its wait()."""
        send = _input(array)
        recv = _output(out, send)
        return self._begin(_library.inagg_iallreduce, send, recv, send.ctypes.data, recv.ctypes.data, send.size,
                           _dtype_of(send, dtype), _op(op))

    def reduce(self, array, root=0, op=SUM, out=None, dtype=None):
        """As allreduce(), but only `root` gets the result; the others get None."""
        send, recv, arguments = self._reduction(array, root, op, out, dtype)
        _check(_library.inagg_reduce(self._open(), *arguments))
        return recv

    def ireduce(self, array, root=0, op=SUM, out=None, dtype=None):
        """The same without waiting: a Request."""
        send, recv, arguments = self._reduction(array, root, op, out, dtype)
        return self._begin(_library.inagg_ireduce, send, recv, *arguments)

    def _reduction(self, array, root, op, out, dtype):
        send = _input(array)
        recv = _output(out, send) if self.rank == _root(root) else None
        return send, recv, (send.ctypes.data, None if recv is None else recv.ctypes.data, send.size,
                            _dtype_of(send, dtype), _op(op), root)

    def broadcast(self, array, root=0, dtype=None):
        """Copy `root`'s array into `array` on all ranks, bit for bit; returns it."""
        data, arguments = self._broadcast(array, root, dtype)
        _check(_library.inagg_broadcast(self._open(), *arguments))
        return data

    def ibroadcast(self, array, root=0, dtype=None):
        """The same without waiting: a Request."""
        data, arguments = self._broadcast(array, root, dtype)
        return self._begin(_library.inagg_ibroadcast, data, data, *arguments)

    @staticmethod
    def _broadcast(array, root, dtype):
        if not isinstance(array, numpy.ndarray):
            raise TypeError("a broadcast writes to its argument: give a NumPy array")
        data = _output(array, array)
        return data, (data.ctypes.data, data.size, _dtype_of(data, dtype), _root(root))

    def barrier(self):
        """Return when all ranks have called it."""
        _check(_library.inagg_barrier(self._open()))

    def ibarrier(self):
        """The same without waiting: a Request, whose wait() returns when all ranks have called it."""
        return self._begin(_library.inagg_ibarrier, None, None)

    def _begin(self, call, send, recv, *arguments):
        """A Request for a call that does not wait, which keeps its arrays."""
        handle = ctypes.c_void_p()
        _check(call(self._open(), *arguments, ctypes.byref(handle)))
        request = Request(self, handle, send, recv)
        self._requests.add(request)
        return request

    def _open(self):
        if self._comm is None:
            raise Error(-8, "this communicator has left its job")
        return self._comm
