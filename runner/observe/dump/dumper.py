"""The observers that dump: `Dumper` what its settings select, `FirstFailure` the operator that failed.

They receive the values of every operator of a step and pass some of them to a writer (`writers.py`). Before them stands
what they decide by: overflows and their records, the selection by name, and the numbers of graphs.
"""

import json
import re
import struct
import weakref
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from runner.core.graph import Graph, ObservedValue, ValueObserver
from runner.core.operators import Node
from runner.core.source import user_line
from runner.errors import DataError
from runner.host.console import LOG
from runner.host.files import read_bytes, write_atomically
from runner.observe.dump.files import OVERFLOW
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.writers import AsyncWriter, DumpWriter, SyncWriter
from runner.observe.names import without_root
from runner.types import TensorType

# Overflow detection: the operators that a mode checks, and the overflow record `Opdebug.Node_OpDebug.*`.

OVERFLOW_NAME = "Node_OpDebug"  # of the record in place of a full name
COMPUTE, ATOMIC, ALL = 1, 2, 3  # op_debug_mode
RECORD_SIZE = 2048
STATUS_OVERFLOW = 1
_FIELDS = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_ADDRESSES = ("pc_start", "para_base", "kernel_code")
_LAYOUT: dict[str, tuple[int, int, tuple[str, ...]]] = {  # offsets of task and status, fields of the status
    "DHA Atomic Add": (0, 512, ("status",)),
    "L2 Atomic Add": (128, 768, ("status",)),
    "AI Core": (256, 1024, ("kernel_code", "block_idx", "status")),
}
_UNITS = {COMPUTE: ("AI Core",), ATOMIC: ("DHA Atomic Add",), ALL: ("AI Core", "DHA Atomic Add")}

# Mode 2 of MindSpore checks atomic additions: many tasks add partial sums to the same memory. These are reductions,
# and gradients of parameters, which are sums over the batch and all positions. Matrix products and convolutions
# accumulate inside of one unit, so that they belong to mode 1, as on the device.
ACCUMULATING = frozenset(
    {
        *("BatchNormGrad", "BiasAddGrad", "Conv2DBackpropFilter", "LayerNormGrad"),
        *("ReduceMean", "ReduceSum", "UnsortedSegmentSum"),
    }
)


def mode_of(op_type: str) -> int:
    """The mode that checks operators of this type: COMPUTE or ATOMIC."""
    return ATOMIC if op_type in ACCUMULATING else COMPUTE


def detects(mode: int, op_type: str) -> bool:
    """Whether an `op_debug_mode` checks an operator: 0 none, 1 those that compute, 2 those that accumulate, 3 all."""
    return mode in (ALL, mode_of(op_type))


def overflow_record(mode: int, task_id: int, stream_id: int = 0, model_id: int = 0) -> bytes:
    """The record of an overflow that `mode` has detected; with ALL in units of both kinds.

    Addresses of code and operands do not exist here: they are 0.
    """
    content = bytearray(RECORD_SIZE)
    for unit in _UNITS[mode]:
        task, status, names = _LAYOUT[unit]
        struct.pack_into("<3Q", content, task, model_id, stream_id, task_id)
        struct.pack_into("<Q", content, status + 8 * names.index("status"), STATUS_OVERFLOW)
    return bytes(content)


def parse_overflow_record(content: bytes | memoryview) -> dict[str, dict[str, Any]]:
    """The fields of a record as msaccucmp writes them into a JSON file: numbers, and addresses in hexadecimal.

    Raises DataError if it has another size: newer versions of CANN have other records.
    """
    if len(content) != RECORD_SIZE:
        expected, found = f"{RECORD_SIZE} bytes", f"{len(content)} bytes"
        raise DataError("not an overflow record", expected=expected, found=found)
    return {unit: _parse_unit(content, *layout) for unit, layout in _LAYOUT.items()}


def _parse_unit(content: bytes | memoryview, task: int, status: int, names: tuple[str, ...]) -> dict[str, Any]:
    values = dict(zip(_FIELDS, struct.unpack_from("<6Q", content, task), strict=True))
    values |= zip(names, struct.unpack_from(f"<{len(names)}Q", content, status), strict=True)
    return {name: hex(value) if name in _ADDRESSES else value for name, value in values.items()}


def has_overflow(value: ObservedValue) -> bool:
    """Whether a value has an element that is infinite or NaN."""
    return value.array.dtype.kind == "f" and not np.isfinite(value.array).all()


# Selection of the dumped operators by full name, by type, or by a pattern with `*`.

NEAREST = 3


