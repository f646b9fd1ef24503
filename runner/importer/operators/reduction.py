"""Rules of reductions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runner import ops
from runner.core.values import Value
from runner.importer.node_call import NodeCall
from runner.importer.table import onnx_operator

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
