"""The ranks of a data-parallel run and their collectives.

A process that has not joined others is a world of size 1, whose collectives return their operands. Sums over ranks are
made here, in a fixed order, so that they have the same bits on every rank and in every run; MPI, which transports bytes
only, is loaded when mpirun has set several processes. The only file that uses mpi4py.
"""

import ctypes
import json
import math
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import accumulate, count, pairwise
from typing import Any, Protocol

import numpy as np

from runner.communication.heartbeat import Heartbeat
from runner.core.current import Current
from runner.core.parts import added
from runner.errors import ConfigError, TrainingError
from runner.host.console import LOG
from runner.host.process import launched

# Sums over all ranks in one order: the same bits on every rank and in every run, and those of one process.
#
# MPI libraries may add in any order, and do so differently (three libraries give two results for the sum of four
# ranks). Here every rank receives the parts of all others and adds them in pairs (`core.parts.added`), with messages
# from rank to rank: of a small bucket all of it, of a larger one a piece, whose sum it sends to all. Among very many
# ranks those messages would take longer than their bytes; then ranks are rows of a grid: columns are added, then rows.

PIECE_BYTES = 4 << 20  # of a segment; 1 to 8 MiB take the same time here, and fewer are fewer messages
WHOLE_BYTES = 256 << 10  # that a rank sends of a small bucket
GRID_RANKS = 64  # from here on the model of docs/design/ranks.md expects more than a tenth for messages
TAGS = 1 << 14  # of messages; MPI has at least twice as many


class Messages(Protocol):
    """What carries the messages."""

    rank: int
    size: int

    def exchange(self, name: str, *buffers: np.ndarray, **how: int) -> Any:
        """Start a non-blocking MPI call on arrays as bytes."""

    def finish(self, request: Any) -> bool:
        """Wait for it."""


