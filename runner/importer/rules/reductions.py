"""Rules of operators along axes: reductions; and those that compare or sum along one: TopK, ArgMax, CumSum, Unique."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Value
from runner.importer.node_call import NodeCall, onnx_operator
from runner.importer.rules.indexing import axis_of, one_number

# Reductions.

Reduction = Callable[[Value, tuple[int, ...], bool], Any]
SUMS: dict[str, Reduction] = {
    "ReduceSum": lambda x, axes, keep: ops.ReduceSum(keep)(x, axes),
    "ReduceMean": lambda x, axes, keep: ops.ReduceMean(keep)(x, axes),
    "ReduceMax": lambda x, axes, keep: ops.ReduceMax(keep)(x, axes),
    "ReduceMin": lambda x, axes, keep: ops.ReduceMin(keep)(x, axes),
    "ReduceProd": lambda x, axes, keep: ops.ReduceProd(keep)(x, axes),
    "ReduceL1": lambda x, axes, keep: ops.ReduceSum(keep)(ops.Abs()(x), axes),
    "ReduceL2": lambda x, axes, keep: ops.Sqrt()(ops.ReduceSum(keep)(ops.Square()(x), axes)),
    "ReduceSumSquare": lambda x, axes, keep: ops.ReduceSum(keep)(ops.Square()(x), axes),
    "ReduceLogSum": lambda x, axes, keep: ops.Log()(ops.ReduceSum(keep)(x, axes)),
    "ReduceLogSumExp": lambda x, axes, keep: log_sum_exp(x, axes, keep),
}


def log_sum_exp(x: Value, axes: tuple[int, ...], keep: bool) -> Any:
    """log(sum(exp(x))), without overflow."""
    largest = ops.StopGradient()(ops.ReduceMax(True)(x, axes))
    total = ops.Log()(ops.ReduceSum(True)(ops.Exp()(x - largest), axes)) + largest
    return total if keep else ops.Squeeze(axes)(total)


def _declare(name: str, reduction: Reduction) -> None:
    def rule(call: NodeCall, x: Value, axes: np.ndarray | None = None) -> Any:
        chosen = call.setting("axes", axes)
        if not chosen and call.attribute("noop_with_empty_axes", 0):
            return x
        along = tuple(sorted(axis % x.ndim for axis in chosen)) if chosen else tuple(range(x.ndim))
        return reduction(x, along, bool(call.attribute("keepdims", 1)))

    rule.__doc__ = f"{name.removeprefix('Reduce')} over axes, which are known at import; over all axes without them."
    onnx_operator(name, static=("axes",))(rule)


for _name, _reduction in SUMS.items():
    _declare(_name, _reduction)


# TopK, ArgMax, ArgMin, CumSum, NonZero, Unique.


@onnx_operator("TopK", static=("k",))
def top_k(call: NodeCall, x: Value, k: np.ndarray | None = None) -> tuple[Value, Value]:
    """The largest (or with largest=0 the smallest) elements along `axis`, in order, and their positions."""
    axis = axis_of(call, call.attribute("axis", -1), x.ndim)
    count = call.attribute("k") if k is None else one_number(call, k, "k")
    if not 1 <= count <= x.shape[axis]:
        raise call.error("k is out of range", k=count, allowed=f"1 to {x.shape[axis]}", x=x.type)
    values, numbers = ops.TopK(True, count, axis, bool(call.attribute("largest", 1)))(x)
    return values, ops.Cast()(numbers, dt.int64)


@onnx_operator("ArgMax")
def arg_max(call: NodeCall, data: Value) -> Value:
    """The position of the largest element along `axis`: the first of equal ones, or the last one."""
    return _extremum(call, data, ops.Argmax)


@onnx_operator("ArgMin")
def arg_min(call: NodeCall, data: Value) -> Value:
    """The position of the smallest element along `axis`: the first of equal ones, or the last one."""
    return _extremum(call, data, ops.Argmin)


def _extremum(call: NodeCall, data: Value, kind: type[ops.Argmax | ops.Argmin]) -> Value:
    axis = axis_of(call, call.attribute("axis", 0), data.ndim)
    is_last = bool(call.attribute("select_last_index", 0))
    position: Value = kind(axis, dt.int64)(ops.ReverseV2(axis)(data) if is_last else data)
    if is_last:
        position = data.shape[axis] - 1 - position
    return ops.ExpandDims()(position, axis) if call.attribute("keepdims", 1) else position


@onnx_operator("CumSum", static=("axis",))
def cum_sum(call: NodeCall, x: Value, axis: np.ndarray) -> Value:
    """The sums of the elements up to each one along an axis that is known at import."""
    at = axis_of(call, one_number(call, axis, "axis"), x.ndim)
    return ops.CumSum(bool(call.attribute("exclusive", 0)), bool(call.attribute("reverse", 0)))(x, at)


@onnx_operator("NonZero", static=("x",))
def non_zero(call: NodeCall, x: np.ndarray) -> np.ndarray:
    """The positions of the elements that are not 0, a column for each; x must be known at import."""
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@onnx_operator("Unique", static=("x",))
def unique(call: NodeCall, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The different elements, or slices along `axis`, with first positions, places and counts; x must be known."""
    axis = call.attribute("axis", None)
    found, first, places, counts = np.unique(x, True, True, True, axis=axis)
    if not call.attribute("sorted", 1):
        order = np.argsort(first)
        found, first, counts = np.take(found, order, 0 if axis is None else axis), first[order], counts[order]
        places = np.argsort(order)[places]
    return found, first.astype(np.int64), places.reshape(-1).astype(np.int64), counts.astype(np.int64)
