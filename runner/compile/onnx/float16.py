"""Float16 in graphs: on the CPU, operators compute in Float32 and round once, as in PyNative mode, by explicit Casts.

onnxruntime's CPU provider has few kernels for Float16. It would insert Casts itself, but with different results: it
removes roundings between adjacent operators. Accelerators have kernels that accumulate in Float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runner.compile.onnx.builder import OnnxBuilder
from runner.core.lowering import Form, with_layouts
from runner.core.operators import Node, infer
from runner.core.precision import HALF, SINGLE, RoundedTypes, as_single
from runner.types import TensorType


def is_rounded(node: Node, on_host: bool) -> bool:
    """Whether the operator is lowered in Float32: on the CPU, and wherever its operands have both types."""
    kinds = {x.dtype for x in node.inputs}
    rounds = isinstance(infer(node.op, tuple([x.type for x in node.inputs])), RoundedTypes)
    return rounds and (on_host or {HALF, SINGLE} <= kinds)


def operand_types(node: Node) -> tuple[TensorType, ...]:
    """The types in which the CPU reads the operands of an operator."""
    types = tuple([x.type for x in node.inputs])
    return as_single(types) if is_rounded(node, on_host=True) else types


def widen(builder: OnnxBuilder, node: Node, form: Form, names: Sequence[str]) -> list[str]:
    """The operands of an operator, cast to Float32."""
    operands = []
    for (x, layout), name in zip(with_layouts(node.inputs, form.operands), names, strict=True):
        if x.dtype is HALF:
            constant = builder.value(name)
            if constant is not None:
                name = builder.const(constant.astype(np.float32))
            else:
                name = builder.node("Cast", (name,), to=SINGLE)
                builder.declare(name, x.type.with_dtype(SINGLE), layout)
        operands.append(name)
    return operands


def narrow(builder: OnnxBuilder, node: Node, names: Sequence[str]) -> list[str]:
    """The results of an operator that computed in Float32, rounded to their declared types."""
    computed = infer(node.op, as_single([x.type for x in node.inputs]))
    triples = zip(node.outputs, computed, names, strict=True)
    return [name if y.type is t else builder.node("Cast", (name,), to=y.dtype) for y, t, name in triples]
