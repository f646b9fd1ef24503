"""Which axis of the inputs and of the output of an ONNX file is the batch.

Datasets give rows first, files have the batch where their exporter put it. Symbolic axes decide (`axes_of_file`), then
what fits the shape of a row (`fitting`), and at last the numbers: samples along a batch do not change each other
(`axis_of_samples`).
"""

import re
from collections.abc import Callable, Collection, Sequence

import numpy as np

from runner.importer.file import OnnxGraph, OnnxValue
from runner.types import Shape, TensorType

BATCH = re.compile(r"(.*[^a-z])?(n|b|bs|batch\w*|num_samples|samples?)", re.IGNORECASE)
OTHERS = re.compile(r".*(seq|time|len|step|frame|token|height|width).*|[chwlt]", re.IGNORECASE)
UNNAMED = "?"
RNG = 5  # the seed of the numbers that are tried


def axes_of_file(graph: OnnxGraph) -> tuple[int | None, ...]:
    """For each input, the axis that its symbolic axes name as the batch; None where they name none, or several.

    A first axis of 1 can be a batch that the exporter fixed: then only a name as `batch` says that it is another one.
    """
    named = [names for value in (*graph.inputs, *graph.outputs) if (names := _symbols(value))]
    common = set.intersection(*(set(names.values()) for names in named)) if named else set()
    is_one = all(value.shape[0] == 1 for value in graph.inputs if value.shape)
    return tuple(_named_axis(value, None if is_one else common - {UNNAMED}) for value in graph.inputs)


def _symbols(value: OnnxValue) -> dict[int, str]:
    return {axis: n for axis, n in enumerate(value.shape or ()) if isinstance(n, str)}


def _named_axis(value: OnnxValue, common: Collection[str] | None) -> int | None:
    """The only axis whose name says so, or, with names that are `common` to all values, has one, or is no length."""
    rules: list[Callable[[str], object]] = [BATCH.fullmatch]
    rules += [] if common is None else [common.__contains__, _may_be_batch]
    for rule in rules:
        chosen = [axis for axis, name in _symbols(value).items() if rule(name)]
        if len(chosen) == 1:
            return chosen[0]
    return None


def _may_be_batch(name: str) -> bool:
    return OTHERS.fullmatch(name) is None


def fitting(value: OnnxValue, row: Shape, axis: int | None) -> list[int]:
    """The axes of an input that can be the batch of rows of this shape; only `axis` if it can."""
    found = [k for k in range(len(value.shape or ())) if fits(value, with_axis(row, k, 0), k)]
    return [axis] if axis in found else found or [0]


def fits(value: OnnxValue, shape: Shape, axis: int) -> bool:
    """Whether an input can have this shape if an axis is the batch."""
    if value.shape is None or len(value.shape) != len(shape):
        return value.shape is None
    ends = enumerate(zip(value.shape, shape, strict=True))
    return all(isinstance(n, str) or n == m or k == axis for k, (n, m) in ends)


def with_axis(row: Shape, axis: int, length: int) -> Shape:
    """The shape of so many rows along an axis."""
    return *row[:axis], length, *row[axis:]


def length_of(values: Sequence[OnnxValue], axes: Sequence[int]) -> int | None:
    """The batch size that a file fixes; None if it fixes none, or several."""
    lengths = {x.shape[axis] for x, axis in zip(values, axes, strict=True) if x.shape and axis < len(x.shape)}
    first = lengths.pop() if len(lengths) == 1 else None
    return first if isinstance(first, int) else None


def output_axes(graph: OnnxGraph, axes: Sequence[int]) -> list[int]:
    """The axes of the output that can be the batch, by their names, or else by the batch size that the file fixes."""
    (output,), names = graph.outputs[:1], set[str]()
    for value, axis in zip(graph.inputs, axes, strict=True):
        names |= {name for k, name in _symbols(value).items() if k == axis and name != UNNAMED}
    named = _named_axis(output, names)
    if named is not None:
        return [named]
    length = length_of(graph.inputs, axes)
    return [axis for axis, n in enumerate(output.shape or ()) if n == length]


def axis_of_samples(
    run: Callable[[Sequence[np.ndarray]], np.ndarray], kinds: Sequence[TensorType], axes: Sequence[int]
) -> int | None:
    """The axis of the output along which samples are separate when they are along these axes of the inputs.

    The first and the last sample are changed. None if that changes others, or if the output has no such axis.
    """
    rng = np.random.default_rng(RNG)
    samples = kinds[0].shape[axes[0]]
    first = [_numbers(kind, rng) for kind in kinds]
    other = [_numbers(kind, rng) if kind.dtype.is_float else np.ones(kind.shape, kind.dtype.numpy) for kind in kinds]
    before = run(first)
    found = {axis for axis, n in enumerate(before.shape) if n == samples}
    for place in (0, samples - 1):
        changed = [_with_sample(x, y, axis, place) for x, y, axis in zip(first, other, axes, strict=True)]
        after = run(changed)
        for axis in [*found]:
            kept = [k for k in range(samples) if k != place]
            if not np.allclose(before.take(kept, axis), after.take(kept, axis), 1e-4, 1e-6, equal_nan=True):
                found.discard(axis)
    return min(found, default=None)


def _numbers(kind: TensorType, rng: np.random.Generator) -> np.ndarray:
    """Random floats; zeros of other types, which are numbers of tokens or classes."""
    return np.asarray(rng.normal(size=kind.shape) if kind.dtype.is_float else np.zeros(kind.shape), kind.dtype.numpy)


def _with_sample(array: np.ndarray, other: np.ndarray, axis: int, place: int) -> np.ndarray:
    changed = array.copy()
    np.moveaxis(changed, axis, 0)[place] = np.moveaxis(other, axis, 0)[place]
    return changed