class KernelSelection:
    """The entries that the setting `kernels` selects; None selects everything.

    A full name selects the operator in sunk steps and in single ones (`without_root`), and so does a pattern.
    """

    def __init__(self, kernels: Sequence[str] | None) -> None:
        self.kernels = kernels
        forms = [dict.fromkeys((kernel, without_root(kernel))) for kernel in kernels or ()]
        self._patterns = [re.compile("|".join(re.escape(x).replace(r"\*", ".*") for x in form)) for form in forms]
        self._cache: dict[str, bool] = {}

    def selects_operator(self, name: str, op_type: str) -> bool:
        """Whether an operator with this full name and type is selected; the result is cached."""
        if name not in self._cache:
            self._cache[name] = self.kernels is None or any(
                any(map(p.fullmatch, (name, without_root(name), op_type))) for p in self._patterns
            )
        return self._cache[name]

    def selects_value(self, name: str) -> bool:
        """Whether a parameter or constant is selected, by its name or a pattern that matches it."""
        return self.kernels is None or any(pattern.fullmatch(name) for pattern in self._patterns)

    def unmatched(self, names: Iterable[str]) -> list[tuple[str, list[str]]]:
        """The kernels that select none of these operators, parameters and constants, with the nearest names."""
        names = list(dict.fromkeys(names))
        candidates = dict.fromkeys([*names, *(name.rpartition("/")[2].rpartition("-op")[0] for name in names)])
        unmatched = [
            kernel
            for kernel, pattern in zip(self.kernels or (), self._patterns, strict=True)
            if not any(map(pattern.fullmatch, (*candidates, *map(without_root, names))))
        ]
        return [(kernel, get_close_matches(kernel, candidates, NEAREST, 0.3)) for kernel in unmatched]


# The numbers of the graphs of a dump, in a hidden file, so that a resumed run gives each graph the number it had.

NUMBERS_FILE = ".graph_numbers.json"
NUMBERS_LIMIT = 1 << 24  # bytes


