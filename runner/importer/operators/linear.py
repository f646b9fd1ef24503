"""Rules of products of matrices."""

from typing import Any

import numpy as np

from runner import ops
from runner.core.values import Value
from runner.importer.broadcasting import reshaped, spread, swapped
from runner.importer.node_call import NodeCall
from runner.importer.table import onnx_operator


@onnx_operator("Gemm")
def gemm(call: NodeCall, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * a @ b + beta * c, where transA and transB transpose the matrices."""
    transposed = bool(call.attribute("transA", 0)), bool(call.attribute("transB", 0))
    product = scaled(ops.MatMul(*transposed)(a, b), call.attribute("alpha", 1.0))
    if c is None:
        return product
    c = scaled(c, call.attribute("beta", 1.0))
    return with_bias(product, c)


@onnx_operator("MatMul")
def matmul(call: NodeCall, a: Value, b: Value) -> Value:
    """Product of matrices, of stacks of matrices with broadcast leading axes, and of vectors."""
    return product(a, b)


@onnx_operator("com.microsoft.FusedMatMul")
def fused_matmul(call: NodeCall, a: Value, b: Value) -> Value:
    """alpha * a @ b, where transA and transB transpose the last two axes."""
    call.choice("transBatchA", 0, 0)
    call.choice("transBatchB", 0, 0)
    a = swapped(a) if call.attribute("transA", 0) else a
    b = swapped(b) if call.attribute("transB", 0) else b
    return scaled(product(a, b), call.attribute("alpha", 1.0))


def scaled(x: Value, factor: float) -> Value:
    """x, multiplied unless the factor is 1."""
    return x if factor == 1.0 else x * factor


def with_bias(product: Value, c: Value) -> Value:
    """A matrix plus what broadcasts to it; a row by the operator that has a fast gradient."""
    is_row = c.size == product.shape[1] and c.shape[-1:] == product.shape[1:]
    result: Value = ops.BiasAdd()(product, reshaped(c, product.shape[1:])) if is_row else product + c
    return result


def product(a: Value, b: Value) -> Value:
    """numpy's `a @ b`. A matrix on the right is one product with all rows on the left."""
    if a.ndim == 1:
        return _without(product(reshaped(a, (1, *a.shape)), b), -2)
    if b.ndim == 1:
        return _without(product(a, reshaped(b, (*b.shape, 1))), -1)
    result: Any
    if b.ndim == 2:
        rows = reshaped(a, (-1, a.shape[-1])) if a.ndim > 2 else a
        result = ops.MatMul()(rows, b)
        return reshaped(result, (*a.shape[:-1], b.shape[1]))
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    stacks = (spread(x, (*leading, *x.shape[-2:])) for x in (a, b))
    result = ops.BatchMatMul()(*stacks)
    return result  # type: ignore[no-any-return]


def _without(x: Value, axis: int) -> Value:
    shape = list(x.shape)
    del shape[axis]
    return reshaped(x, tuple(shape))
