"""Fusion of products and convolutions with the operators after them, to save passes over memory.

    Add(Mul(v, 0.9), Gemm(a, b))    ->  Gemm(a, b, v, beta=0.9)                 momentum; or two branches of a gradient
    Relu(Add(Conv(x, w, c), z))     ->  FusedConv(x, w, c, z, activation=Relu)  rows scaled by BatchNorm, and a sum

Only values without other readers are fused. Effects do not count as readers: their operands are computed beside the
fused node, so that observing a step does not change its results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.compile.onnx.builder import OnnxBuilder, onnx, operands_of, set_source_operators, source_operators
from runner.core.lowering import FUSED, Lowering, with_layouts
from runner.core.operators import Node, infer
from runner.core.precision import HALF, SINGLE, RoundedTypes
from runner.dtype import DType
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


# Element types in which an operator is lowered, by explicit Casts.
#
# On the CPU, operators of Float16 compute in Float32 and round once, as in PyNative mode. onnxruntime's CPU provider
# has few kernels for Float16. It would insert Casts itself, but with different results: it removes roundings between
# adjacent operators. Accelerators have kernels that accumulate in Float32. Whole numbers for which onnxruntime has no
# kernel are computed in a wider type, as far as that is exact (`Primitive.wider`).

Casts = Mapping[DType, DType]


def casts(node: Node, on_host: bool) -> Casts:
    """The element types of operands that are lowered as others: Float16 on the CPU, and where the operands have both
    Float16 and Float32; and those in which onnxruntime does not have the operator."""
    kinds = {x.dtype for x in node.inputs}
    found = {kind: node.op.wider[kind] for kind in kinds if kind in node.op.wider}
    rounds = isinstance(infer(node.op, tuple([x.type for x in node.inputs])), RoundedTypes)
    return found | {HALF: SINGLE} if rounds and (on_host or {HALF, SINGLE} <= kinds) else found


def operand_types(node: Node, on_host: bool = True) -> tuple[TensorType, ...]:
    """The types in which a device reads the operands of an operator, by default the CPU."""
    found = casts(node, on_host)
    return tuple([x.type.with_dtype(found.get(x.dtype, x.dtype)) for x in node.inputs])


def cast_operands(
    builder: OnnxBuilder, node: Node, lowering: Lowering, names: Sequence[str], found: Casts
) -> list[str]:
    """The operands of an operator in the types in which it is lowered."""
    operands = []
    for (x, layout), name in zip(with_layouts(node.inputs, lowering.operands), names, strict=True):
        if x.dtype in found:
            kind, constant = found[x.dtype], builder.value(name)
            if constant is not None:
                name = builder.const(constant.astype(kind.numpy))
            else:
                name = builder.node("Cast", (name,), to=kind)
                builder.declare(name, x.type.with_dtype(kind), layout)
        operands.append(name)
    return operands


def cast_results(builder: OnnxBuilder, node: Node, names: Sequence[str], on_host: bool) -> list[str]:
    """The results of an operator that was lowered in other types, in their declared ones."""
    computed = infer(node.op, operand_types(node, on_host))
    triples = zip(node.outputs, computed, names, strict=True)
    return [name if y.type is t else builder.node("Cast", (name,), to=y.dtype) for y, t, name in triples]