class Scratch:
    """Memory for received parts, kept from step to step: fresh pages would cost as much as the sums."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, np.dtype[Any]], list[np.ndarray]] = {}

    def take(self, count: int, kind: np.dtype[Any]) -> np.ndarray:
        """An array of so many elements, whose values are undefined."""
        free = self._free.get((count, kind))
        return free.pop() if free else np.empty(count, kind)

    def give(self, array: np.ndarray) -> None:
        """Return an array that was taken."""
        self._free.setdefault((array.size, array.dtype), []).append(array)


class OrderedSum:
    """The sum of a bucket; the constructor starts to send this rank's parts.

    `members` are the ranks that add, in order. `number` is the same on all of them, and no other sum that has begun has
    it. The arrays may not change before the result is there.
    """

    def __init__(
        self,
        messages: Messages,
        scratch: Scratch,
        arrays: Sequence[np.ndarray],
        number: int,
        members: Sequence[int],
    ) -> None:
        self.messages, self.scratch, self.number, self.members = messages, scratch, number, members
        self.place, self.size = members.index(messages.rank), len(members)
        self.of_parts = 1 + 2 * number % TAGS
        self.of_sums = self.of_parts + 1
        self.arrays = list(arrays)  # referenced, so that their ids stay unique
        # From the next place on, so that not all send to the same one at the same time.
        self.others = [(self.place + k) % self.size for k in range(1, self.size)]
        self.sent = np.concatenate([a.ravel() for a in arrays]) if len(arrays) > 1 else arrays[0].reshape(-1)
        self.total = np.empty_like(self.sent)
        self._start()

    def result(self) -> list[np.ndarray]:
        """Wait for all parts; the sums."""
        with np.errstate(all="ignore"):  # overflow is detected by the step
            self._finish()
        ends = accumulate(a.size for a in self.arrays)
        return [self.total[end - a.size : end].reshape(a.shape) for end, a in zip(ends, self.arrays, strict=True)]

    def _start(self) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _receive(self, tag: int, parts: Sequence[np.ndarray]) -> list[Any]:
        """Start to receive from each other member; `parts` has an entry per member."""
        exchange, members = self.messages.exchange, self.members
        return [exchange("Irecv", parts[k], source=members[k], tag=tag) for k in self.others]

    def _send(self, tag: int, parts: Sequence[np.ndarray]) -> list[Any]:
        exchange, members = self.messages.exchange, self.members
        return [exchange("Isend", parts[k], dest=members[k], tag=tag) for k in self.others]

    def _wait(self, requests: Sequence[Any]) -> None:
        for request in requests:
            self.messages.finish(request)


class WholeSum(OrderedSum):
    """Every rank sends its whole bucket to all others and adds for itself, so there is one wait."""

    def _start(self) -> None:
        self.parts = list(np.empty((self.size, self.sent.size), self.sent.dtype))
        self.requests = self._receive(self.of_parts, self.parts) + self._send(self.of_parts, [self.sent] * self.size)
        self.parts[self.place] = self.sent

    def _finish(self) -> None:
        self._wait(self.requests)
        add(self.parts, self.total)


class PiecewiseSum(OrderedSum):
    """A reduce-scatter and an all-gather, which move 2 n numbers for any number of ranks.

    The bucket is cut into segments of one piece per rank: while one is added, others arrive.
    """

    def _start(self) -> None:
        place, size = self.place, self.size
        self.sums = list(segments(self.total, size))
        self.memory = self.scratch.take(size * sum(pieces[place].size for pieces in self.sums), self.sent.dtype)
        self.parts: list[list[np.ndarray]] = []
        self.requests: list[list[Any]] = []
        self.last: list[Any] = []
        start = 0
        for sent, sums in zip(segments(self.sent, size), self.sums, strict=True):
            count = sums[place].size
            parts = [self.memory[start + k * count : start + (k + 1) * count] for k in range(size)]
            self.requests.append(self._receive(self.of_parts, parts) + self._send(self.of_parts, sent))
            self.last += self._receive(self.of_sums, sums)
            parts[place] = sent[place]
            self.parts.append(parts)
            start += size * count

    def _finish(self) -> None:
        for sums, parts, requests in zip(self.sums, self.parts, self.requests, strict=True):
            self._wait(requests)
            add(parts, sums[self.place])
            self._share(sums)
        self._end()

    def _share(self, sums: Sequence[np.ndarray]) -> None:
        """Send this rank's sum of one segment."""
        self.last += self._send(self.of_sums, [sums[self.place]] * self.size)

    def _end(self) -> None:
        self._wait(self.last)
        self.scratch.give(self.memory)


def add(parts: Sequence[np.ndarray], total: np.ndarray) -> None:
    """Into `total` the sum of the parts of two or more ranks, as `added` adds those of one process."""
    if len(parts) == 2:
        np.add(parts[0], parts[1], out=total)
    else:
        total[...] = added(parts, np.add)


