"""PyNative mode of a step whose batch has parts: what `DividedGraph` computes in graph mode, as operators are applied.

Only the step of a data-parallel training has them, so that every number of ranks trains to the same bits. A tensor
whose rows are divided has an array for each part (`Tensor.divided`), and the whole one when somebody reads it.
"""

from collections.abc import Sequence

import numpy as np

from runner.core.dependence import NOTES
from runner.core.operators import KERNEL, Primitive, infer
from runner.core.parts import DividedArray, PartRule, Parts, Replacement, added, rule_of
from runner.core.precision import RoundedTypes, compute_rounded
from runner.core.values import Tensor
from runner.types import TensorType


def compute(op: Primitive, arrays: Sequence[np.ndarray], types: tuple[TensorType, ...]) -> tuple[np.ndarray, ...]:
    """The outputs of an operator by its kernel, with these types. Raises what the kernel raises."""
    if KERNEL in op.depends_on_libc:
        NOTES.add(op)
    made = compute_rounded(op.kernel, arrays, types) if isinstance(types, RoundedTypes) else op.kernel(*arrays)
    # numpy returns scalars, not arrays, for results without axes.
    return tuple([np.asarray(x) for x in (made if isinstance(made, tuple) else (made,))])


def apply(op: Primitive, inputs: Sequence[Tensor], types: tuple[TensorType, ...], parts: Parts) -> tuple[Tensor, ...]:
    """The outputs of an operator, of which each part has its own, or which are sums over the parts."""
    divided = [_division(x, parts) for x in inputs]
    possible = [x.axis if x is not None else None for x in divided]
    now = [x.axis if x is not None and x.own is not None else None for x in divided]
    rule = None if op.graphs else rule_of(op, [x.type for x in inputs], now, possible, parts)
    if isinstance(rule, Replacement):
        return _replace(rule, inputs, parts)
    if isinstance(rule, PartRule):
        return _apply_to_parts(rule, inputs, types, parts)
    outputs = tuple(
        [Tensor.of(*made) for made in zip(compute(op, [x.array for x in inputs], types), types, strict=True)]
    )
    if any(x is not None for x in divided):
        for y in outputs:
            if y.ndim and y.shape[0] == parts.batch:
                y.divided = DividedArray(parts, 0)
    return outputs


def _replace(rule: Replacement, inputs: Sequence[Tensor], parts: Parts) -> tuple[Tensor, ...]:
    values = list(inputs)
    for op, places in rule.steps:
        operands = [values[k] for k in places]
        values += apply(op, operands, infer(op, tuple([x.type for x in operands])), parts)
    return tuple([values[k] for k in rule.results])


def _apply_to_parts(
    rule: PartRule, inputs: Sequence[Tensor], types: tuple[TensorType, ...], parts: Parts
) -> tuple[Tensor, ...]:
    operands = [
        [x.array] * parts.count if axis is None else _own(x, axis, parts)
        for x, axis in zip(inputs, rule.operands, strict=True)
    ]
    kinds = infer(rule.op, tuple([TensorType.of(own[0]) for own in operands]))
    made = [compute(rule.op, arrays, kinds) for arrays in zip(*operands, strict=True)]
    results = []
    for number, (own, axis, kind) in enumerate(zip(zip(*made, strict=True), rule.results, types, strict=True)):
        if axis is not None:
            result = Tensor.of(None, kind)
            result.divided = DividedArray(parts, axis, [_scaled(x, rule.scale) for x in own])
        else:
            result = Tensor.of(own[0] if number in rule.same else _scaled(added(own, np.add), rule.scale), kind)
        results.append(result)
    return tuple(results)


def _scaled(x: np.ndarray, scale: float) -> np.ndarray:
    return x if scale == 1 else np.asarray(x * x.dtype.type(scale))


def _own(x: Tensor, axis: int, parts: Parts) -> Sequence[np.ndarray]:
    """The arrays of the parts, which a tensor keeps once they are there."""
    divided = _division(x, parts)
    if divided is None or divided.axis != axis:
        return parts.split(x.array, axis)
    if divided.own is None:
        divided.own = parts.split(x.array, axis)
    return divided.own


def _division(x: Tensor, parts: Parts) -> DividedArray | None:
    """How a tensor is divided in this step; one that another step has left may have other parts."""
    divided: DividedArray | None = getattr(x, "divided", None)
    return divided if divided is not None and divided.parts is parts else None