class GraphNumbers:
    """Numbers graphs from 0, in the order in which they first run: one for each cell and the types of its inputs.

    The graphs of an earlier process have lost their cells: they are found by types alone, once each.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NUMBERS_FILE
        self._known: list[list[str]] = []
        self._owners: list[weakref.ref[object] | None] = []

    def number(self, types: tuple[TensorType, ...], owner: object) -> int:
        """The number of a graph; that of a new one is written. Raises StorageError."""
        key, own = [str(one) for one in types], weakref.ref(owner)
        for found in (own, None):
            for number, known in enumerate(zip(self._known, self._owners, strict=True)):
                if known == (key, found):  # references are equal when their living objects are
                    self._owners[number] = own
                    return number
        self._known.append(key)
        self._owners.append(own)
        write_atomically(self._path, json.dumps(self._known) + "\n")
        return len(self._known) - 1

    def restore(self) -> None:
        """Continue with the numbers in the file, if there is one. Raises DataError if it is damaged."""
        if not self._path.exists():
            return
        try:
            known = json.loads(read_bytes(self._path, NUMBERS_LIMIT))
        except ValueError as reason:
            raise DataError("the numbers of the graphs of a dump are damaged", file=self._path, reason=reason) from None
        if not isinstance(known, list):
            raise DataError("the numbers of the graphs of a dump are damaged", file=self._path, found=known)
        self._known, self._owners = known, [None] * len(known)


# The observer of a dump.


class Dumper(ValueObserver):
    """Dumps the steps, operators and sides that its settings select.

    With `op_debug_mode` it dumps only operators whose outputs are not finite, and a record of the first one of each
    step. `close` waits until all files are written, and logs a warning for each kernel in the settings that no executed
    operator matched, and for iterations that were never reached. Raises StorageError if a file cannot be written.
    """

    def __init__(self, settings: DumpSettings, device_id: int = 0) -> None:
        self.settings = settings
        self.writer: DumpWriter = (SyncWriter if settings.kind == "sync" else AsyncWriter)(settings, device_id)
        self.supports_sinks = settings.kind != "sync"
        self.device_layout = self.supports_sinks or not settings.trans_flag
        self.selection = KernelSelection(settings.kernels)
        self._graphs = GraphNumbers(self.writer.folder)
        self._graph = 0  # number of the current graph
        self._written: set[int] = set()
        self._has_record = False  # of an overflow in the current step
        self._unmatched: dict[str, list[str]] | None = (
            None  # kernels with the nearest names; None before the first step
        )

    def next_step(self, step: int) -> int | None:
        """The first step in the setting `iterations` that is not before `step`."""
        return self.settings.iterations.next_step(step)

    def selects(self, node: Node) -> bool:
        """Whether the setting `kernels` selects an operator."""
        return self.selection.selects_operator(node.name, node.op.name)

    def begin(self, step: int, types: tuple[TensorType, ...], owner: object) -> None:
        """Determine the number of the graph. A step that a resumed run executes again replaces its files."""
        self._graph = self._graphs.number(types, owner)
        self._has_record = False
        self.writer.begin_step(step, self._graph)

    def operator(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue]
    ) -> None:
        """Write the operator, unless `op_debug_mode` excludes it."""
        mode = self.settings.op_debug_mode
        if mode:
            if not detects(mode, node.op.name) or not any(map(has_overflow, outputs)):
                return
            self._write_record(step, node)
        sides = inputs if self.settings.inputs else None, outputs if self.settings.outputs else None
        self.writer.write_operator(step, self._graph, node.number, node, *sides)

    def end(self, step: int, graph: Graph) -> None:
        """Write parameters and constants, and the graph if it is new."""
        if self._graph not in self._written:
            self._written.add(self._graph)
            self.writer.write_graph(self._graph, graph)
        self._match_kernels(graph)
        if self.settings.outputs and not self.settings.op_debug_mode:
            values = {p.name: p.array for p in graph.parameters} | {x.name: a for x, a in graph.constants.items()}
            for name, array in values.items():
                if self.selection.selects_value(name):
                    self.writer.write_value(step, self._graph, name, ObservedValue(array))
        self.writer.finish_step(step)

    def rewind(self, step: int) -> None:
        """Remove the files of the steps from number `step` on; graphs keep the numbers that they had before."""
        self.writer.rewind(step)
        self._graphs.restore()

    def flush(self) -> None:
        """Wait until the files of all complete steps are written."""
        self.writer.flush()

    def close(self) -> None:
        """Wait until all files are written, and name what should have been dumped and was not."""
        self.writer.close()
        for kernel, nearest in (self._unmatched or {}).items():
            LOG.warning("dump: no operator matches %r; the nearest are %s", kernel, ", ".join(nearest) or "none")
        missed = [(a, b) for a, b in self.settings.iterations.ranges or () if b >= self.iterations]
        if missed and self.iterations:
            text = "|".join(
                str(b) if a >= b else f"{a}-{b}" for a, b in ((max(a, self.iterations), b) for a, b in missed)
            )
            LOG.warning("dump: the iterations %s were never reached: the last one is %d", text, self.iterations - 1)

    def _match_kernels(self, graph: Graph) -> None:
        """Forget the kernels that match in the graph of an executed step."""
        if self.selection.kernels is None or self._unmatched == {}:
            return
        nodes = sorted((*graph.nodes, *graph.effects), key=lambda node: node.number)
        names = [*(x.name for x in nodes), *(x.name for x in graph.parameters), *(x.name for x in graph.constants)]
        found = dict(self.selection.unmatched(names))
        known = found if self._unmatched is None else self._unmatched
        self._unmatched = {kernel: nearest for kernel, nearest in known.items() if kernel in found}

    def _write_record(self, step: int, node: Node) -> None:
        """Write an overflow record for the first operator of a step that overflows."""
        if not self._has_record:
            self._has_record = True
            content = overflow_record(mode_of(node.op.name), node.number)
            outputs = [ObservedValue(np.frombuffer(content, np.uint8))]
            self.writer.write(step, self._graph, node.number, OVERFLOW, OVERFLOW_NAME, None, outputs)


# The observer of a failed step that is replayed (`session.enable_exception_dump`).


class FirstFailure(ValueObserver):
    """Dumps the first failing operator of `steps` below `path`, in the layout of a synchronous dump.

    No folder is created before a failure. Raises StorageError if a file cannot be written.
    """

    def __init__(self, path: Path, net_name: str, device_id: int) -> None:
        self.settings = DumpSettings("sync", path, net_name)
        self.device_id = device_id
        self.steps = range(0)
        self.found: Node | None = None
        self._rows: dict[str, str] = {}
        self._writer: SyncWriter | None = None

    def next_step(self, step: int) -> int | None:
        """Every step of `steps`, until a failure is found."""
        first = max(step, self.steps.start)
        return first if first in self.steps and self.found is None else None

    def operator(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue]
    ) -> None:
        """Dump the operator if it is the first one whose outputs are not finite."""
        if self.found is None and any(map(has_overflow, outputs)):
            not_finite = [f"input {k}" for k, value in enumerate(inputs) if has_overflow(value)]
            self._rows = {"inputs": f"{' and '.join(not_finite)} not finite" if not_finite else "all finite"}
            self._dump(step, node, inputs, outputs)

    def failed(self, step: int, node: Node, inputs: Sequence[ObservedValue], graph: Graph) -> None:
        """Dump the inputs of an operator that raised an error, and the graph up to it: the step has no end."""
        if self.found is None:
            self._dump(step, node, inputs, None)
            self.end(step, graph)

    def end(self, step: int, graph: Graph) -> None:
        """Write the graph of the failed operator."""
        if self._writer is not None:
            self._writer.write_graph(0, graph)

    @property
    def rows(self) -> dict[str, object]:
        """Rows for an error message: `operator`, `line`, `inputs`, `dump`; empty if there was no failure."""
        if self.found is None:
            return {}
        line = user_line(self.found.source)
        return {"operator": self.found.name, "line": line, **self._rows, "dump": str(self.settings.path)}

    def _dump(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue] | None
    ) -> None:
        self.found = node
        self._writer = SyncWriter(self.settings, self.device_id)
        self._writer.rewind(0)  # removes the failure before the run was resumed, and leaves those of other ranks
        self._writer.write_operator(step, 0, node.number, node, inputs, outputs)