def segments(flat: np.ndarray, ranks: int) -> Iterator[list[np.ndarray]]:
    """Views of one piece per rank, of at most `PIECE_BYTES`; those of the last segment may differ in size."""
    most = max(1, PIECE_BYTES // flat.itemsize) * ranks
    for start in range(0, flat.size, most):
        segment = flat[start : start + most]
        bounds = [segment.size * k // ranks for k in range(ranks + 1)]
        yield [segment[low:high] for low, high in pairwise(bounds)]


class GridSum(PiecewiseSum):
    """A piecewise sum of a column of ranks, whose pieces are added with those of other columns before they are shared.

    Of R rows of C ranks, a rank sends 2 (R + C - 2) messages for each segment instead of 2 (R C - 1). Columns are
    first: so the order of powers of two is that of a single sum.
    """

    def _share(self, sums: Sequence[np.ndarray]) -> None:
        """Wait for the last segment."""

    def _end(self) -> None:
        own = [sums[self.place] for sums in self.sums]
        columns = self.messages.size // self.size
        first = self.messages.rank // columns * columns
        inner = among(self.messages, self.scratch, own, self.number, range(first, first + columns))
        for piece, total in zip(own, inner.result(), strict=True):
            piece[...] = total
        for sums in self.sums:
            super()._share(sums)
        super()._end()


def ordered_sum(messages: Messages, scratch: Scratch, arrays: Sequence[np.ndarray], number: int) -> OrderedSum:
    """Start the sum over all ranks of a bucket of arrays of one element type, with the same shapes on all ranks."""
    rows, columns = grid(messages.size)
    if rows == 1 or _is_small(arrays, messages.size):
        return among(messages, scratch, arrays, number, range(messages.size))
    column = range(messages.rank % columns, messages.size, columns)
    return GridSum(messages, scratch, arrays, number, column)


def among(
    messages: Messages, scratch: Scratch, arrays: Sequence[np.ndarray], number: int, members: Sequence[int]
) -> OrderedSum:
    """Start the sum over some ranks, in their order."""
    kind = WholeSum if _is_small(arrays, len(members)) else PiecewiseSum
    return kind(messages, scratch, arrays, number, members)


def _is_small(arrays: Sequence[np.ndarray], ranks: int) -> bool:
    return sum(array.nbytes for array in arrays) * (ranks - 1) <= WHOLE_BYTES


def grid(ranks: int) -> tuple[int, int]:
    """Rows and columns, as equal as the number of ranks allows; one row of few ranks, or of a prime number of them."""
    if ranks < GRID_RANKS:
        return 1, ranks
    rows = next(n for n in range(math.isqrt(ranks), 0, -1) if ranks % n == 0)
    return rows, ranks // rows


# Worlds.


class World:
    """A world of one process: rank 0 of 1. `local_rank` and `local_size` count the ranks on this machine.

    All ranks must call the same collectives in the same order.
    """

    rank, size, local_rank, local_size = 0, 1, 0, 1
    id = ""  # of a world of several ranks: the same on each
    is_even = True  # whether all ranks have equally many rows of each batch
    # While a run starts: the seconds that an exchange waits for the other ranks. None: without a limit.
    limit: float | None = None
    heartbeat: Heartbeat | None = None  # with several processes
    ended = False  # whether all ranks know that the run has failed before its training
    exchanging: Callable[[], AbstractContextManager[object]] = nullcontext  # around `summed`; used by profiles

    def begin(self, arrays: Sequence[np.ndarray]) -> None:
        """Start the sum of these arrays, which `summed` will finish: communication overlaps with computation."""

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums over all ranks, added as `core.parts.added` does: the same bits on every rank and in every run.

        The arrays have one element type, and the same shapes on all ranks.
        """
        return list(arrays)

    def shared(self, value: Any, by: int = 0) -> Any:
        """Broadcast: a JSON value of the rank `by`, on all ranks. Raises TrainingError after `limit`."""
        return value

    def shared_arrays(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Broadcast: the arrays of the first rank, on all ranks; types and shapes must be equal on all of them.

        Raises TrainingError after `limit`.
        """
        return list(arrays)

    def gathered(self, number: int) -> list[int]:
        """All-gather: one number of each rank, in the order of ranks."""
        return [number]

    def all_gathered(self, value: Any) -> list[Any]:
        """All-gather: a JSON value of each rank, in the order of ranks. Raises TrainingError after `limit`."""
        return [value]

    def met(self, seconds: float | None = None) -> bool:
        """Barrier at the end of a run: whether all ranks reached it within `seconds` (None: without a limit)."""
        return True

    def abort(self, exit_code: int) -> None:
        """Terminate all ranks immediately."""


WORLD: Current[World] = Current("world", World())


def world() -> World:
    """The world of this process."""
    return WORLD.get()


def enter(joined: World) -> World:
    """Replace the world of this process."""
    WORLD.of_process = joined
    return joined


def process_number(card: int | None) -> int:
    """The number of this process in names of files: its rank, or that of its card, or 0 without cards.

    On several machines cards have equal numbers, and ranks have not.
    """
    return world().rank if world().size > 1 else card or 0


class IsolatedRankError(Exception):
    """An isolated rank reached a collective, which the other ranks do not call."""


class _IsolatedWorld(World):
    """A rank of several, without collectives."""

    def __init__(self, among: World) -> None:
        self.rank, self.size = among.rank, among.size
        self.local_rank, self.local_size, self.id = among.local_rank, among.local_size, among.id

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        raise IsolatedRankError


@contextmanager
def isolated() -> Iterator[None]:
    """Inside, this process does not communicate: a collective raises IsolatedRankError.

    A world of size 1 stays as it is.
    """
    among = world()
    if among.size > 1:
        enter(_IsolatedWorld(among))
    try:
        yield
    finally:
        enter(among)


# MPI.

INSTALL = 'pip install "runner-ml[mpi]" (mpi4py and the wheel of MPICH; no system package is needed)'
POLLS = 200  # between two pauses, about 50 microseconds: what has arrived in part needs several to be whole
PATIENCE = 0.05  # the next pause, as a share of the time waited so far
SILENCE_SECONDS = 600.0  # of a rank, without a config
HEARTBEAT_KEY = "parallel.heartbeat_minutes"
ABORT_SECONDS = 20  # for MPI to end all ranks
FIRST_PAUSE, LONGEST_PAUSE = 5e-5, 5e-3  # seconds


class MpiWorld(World):
    """The processes of one mpirun, which announces `rank` and `expected`, their number.

    Raises ConfigError, and TrainingError when they do not start within `seconds`.
    """

    def __init__(self, rank: int, expected: int, seconds: float) -> None:
        self._mpi = _loaded()
        _start(self._mpi, f"{rank} of {expected}", seconds)
        self._steps = self._mpi.COMM_WORLD.Dup()
        self._end = self._mpi.COMM_WORLD.Dup()  # separate: ranks wait for the end while others still communicate
        self.rank, self.size = self._steps.Get_rank(), self._steps.Get_size()
        if self.size != expected:
            rows = {"mpirun": f"{expected} processes", "mpi4py": f"{self.size}, {_library(self._mpi)}"}
            repair = "the mpirun that belongs to mpi4py's MPI: with the wheel of MPICH, the one beside python"
            raise ConfigError("mpirun and mpi4py belong to different MPI libraries", **rows, repair=repair)
        here = self._steps.Split_type(self._mpi.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = here.Get_rank(), here.Get_size()
        self.heartbeat: Heartbeat | None = None
        self._begun: dict[tuple[int, ...], OrderedSum] = {}
        self._scratch, self._sums = Scratch(), count()
        self.hosts = ["unknown"] * self.size
        self.limit = seconds
        every = self.all_gathered([platform.node(), os.urandom(8).hex()])
        self.hosts, self.id = [host for host, _ in every], every[0][1]
        self.limit = None
        if self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE:
            self.heartbeat = Heartbeat(self._mpi.COMM_WORLD.Dup(), SILENCE_SECONDS, self._mpi.Exception)
        else:
            LOG.warning("%s serves one thread: ranks wait for one that is gone without a limit", _library(self._mpi))

    def begin(self, arrays: Sequence[np.ndarray]) -> None:
        """Start sending; `summed` with the same arrays continues."""
        self._begun[_key(arrays)] = self._ordered_sum(arrays)

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As described in `World`. Raises TrainingError when ranks have ended."""
        started = self._begun.pop(_key(arrays), None) or self._ordered_sum(arrays)
        return started.result()

    def _ordered_sum(self, arrays: Sequence[np.ndarray]) -> OrderedSum:
        return ordered_sum(self, self._scratch, arrays, next(self._sums))

    def exchange(self, name: str, *buffers: np.ndarray, **how: int) -> Any:
        """Start a non-blocking MPI call, such as `Isend`, on arrays as bytes. Raises TrainingError."""
        try:
            return getattr(self._steps, name)(*[_bytes(buffer) for buffer in buffers], **how)
        except self._mpi.Exception as reason:
            raise self._lost(reason) from None

    def finish(self, request: Any, seconds: float | None = None) -> bool:
        """Wait for a non-blocking call, without occupying the processor and with signals handled.

        Returns whether it is done; False after `seconds`. Raises TrainingError, also when a rank gives no sign of life.
        """
        try:
            return bool(request.Test()) or _wait(request, seconds, self._check_alive)
        except self._mpi.Exception as reason:
            raise self._lost(reason) from None

    def _check_alive(self) -> None:
        """Raise TrainingError, with what to do next, when a rank has given no sign of life for too long."""
        if self.heartbeat is not None and (silent := self.heartbeat.silent()):
            named = ", ".join(f"{rank} of {self.size} on {self.hosts[rank]}" for rank in silent)
            rows = {"missing": named, "silent": f"{max(silent.values()) / 60:.3g} minutes", "key": HEARTBEAT_KEY}
            repair = "if its process or host ended, or the network was cut: mpirun ... runner resume RUN_DIR"
            what = "a rank gives no sign of life"
            raise TrainingError(what, rank=self.rank, host=platform.node(), **rows, repair=repair)

    def _lost(self, reason: Exception) -> TrainingError:
        return TrainingError("the connection between ranks is lost", rank=self.rank, reason=reason)

    def shared(self, value: Any, by: int = 0) -> Any:
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        length = self._of(by, np.array([len(text)], np.int64))[0]
        made = self._of(by, text if self.rank == by else np.zeros(length, np.uint8))
        return json.loads(made.tobytes())

    def shared_arrays(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [self._of(0, array) for array in arrays]

    def _of(self, rank: int, array: np.ndarray) -> np.ndarray:
        made = np.array(array, order="C")
        if made.size and not self.finish(self.exchange("Ibcast", made, root=rank), self.limit):
            raise self._missing([rank])
        return made

    def all_gathered(self, value: Any) -> list[Any]:
        """As described in `World`. Messages from rank to rank, since a collective does not know which rank is late."""
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        others = [rank for rank in range(self.size) if rank != self.rank]
        sent = [self.exchange("Isend", part, dest=to) for to in others for part in (np.array([len(text)]), text)]
        lengths = {rank: np.zeros(1, np.int64) for rank in others}
        self._finish_all({rank: self.exchange("Irecv", lengths[rank], source=rank) for rank in others})
        texts = {rank: np.zeros(int(lengths[rank][0]), np.uint8) for rank in others}
        self._finish_all({rank: self.exchange("Irecv", texts[rank], source=rank) for rank in others})
        for request in sent:
            self.finish(request, self.limit)
        return [value if rank == self.rank else json.loads(texts[rank].tobytes()) for rank in range(self.size)]

    def _finish_all(self, requests: dict[int, Any]) -> None:
        """Finish the requests, one for each other rank. Raises TrainingError, naming the ranks that are late."""
        end = math.inf if self.limit is None else time.monotonic() + self.limit
        late = [rank for rank, one in requests.items() if not self.finish(one, max(0.0, end - time.monotonic()))]
        if late:
            raise self._missing(late)

    def _missing(self, ranks: Sequence[int]) -> TrainingError:
        late = ", ".join(f"{rank} of {self.size} on {self.hosts[rank]}" for rank in ranks)
        rows = {"missing": late, "waited": f"{self.limit:g} seconds", "key": "parallel.timeout_seconds"}
        self.limit = None  # later exchanges of this rank's error would only wait again
        return TrainingError("ranks do not answer", rank=self.rank, host=platform.node(), **rows)

    def gathered(self, number: int) -> list[int]:
        every = np.zeros(self.size, np.int64)
        self.finish(self.exchange("Iallgather", np.array([number], np.int64), every))
        return [int(one) for one in every]

    def met(self, seconds: float | None = None) -> bool:
        """Wait for all ranks; once per run."""
        return _wait(self._end.Ibarrier(), seconds, self._check_alive if seconds is None else None)

    def abort(self, exit_code: int) -> None:
        _abort(self._mpi, exit_code)


class UnjoinedWorld(World):
    """A process that can only end the others of its mpirun. Raises as `MpiWorld`."""

    def __init__(self, seconds: float) -> None:
        self._mpi = _loaded()
        _start(self._mpi, "{} of {}".format(*launched()), seconds)

    def abort(self, exit_code: int) -> None:
        _abort(self._mpi, exit_code)


def _abort(mpi: Any, exit_code: int) -> None:
    """`MPI_Abort`: mpirun ends all ranks, and exits with this code. It waits for ever behind a cut link."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(ABORT_SECONDS)  # ends this process
    mpi.COMM_WORLD.Abort(exit_code)


def _key(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    return tuple([id(array) for array in arrays])


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _wait(request: Any, seconds: float | None = None, check: Callable[[], None] | None = None) -> bool:
    """Poll until a request is done or the time is over; pauses grow with the time waited, so they add little.

    `check` is called before each pause.
    """
    start, end = time.monotonic(), math.inf if seconds is None else time.monotonic() + seconds
    while True:
        for _ in range(POLLS):
            if request.Test():
                return True
        now = time.monotonic()
        if now > end:
            return False
        if check is not None:
            check()
        # Where ranks share cores, one that sleeps is woken soon; one that only yields waits for a slice of the others.
        time.sleep(min(max(FIRST_PAUSE, PATIENCE * (now - start)), LONGEST_PAUSE))


def _loaded() -> Any:
    """mpi4py, without starting MPI."""
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as reason:
        rows = {"reason": str(reason).splitlines()[0], "repair": INSTALL}
        raise ConfigError("mpirun has started this process, but mpi4py cannot be used", **rows) from None
    return MPI


@cache
def _initialization(mpi: Any) -> threading.Event:
    """Set once MPI has started, which waits in C until all processes have started it.

    In a thread, and called through ctypes, which releases the lock of the interpreter: the main thread handles signals
    and the time limit.
    """
    start = ctypes.CDLL(mpi.__file__).MPI_Init_thread
    done = threading.Event()

    def run() -> None:
        start(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
        done.set()

    threading.Thread(target=run, name="MPI_Init", daemon=True).start()
    return done


def _start(mpi: Any, rank: str, seconds: float) -> None:
    """Start MPI. Raises TrainingError after `seconds`."""
    end = time.monotonic() + seconds
    while not (mpi.Is_initialized() or _initialization(mpi).wait(LONGEST_PAUSE)):
        if time.monotonic() > end:
            rows = {"rank": rank, "host": platform.node(), "waited": f"{seconds:g} seconds"}
            repair = "see the output of the other processes; a longer parallel.timeout_seconds"
            raise TrainingError("not all processes of mpirun have started", **rows, repair=repair)
    mpi.COMM_WORLD.Set_errhandler(mpi.ERRORS_RETURN)


def _library(mpi: Any) -> str:
    return str(mpi.Get_library_version()).splitlines()[0]


START_SECONDS = 300.0  # how long a process waits for the others to start MPI


def join(seconds: float = START_SECONDS) -> World:
    """Join the world that mpirun launched this process in; without mpirun a world of size 1.

    Raises ConfigError when mpi4py or its MPI library is missing, or is not the MPI of mpirun, and TrainingError when
    other processes have not joined within `seconds`.
    """
    if world().size == 1 and launched()[1] > 1:
        enter(MpiWorld(*launched(), seconds))
    return world()
