"""The columns of a dataset as operands of a network: whether it takes so many, and what errors state about them."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from runner.core.source import SourceLine, is_users
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError, RunnerError, ShapeError, TrainingError, user_lines
from runner.nn.cell import Cell
from runner.nn.steps import GraphStep, Step


def check_columns(network: Cell, dataset: Dataset, loss_fn: Cell | None) -> None:
    """Raise ConfigError unless `construct` of the network takes the columns; with a loss, all but the last one, the
    target, which `construct` of the loss takes after an output."""
    names = dataset.get_col_names()
    inputs = names if loss_fn is None else names[:-1]
    if loss_fn is not None:
        _check_loss(loss_fn)
    if not inputs:
        repair = "a dataset with a column for each input of the network, and the target as the last one"
        raise ConfigError("no column is left for the network", columns=described(dataset), repair=repair)
    signature = _signature(network)
    try:
        signature.bind(*inputs)
    except TypeError as reason:
        name = type(network).__name__
        raise ConfigError(
            f"{name} does not take the columns of the dataset as its inputs",
            inputs=", ".join(inputs),
            construct=signature,
            reason=reason,
            columns=described(dataset),
            line=_definition(network),
            repair="the columns that it takes: dataset.project([...]), in the order of its inputs, then the target",
        ) from None


def _check_loss(loss_fn: Cell) -> None:
    signature = _signature(loss_fn)
    try:
        signature.bind("output", "target")
    except TypeError as reason:
        rows = {"construct": signature, "reason": reason, "line": _definition(loss_fn)}
        raise ConfigError(f"{type(loss_fn).__name__} does not take (output, target)", **rows) from None


def _signature(cell: Cell) -> inspect.Signature:
    if getattr(cell.construct, "__func__", None) is Cell.construct:
        rows = {"cell": type(cell).__name__, "line": cell.__dict__["_built"], "hint": "def construct(self, x): ..."}
        raise ConfigError("a cell that does not define construct", **rows)
    return inspect.signature(cell.construct)


def name_inputs(step: Step, dataset: Dataset) -> None:
    """The programs that a step compiles from now on have inputs with the names of the columns."""
    if isinstance(step, GraphStep):
        step.columns = dataset.get_col_names()


@contextmanager
def naming_columns(dataset: Dataset) -> Iterator[None]:
    """Errors inside the network get the types of the columns.

    What its own code raises becomes a TrainingError with the user's line, which both modes report alike.
    """
    try:
        yield
    except RunnerError as error:
        # also a type rule of an operator
        if isinstance(error, ShapeError) or (isinstance(error, ConfigError) and "scope" in error.rows):
            error.add(columns=described(dataset))
        raise
    except (OSError, MemoryError):
        raise
    except Exception as error:
        line = _line_in_network(error.__traceback__)
        if line is None:
            raise
        what = f"the network's own code failed: {type(error).__name__}: {error}"
        lines = user_lines(error)
        called = "\n".join(lines) if len(lines) > 1 else None
        raise TrainingError(what, line=line, at=called, columns=described(dataset)) from error


def described(dataset: Dataset) -> str:
    """The columns of a batch: `tokens Int32[8, 16], label Int32[8]`."""
    pairs = zip(dataset.get_col_names(), dataset.column_types(), strict=True)
    return ", ".join(f"{name} {kind}" for name, kind in pairs)


def _definition(network: Cell) -> SourceLine | None:
    """The line that defines `construct`, or the line that built a network whose class is not the user's."""
    code = getattr(network.construct, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return network.__dict__["_built"]  # type: ignore[no-any-return]
    return SourceLine(code.co_filename, code.co_firstlineno)


def _line_in_network(traceback: TracebackType | None) -> SourceLine | None:
    """The innermost line of the user's code inside of a `construct`, which may have called an operator; None if the
    exception comes from elsewhere, such as a callback that observes the step."""
    found, inside = None, False
    while traceback is not None and not (inside and traceback.tb_frame.f_code.co_name == "bind"):
        code = traceback.tb_frame.f_code
        inside = inside or code.co_name == "construct"
        if inside and is_users(code.co_filename):
            found = SourceLine(code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found
