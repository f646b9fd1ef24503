"""Executes a cell once, a step: operator by operator (PyNative mode) or as a compiled graph (graph mode).

`EagerStep` and `GraphStep` take and return arrays; `Model` and sinks use them. A cell or function that a script calls
outside of a network is a step too, of structures of tensors: those calls are at the end, and register themselves with
`Cell`. Between them: functions as cells, and `ms_function`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper
from types import CellType, MethodType
from typing import Any, Protocol, TypeVar

import numpy as np

from runner import compile as compiler, context
from runner.communication.world import world
from runner.core.graph import NO_GRAPHS, NO_VALUES, Graph, GraphObserver, Pass, ValueObserver
from runner.core.interpreter import Eager, execution, is_nested
from runner.core.parts import DividedArray, Parts, parts_of_rank
from runner.core.precision import use_precision
from runner.core.recorder import ObservingRecorder, Recorder
from runner.core.trace import as_returned
from runner.core.values import FlatStructure, Tensor, Value, flatten, map_values, rebuilt, values_of
from runner.device import Device
from runner.errors import ConfigError, ShapeError, StorageError
from runner.nn.cell import Cell
from runner.nn.optim.optimizer import scheduled_optimizers, scheduled_step
from runner.ops.gradient import GradientFunction
from runner.types import TensorType

S = TypeVar("S", bound="EagerStep | GraphStep")


class Step(Protocol):
    """Executes a cell once, and updates its parameters."""

    cell: Cell

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""

    def observe(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """The same outputs; the observer receives the values of the step, whose number is `step`."""


def run_observed(step: Step, arrays: Sequence[np.ndarray], observer: ValueObserver) -> list[np.ndarray]:
    """Execute a step as the next iteration of the observer, which receives its values if it requests them."""
    number = observer.count()
    return step.observe(arrays, number, observer) if observer.next_step(number) == number else step(arrays)


class EagerStep:
    """PyNative mode; the observer receives the graph of the first step under `name`, as from graph mode."""

    def __init__(self, cell: Cell, name: str, observer: GraphObserver = NO_GRAPHS) -> None:
        self.cell, self.name, self.observer = cell, name, observer
        self.records = observer.records_steps

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the kernels in the order in which `construct` applies the operators."""
        if self.records:
            return self._record(Recorder, arrays, lambda graph: None)
        return self.run_with(Eager(), arrays)

    def run_with(self, interpreter: Eager, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As a call, with the given interpreter."""
        inputs = tuple(map(Tensor, arrays))
        interpreter.parts = _parts_of(self.cell, inputs)
        # Numbers may overflow as in graph mode: the loss shows it, without warnings of numpy.
        with np.errstate(all="ignore"), interpreter:
            outputs = values_of(self.cell.compute(*inputs))
            interpreter.commit()
        return [value.array for value in outputs]  # type: ignore[attr-defined]

    def observe(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """As a call; the observer receives every operator immediately."""
        observer.begin(step, tuple(map(TensorType.of, arrays)), self.cell)
        recorder = partial(ObservingRecorder, step=step, observer=observer)
        return self._record(recorder, arrays, lambda graph: observer.end(step, graph))

    def _record(
        self,
        recorder: Callable[[tuple[Tensor, ...]], Recorder],
        arrays: Sequence[np.ndarray],
        on_graph: Callable[[Graph], None],
    ) -> list[np.ndarray]:
        """Run with a recorder; `on_graph` receives the graph before parameters have their new values."""
        inputs = tuple(map(Tensor, arrays))
        interpreter = recorder(inputs)
        interpreter.parts = _parts_of(self.cell, inputs)
        with np.errstate(all="ignore"), interpreter:
            try:
                outputs = values_of(self.cell.compute(*inputs))
            except StorageError:  # raised by an observer: the graph is valid
                raise
            except Exception:
                self.observer.failed(interpreter.graph(self.name))
                raise
            graph = interpreter.graph(self.name, outputs)
            on_graph(graph)
            interpreter.commit()
        if self.records:
            self.observer.stage("tape", graph)
            self.observer.executed(graph)
            self.records = False
        return [value.array for value in outputs]  # type: ignore[attr-defined]


def _parts_of(cell: Cell, inputs: Sequence[Tensor]) -> Parts | None:
    """The parts of the batch in the step of a data-parallel training: the inputs are divisible from now on."""
    if not getattr(cell, "reducer_flag", False):
        return None
    lengths = [x.shape[0] for x in inputs if x.ndim and x.shape[0]]
    if not lengths:
        return None
    parts = parts_of_rank(max(lengths, key=lengths.count), world().size, world().is_even)
    for x in inputs:
        if x.ndim and x.shape[0] == parts.batch:
            x.divided = DividedArray(parts, 0)
    return parts


class DebugPrograms:
    """Passes the values of steps of a cell in graph mode to an observer, without changing parameters."""

    def __init__(self, cell: Cell, device: Device, name: str, root: str, observer: ValueObserver) -> None:
        self.cell, self.device, self.name, self.root, self.observer = cell, device, name, root, observer
        self._compiled: dict[tuple[TensorType, ...], compiler.DebugProgram] = {}

    def __call__(self, step: int, arrays: Sequence[np.ndarray]) -> None:
        """Execute a step for the observer."""
        types = tuple([TensorType.of(array) for array in arrays])
        if types not in self._compiled:
            names = self.name, self.root
            self._compiled[types] = compiler.DebugProgram(self.cell.compute, types, self.device, *names, self.observer)
        self._compiled[types](step, arrays)


class GraphStep:
    """Graph mode: one program for each combination of input types, compiled on first use.

    `columns` are the names of the inputs of programs that are compiled from now on; `programs` holds all in the order
    of compilation, and the observer receives the events of each. `passes` replace the default ones of the compiler.
    """

    def __init__(
        self,
        cell: Cell,
        device: Device,
        name: str,
        columns: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        observer: GraphObserver = NO_GRAPHS,
        passes: Sequence[Pass] | None = None,
    ) -> None:
        self.cell, self.device, self.name, self.observer = cell, device, name, observer
        self.columns, self.outputs, self.passes = columns, outputs, passes
        self.programs: dict[tuple[TensorType, ...], compiler.Program] = {}
        self._debug: DebugPrograms | None = None

    def program(self, types: tuple[TensorType, ...]) -> compiler.Program:
        """The program for inputs of these types."""
        if types not in self.programs:
            how = self.name, self.columns, self.outputs, self.observer, self.passes
            self.programs[types] = compiler.Program(self.cell.compute, types, self.device, *how)
        return self.programs[types]

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the program for these types."""
        return self.program(tuple([TensorType.of(array) for array in arrays]))(arrays)

    def observe(self, arrays: Sequence[np.ndarray], step: int, observer: ValueObserver) -> list[np.ndarray]:
        """Run the debug program for the observer, then the step with its usual program: results do not change."""
        if self._debug is None or self._debug.observer is not observer:
            self._debug = DebugPrograms(self.cell, self.device, self.name, "Default", observer)
        self._debug(step, arrays)
        return self(arrays)


# Functions as cells: those that are executed when they are called outside of networks.


class FunctionCell(Cell):
    """A function as a cell: `function` computes, with the parameters of the cells that `uses` uses."""

    def __init__(self, function: Callable[..., Any], uses: Callable[..., Any]) -> None:
        super().__init__(auto_prefix=False)
        self.__dict__.update(construct=function, uses=uses)

    @property
    def label(self) -> str:
        """The name of the function, or of the cell that is differentiated."""
        return getattr(self.uses, "__name__", type(self.uses).__name__)

    def cells_and_names(self, cells: set[Cell] | None = None, name_prefix: str = "") -> Iterator[tuple[str, Cell]]:
        """This cell, and those that the function uses."""
        yield name_prefix, self
        for cell in used_cells(self.uses):
            yield from cell.cells_and_names(cells, name_prefix)


def used_cells(function: Any) -> list[Cell]:
    """The cells that a function uses: itself, that of a method, and those in variables of its body."""
    if isinstance(function, Cell):
        return [function]
    while not hasattr(function, "__code__") and hasattr(function, "function"):  # a decorated or differentiated one
        function = function.function
    found = [getattr(function, "__self__", None)]
    code = getattr(function, "__code__", None)
    if code is not None:
        inner = zip(code.co_freevars, function.__closure__ or (), strict=True)
        found += [cell.cell_contents for _, cell in inner if cell != CellType()]
        found += [function.__globals__.get(name) for name in code.co_names]
    return list(dict.fromkeys(x for x in found if isinstance(x, Cell)))


def call_function(function: Callable[..., Any], owner: Any, key: object, inputs: tuple[Any, ...], mode: int) -> Any:
    """Execute a function that belongs to `owner`, a function or cell, which keeps its programs under `key`."""
    if isinstance(owner, MethodType):
        key, owner = (owner.__name__, key), owner.__self__
    cells: dict[object, FunctionCell] = getattr(owner, "__dict__", {}).setdefault("_functions", {})
    if key not in cells:
        cells[key] = FunctionCell(function, owner)
    return execution.cell(cells[key], inputs, mode)


# `ms_function`: functions that are compiled in PyNative mode too.


class StagedFunction:
    """A function or method that is compiled as one graph, also in PyNative mode: see `ms_function`."""

    def __init__(self, function: Callable[..., Any], signature: tuple[TensorType, ...] | None) -> None:
        update_wrapper(self, function)
        self.function, self.signature = function, signature

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_nested():
            return self.function(*args, **kwargs)
        method = args[:1] if args and isinstance(args[0], Cell) and self._is_method else ()
        inputs = args[len(method) :]
        self._check(inputs, kwargs)
        key = "ms_function", self.__name__  # type: ignore[attr-defined]

        def run(positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return self.function(*method, *positional, **named)

        owner = method[0] if method else self
        return call_function(run, owner, key, (inputs, kwargs), context.GRAPH_MODE)

    @property
    def _is_method(self) -> bool:
        return "." in self.__qualname__.rpartition("<locals>.")[2]  # type: ignore[attr-defined]

    def _check(self, *inputs: Any) -> None:
        given = tuple([x.type for x in flatten(inputs).values])
        if self.signature is not None and given != self.signature:
            texts = {"given": ", ".join(map(str, given)), "input_signature": ", ".join(map(str, self.signature))}
            raise ShapeError(f"{self.__name__}: the inputs do not fit input_signature", **texts)  # type: ignore[attr-defined]


def is_staged(function: Any) -> bool:
    """Whether a function, method or the `construct` of a cell is compiled in PyNative mode too."""
    if isinstance(function, Cell):
        function = type(function).construct
    return isinstance(getattr(function, "__func__", function), StagedFunction)


def ms_function(fn: Callable[..., Any] | None = None, obj: Any = None, input_signature: Any = None) -> Any:
    """Decorator: a function, a method or `construct` of a cell is compiled as one graph and cached, in PyNative mode
    too.

    `input_signature`: a tensor, or a tuple of them, whose shapes and element types a call must have. In PyNative mode
    a cell that another one calls is still executed operator by operator, so that gradients pass through it. `obj` has
    no effect. A call raises ShapeError when its inputs do not fit the signature.
    """
    if fn is None:
        return lambda function: ms_function(function, obj, input_signature)
    if not callable(fn):
        raise ConfigError("ms_function decorates a function or a method", given=type(fn).__name__)
    types = tuple([x.type for x in flatten(input_signature).values])
    return StagedFunction(fn, None if input_signature is None else types)


# Calls of cells and functions outside of networks: one step each, in the mode of the context.
#
# Operands and results are structures of tensors; numbers, texts and other constants among the operands are constants of
# the graph, as in MindSpore, so that each of them has a program of its own.


class _View:
    """A cell whose operands and results are the tensors in the structures of another one."""

    def __init__(self, cell: Cell, layout: Any) -> None:
        self.cell, self.layout = cell, layout
        self.results: dict[tuple[TensorType, ...], Any] = {}  # the layout of the results for operands of these types

    def compute(self, *values: Value) -> tuple[Value, ...]:
        """The tensors of the results."""
        results = flatten(as_returned(self.cell.compute(*rebuilt(self.layout, values))))
        self.results[tuple([x.type for x in values])] = results.layout
        return results.values


def _call_eager(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    if is_staged(cell):
        return _call_graph(cell, inputs)
    context.check_pynative_device()
    observer, number = _observed_call()
    if number is None:
        with _step(cell), np.errstate(all="ignore"), Eager() as interpreter:
            interpreter.parts = _parts_of(cell, [x for x in values_of(inputs) if isinstance(x, Tensor)])
            outputs = cell.compute(*map_values(lambda x: x, inputs))
            interpreter.commit()
        return outputs
    flat = flatten(inputs)
    step = _kept_step(cell, flat, "_eager", lambda view: EagerStep(view, _name(cell)))
    with _step(cell):
        arrays = step.observe([_data(x) for x in flat.values], number, observer)
    return rebuilt(step.cell.results[_types(flat)], [Tensor(array) for array in arrays])


def _call_graph(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    flat = flatten(inputs)
    step = _graph_step(cell, flat)
    arrays = [_data(x) for x in flat.values]
    observer, number = _observed_call()
    with _step(cell):
        if number is not None:
            outputs = [Tensor(array) for array in step.observe(arrays, number, observer)]
        else:
            outputs = step.program(_types(flat)).tensors(arrays)
    return rebuilt(step.cell.results[_types(flat)], outputs)


def _compile(cell: Cell, inputs: tuple[Any, ...]) -> None:
    flat = flatten(inputs)
    step = _graph_step(cell, flat)
    with _step(cell):
        step.program(_types(flat))


def _graph_step(cell: Cell, flat: FlatStructure) -> GraphStep:
    """The programs for operands of this layout."""

    def make(view: Any) -> GraphStep:
        return GraphStep(view, context.device(), _name(cell), observer=context.graph_observer())

    return _kept_step(cell, flat, "_graphs", make)


def _kept_step(cell: Cell, flat: FlatStructure, kept: str, make: Callable[[Any], S]) -> S:
    """The step for operands of this layout, and for what else the graph depends on."""
    modes = [(c.training, c.float_type) for _, c in cell.cells_and_names()]
    key = (flat.layout, context.device(), context.reserves_class_names(), context.precision(), *modes)
    # The cell owns its programs, so that they are freed with it.
    steps: dict[tuple[Any, ...], S] = cell.__dict__.setdefault(kept, {})
    try:
        found = steps.get(key)
    except TypeError as error:
        repair = "pass tensors, numbers, texts, and tuples, lists or dicts of them, or set it in __init__"
        what = "an operand is a constant of the graph, and cannot be compared with that of other calls"
        raise ConfigError(what, cell=_name(cell), reason=error, repair=repair) from None
    if found is None:
        found = steps[key] = make(_View(cell, flat.layout))
    return found


@contextmanager
def _step(cell: Cell) -> Iterator[None]:
    """Context of one step: its learning rates and its precision."""
    with scheduled_step(scheduled_optimizers(cell)), use_precision(context.precision()):
        yield


def _data(value: Value) -> np.ndarray:
    assert isinstance(value, Tensor)
    return value.array


def _name(cell: Cell) -> str:
    return cell.label if isinstance(cell, FunctionCell) else type(cell).__name__


def _types(flat: FlatStructure) -> tuple[TensorType, ...]:
    return tuple([x.type for x in flat.values])


def _observed_call() -> tuple[ValueObserver, int | None]:
    """The observer of cell calls, and the number of this call if the observer requests it."""
    observer = context.value_observer()
    if observer is NO_VALUES:
        return observer, None
    number = observer.count()
    return observer, number if observer.next_step(number) == number else None


def _call_gradient(gradient: GradientFunction, inputs: tuple[Any, ...], sens: dict[str, Any]) -> Any:
    mode = context.GRAPH_MODE if is_staged(gradient.function) else context.get_context("mode")
    return call_function(gradient.compute, gradient.function, ("gradient", *gradient.key), (inputs, sens), mode)


def _call(cell: Cell, inputs: tuple[Any, ...], mode: int) -> Any:
    return (_call_graph if mode == context.GRAPH_MODE else _call_eager)(cell, inputs)


execution.cell, execution.compile, execution.gradient = _call, _compile, _call_gradient
