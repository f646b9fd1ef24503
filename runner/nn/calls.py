"""Calls of cells and functions outside of networks: one step each, in the mode of the context.

Operands and results are structures of tensors; numbers, texts and other constants among the operands are constants of
the graph, as in the reference, so that each of them has a program of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from types import CellType, MethodType
from typing import Any

import numpy as np

from runner import context
from runner.core.eager import Eager
from runner.core.observers import NO_VALUES, ValueObserver
from runner.core.precision import use_precision
from runner.core.structure import Flat, flatten, map_values, rebuilt
from runner.core.value import Tensor, Value
from runner.core.primitive import is_nested
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import EXECUTORS, Cell
from runner.nn.optim import scheduled_optimizers, scheduled_step
from runner.nn.steps import EagerStep, GraphStep
from runner.ops.grad_operation import EXECUTOR, GradientFunction
from runner.types import TensorType


class FunctionCell(Cell):
    """A function as a cell: `function` computes, with the parameters of the cells that `uses` uses."""

    def __init__(self, function: Callable[..., Any], uses: Callable[..., Any]) -> None:
        super().__init__(auto_prefix=False)
        self.__dict__.update(construct=function, uses=uses)

    @property
    def label(self) -> str:
        """The name of the function, or of the cell that is differentiated."""
        return getattr(self.uses, "__name__", type(self.uses).__name__)

    def cells_and_names(self, prefix: str = "") -> Iterator[tuple[str, Cell]]:
        """This cell, and those that the function uses."""
        yield prefix, self
        for cell in used_cells(self.uses):
            yield from cell.cells_and_names(prefix)


def used_cells(function: Any) -> list[Cell]:
    """The cells that a function uses: itself, that of a method, and those in variables of its body."""
    if isinstance(function, Cell):
        return [function]
    if isinstance(function, GradientFunction | StagedFunction):
        return used_cells(function.function)
    found = [getattr(function, "__self__", None)]
    code = getattr(function, "__code__", None)
    if code is not None:
        inner = zip(code.co_freevars, function.__closure__ or (), strict=True)
        found += [cell.cell_contents for _, cell in inner if cell != CellType()]
        found += [function.__globals__.get(name) for name in code.co_names]
    return list(dict.fromkeys(x for x in found if isinstance(x, Cell)))


class _View:
    """A cell whose operands and results are the tensors in the structures of another one."""

    def __init__(self, cell: Cell, layout: Any) -> None:
        self.cell, self.layout = cell, layout
        self.results: dict[tuple[TensorType, ...], Any] = {}  # the layout of the results for operands of these types
        self.construct = self._tensors  # so that its line is not one of the network

    def _tensors(self, *values: Value) -> tuple[Value, ...]:
        results = flatten(self.cell.construct(*rebuilt(self.layout, values)))
        self.results[tuple([x.type for x in values])] = results.layout
        return results.values


def _call_eager(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    if is_staged(cell):
        return _call_graph(cell, inputs)
    observer, number = _observed_call()
    if number is None:
        with _step(cell), np.errstate(all="ignore"), Eager() as interpreter:
            outputs = cell.construct(*map_values(lambda x: x, inputs))
            interpreter.commit()
        return outputs
    flat = flatten(inputs)
    view: Any = _View(cell, flat.layout)
    with _step(cell):
        arrays = EagerStep(view, _name(cell)).observe([x.data for x in flat.values], number, observer)
    return rebuilt(view.results[_types(flat)], [Tensor(array) for array in arrays])


def _call_graph(cell: Cell, inputs: tuple[Any, ...]) -> Any:
    flat = flatten(inputs)
    step = _graph_step(cell, flat)
    arrays = [x.data for x in flat.values]
    observer, number = _observed_call()
    with _step(cell):
        if number is not None:
            outputs = [Tensor(array) for array in step.observe(arrays, number, observer)]
        else:
            outputs = step.program(_types(flat)).tensors(arrays)
    return rebuilt(step.cell.results[_types(flat)], outputs)


def _graph_step(cell: Cell, flat: Flat) -> GraphStep:
    """The programs for operands of this layout, and for what else the graph depends on."""
    modes = [c.training for _, c in cell.cells_and_names()]
    key = (flat.layout, context.device(), context.reserves_class_names(), context.precision(), *modes)
    # The cell owns its programs, so that they are freed with it.
    steps: dict[tuple[Any, ...], GraphStep] = cell.__dict__.setdefault("_graphs", {})
    try:
        if key not in steps:
            view: Any = _View(cell, flat.layout)
            steps[key] = GraphStep(view, context.device(), _name(cell), observer=context.graph_observer())
    except TypeError as error:
        repair = "pass tensors, numbers, texts, and tuples, lists or dicts of them, or set it in __init__"
        what = "an operand is a constant of the graph, and cannot be compared with that of other calls"
        raise ConfigError(what, cell=_name(cell), reason=error, repair=repair) from None
    return steps[key]


@contextmanager
def _step(cell: Cell) -> Iterator[None]:
    """Context of one step: its learning rates and its precision."""
    with scheduled_step(scheduled_optimizers(cell)), use_precision(context.precision()):
        yield


def _name(cell: Cell) -> str:
    return cell.label if isinstance(cell, FunctionCell) else type(cell).__name__


def _types(flat: Flat) -> tuple[TensorType, ...]:
    return tuple([x.type for x in flat.values])


def _observed_call() -> tuple[ValueObserver, int | None]:
    """The observer of cell calls, and the number of this call if the observer requests it."""
    observer = context.value_observer()
    if observer is NO_VALUES:
        return observer, None
    number, observer.cell_calls = observer.cell_calls, observer.cell_calls + 1
    return observer, number if observer.next_step(number) == number else None


def call_function(function: Callable[..., Any], owner: Any, key: object, inputs: tuple[Any, ...], mode: int) -> Any:
    """Execute a function that belongs to `owner`, a function or cell, which keeps its programs under `key`."""
    if isinstance(owner, MethodType):
        key, owner = (owner.__name__, key), owner.__self__
    cells: dict[object, FunctionCell] = getattr(owner, "__dict__", {}).setdefault("_functions", {})
    if key not in cells:
        cells[key] = FunctionCell(function, owner)
    return EXECUTORS[mode](cells[key], inputs)


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

        return call_function(run, *((method[0], key) if method else (self, key)), (inputs, kwargs), context.GRAPH_MODE)

    @property
    def _is_method(self) -> bool:
        return "." in self.__qualname__.rpartition("<locals>.")[2]  # type: ignore[attr-defined]

    def _check(self, *inputs: Any) -> None:
        given = _types(flatten(inputs))
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
    return StagedFunction(fn, None if input_signature is None else _types(flatten(input_signature)))


def _call_gradient(gradient: GradientFunction, inputs: tuple[Any, ...], sens: dict[str, Any]) -> Any:
    mode = context.GRAPH_MODE if is_staged(gradient.function) else context.get_context("mode")
    return call_function(gradient.compute, gradient.function, ("gradient", *gradient.key), (inputs, sens), mode)


EXECUTORS[context.PYNATIVE_MODE] = _call_eager
EXECUTORS[context.GRAPH_MODE] = _call_graph
EXECUTOR[0] = _call_gradient
