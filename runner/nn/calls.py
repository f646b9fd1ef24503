"""Calls of cells and functions outside of networks: one step each, in the mode of the context.

Operands and results are structures of tensors; numbers, texts and other constants among the operands are constants of
the graph, as in the reference, so that each of them has a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from runner import context
from runner.core.eager import Eager
from runner.core.graph import NO_VALUES, ValueObserver
from runner.core.precision import use_precision
from runner.core.structure import FlatStructure, flatten, map_values, rebuilt
from runner.core.symbolic import as_returned
from runner.core.values import Tensor, Value
from runner.errors import ConfigError
from runner.nn.cell import COMPILERS, EXECUTORS, Cell
from runner.nn.function_cell import FunctionCell, call_function
from runner.nn.ms_function import is_staged
from runner.nn.optim.optimizer import scheduled_optimizers, scheduled_step
from runner.nn.steps import EagerStep, GraphStep
from runner.ops.gradient import EXECUTOR, GradientFunction
from runner.types import TensorType


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
    observer, number = _observed_call()
    if number is None:
        with _step(cell), np.errstate(all="ignore"), Eager() as interpreter:
            outputs = cell.compute(*map_values(lambda x: x, inputs))
            interpreter.commit()
        return outputs
    flat = flatten(inputs)
    view: Any = _View(cell, flat.layout)
    with _step(cell):
        arrays = EagerStep(view, _name(cell)).observe([_data(x) for x in flat.values], number, observer)
    return rebuilt(view.results[_types(flat)], [Tensor(array) for array in arrays])


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
    """The programs for operands of this layout, and for what else the graph depends on."""
    modes = [(c.training, c.float_type) for _, c in cell.cells_and_names()]
    key = (flat.layout, context.device(), context.reserves_class_names(), context.precision(), *modes)
    # The cell owns its programs, so that they are freed with it.
    steps: dict[tuple[Any, ...], GraphStep] = cell.__dict__.setdefault("_graphs", {})
    try:
        found = steps.get(key)
    except TypeError as error:
        repair = "pass tensors, numbers, texts, and tuples, lists or dicts of them, or set it in __init__"
        what = "an operand is a constant of the graph, and cannot be compared with that of other calls"
        raise ConfigError(what, cell=_name(cell), reason=error, repair=repair) from None
    if found is None:
        view: Any = _View(cell, flat.layout)
        found = steps[key] = GraphStep(view, context.device(), _name(cell), observer=context.graph_observer())
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
    number, observer.cell_calls = observer.cell_calls, observer.cell_calls + 1
    return observer, number if observer.next_step(number) == number else None


def _call_gradient(gradient: GradientFunction, inputs: tuple[Any, ...], sens: dict[str, Any]) -> Any:
    mode = context.GRAPH_MODE if is_staged(gradient.function) else context.get_context("mode")
    return call_function(gradient.compute, gradient.function, ("gradient", *gradient.key), (inputs, sens), mode)


EXECUTORS[context.PYNATIVE_MODE] = _call_eager
EXECUTORS[context.GRAPH_MODE] = _call_graph
COMPILERS[context.GRAPH_MODE] = _compile
EXECUTOR[0] = _call_gradient
