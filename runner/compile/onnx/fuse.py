"""Fusion of products and convolutions with the operators after them, to save passes over memory.

    Add(Mul(v, 0.9), Gemm(a, b))    ->  Gemm(a, b, v, beta=0.9)                 momentum; or two branches of a gradient
    Relu(Add(Conv(x, w, c), z))     ->  FusedConv(x, w, c, z, activation=Relu)  rows scaled by BatchNorm, and a sum

Only values without other readers are fused. Effects do not count as readers: their operands are computed beside the
fused node, so that observing a step does not change its results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.compile.onnx.builder import OnnxBuilder, onnx, operands_of, set_source_operators, source_operators
from runner.core.lowering import FUSED, Lowering, with_layouts
from runner.core.operators import Node, infer
from runner.core.precision import HALF, SINGLE, RoundedTypes, as_single
from runner.types import Shape, TensorType

if TYPE_CHECKING:
    from onnx import NodeProto


def fuse(builder: OnnxBuilder, kept: Iterable[str], observed: Iterable[str] = ()) -> list[NodeProto]:
    """The nodes of a builder after fusion; the values `kept` and `observed` are still computed."""
    fuser = _Fuser(builder, kept)
    for node in builder.list:
        if node.op_type == "Add":
            fuser.into_product(node)
        elif node.op_type == "Relu":
            fuser.into_convolution(node)
    present = fuser.nodes_at.keys() - (fuser.fused - fuser.needed(observed))
    return [node for name, nodes in fuser.nodes_at.items() if name in present for node in nodes]


class _Fuser:
    """`nodes_at`: the nodes that compute each value, in order; `fused`: the values that are fused into others."""

    def __init__(self, builder: OnnxBuilder, kept: Iterable[str]) -> None:
        self.builder, self.shape = builder, builder.shape
        self.nodes_at = {node.output[0]: [node] for node in builder.list}
        self.fused: set[str] = set()
        self.uses = Counter(name for node in builder.list for name in operands_of(node))
        self.uses.update(kept)

    def into_product(self, add: NodeProto) -> None:
        """Add(addend, Gemm): the addend becomes an operand of the product; a Mul that scales it becomes `beta`."""
        for name, addend in _both_orders(add.input):
            value, beta, scaling = self.scaled(addend)
            product = self.producer(name, "Gemm")
            if product and len(product.input) == 2 and self.shape(value) == self.shape(name):
                fused = self.remove(name, product.output[0], *scaling)
                self.replace(add, product, "Gemm", self.shape(name), value, fused, beta=beta)
                return

    def into_convolution(self, relu: NodeProto) -> None:
        """Relu(Conv), and Relu(Add(Conv, addend))."""
        add = self.single_use(relu.input[0], "Add")
        for name, addend in _both_orders(add.input) if add else [(relu.input[0], "")]:
            convolution = self.producer(name, "Conv")
            if convolution and (not addend or self.shape(addend) == self.shape(name)):
                fused = self.remove(relu.input[0], name, convolution.output[0])
                self.replace(relu, convolution, "FusedConv", self.shape(name), addend, fused, activation="Relu")
                return

    def producer(self, name: str, kind: str) -> NodeProto | None:
        """The node of this kind that computes a value, perhaps through a Reshape, if it has no other reader and both
        shapes are known."""
        reshape = self.single_use(name, "Reshape")
        node = self.single_use(reshape.input[0] if reshape else name, kind)
        return node if node and self.shape(node.output[0]) and self.shape(name) else None

    def single_use(self, name: str, kind: str) -> NodeProto | None:
        """The node of this kind that computes a value, if the value is read once."""
        nodes = () if name in self.fused else self.nodes_at.get(name, ())
        return nodes[-1] if self.uses[name] == 1 and nodes and nodes[-1].op_type == kind else None

    def scaled(self, name: str) -> tuple[str, float, tuple[str, ...]]:
        """A value, its scalar factor, and values that are then unused: for Mul(v, 0.9) v, 0.9 and the product."""
        node = self.single_use(name, "Mul")
        for value, factor in _both_orders(node.input) if node else ():
            number = self.builder.value(factor)
            beta = np.float32(number.reshape(())) if number is not None and number.size == 1 else 0.0
            if beta and beta == number:  # with beta = 0 Gemm ignores the addend, which may be infinite
                return value, float(beta), (name,)
        return name, 1.0, ()

    def remove(self, *names: str) -> list[NodeProto]:
        """Mark values as fused and return the nodes that computed them."""
        nodes = [node for name in names if name not in self.fused for node in self.nodes_at.get(name, ())]
        self.fused.update(names)
        return nodes

    def needed(self, observed: Iterable[str]) -> set[str]:
        """The fused values that must be computed anyway: those observed, and their operands."""
        found: set[str] = set()
        pending = [name for name in observed if name in self.fused]
        while pending:
            name = pending.pop()
            found.add(name)
            inputs = {x for node in self.nodes_at.get(name, ()) for x in node.input}
            pending += [x for x in inputs if x in self.fused and x not in found]
        return found

    def replace(
        self,
        at: NodeProto,
        node: NodeProto,
        kind: str,
        shape: Shape | None,
        addend: str,
        fused: Sequence[NodeProto],
        **more: Any,
    ) -> None:
        """Replace the node `at` by `node` with the `fused` nodes and `at` merged into it."""
        inner, inputs, before = self.shape(node.output[0]), list(node.input), []
        if addend and inner != shape:
            before = [self.reshape(addend, inner, f"{at.name}/addend")]
            addend = before[0].output[0]
        if addend:
            inputs += [*[""] * (2 + (kind == "FusedConv") - len(inputs)), addend]
        name = at.output[0] if inner == shape else f"{at.name}/{kind}:0"
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} | more
        domain = FUSED if kind == "FusedConv" else ""
        merged = onnx.helper.make_node(kind, inputs, [name], name=f"{at.name}/{kind}", domain=domain, **attributes)
        set_source_operators(merged, [operator for one in (node, *fused, at) for operator in source_operators(one)])
        after = [] if inner == shape else [self.reshape(name, shape, at.name, at.output[0])]
        self.nodes_at[at.output[0]] = [*before, merged, *after]

    def reshape(self, value: str, shape: Shape | None, name: str, output: str = "") -> NodeProto:
        """A Reshape node."""
        inputs = [value, self.builder.const(list(shape or ()))]
        node: NodeProto = onnx.helper.make_node("Reshape", inputs, [output or f"{name}:0"], name=name)
        return node


def _both_orders(pair: Sequence[str]) -> list[tuple[str, str]]:
    """Two operands, in both orders."""
    first, second = pair
    return [(first, second), (second, first)]


# Float16 in graphs: on the CPU, operators compute in Float32 and round once, as in PyNative mode, by explicit Casts.
#
# onnxruntime's CPU provider has few kernels for Float16. It would insert Casts itself, but with different results: it
# removes roundings between adjacent operators. Accelerators have kernels that accumulate in Float32.


def is_rounded(node: Node, on_host: bool) -> bool:
    """Whether the operator is lowered in Float32: on the CPU, and wherever its operands have both types."""
    kinds = {x.dtype for x in node.inputs}
    rounds = isinstance(infer(node.op, tuple([x.type for x in node.inputs])), RoundedTypes)
    return rounds and (on_host or {HALF, SINGLE} <= kinds)


def operand_types(node: Node) -> tuple[TensorType, ...]:
    """The types in which the CPU reads the operands of an operator."""
    types = tuple([x.type for x in node.inputs])
    return as_single(types) if is_rounded(node, on_host=True) else types


def widen(builder: OnnxBuilder, node: Node, lowering: Lowering, names: Sequence[str]) -> list[str]:
    """The operands of an operator, cast to Float32."""
    operands = []
    for (x, layout), name in zip(with_layouts(node.inputs, lowering.operands), names, strict=True):
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
