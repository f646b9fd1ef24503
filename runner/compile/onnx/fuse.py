"""Fewer passes over memory: what follows a product or a convolution moves into it, where onnxruntime does both at once.

    Add(Mul(v, 0.9), Gemm(a, b))    ->  Gemm(a, b, v, beta=0.9)                 momentum; or two branches of a gradient
    Relu(Add(Conv(x, w, c), z))     ->  FusedConv(x, w, c, z, activation=Relu)  rows scaled by BatchNorm, and a sum

Only values that nothing else reads disappear. What an effect reads does not count: it is computed beside the fused
node, so that observing a step changes no bit of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.compile.onnx.builder import OnnxBuilder, onnx, stand_for, stands_for
from runner.core.lowering import FUSED
from runner.types import Shape

if TYPE_CHECKING:
    from onnx import NodeProto


def fuse(builder: OnnxBuilder, kept: Iterable[str], observed: Iterable[str] = ()) -> list[NodeProto]:
    """The nodes of a builder, with fewer passes over memory; the values `kept` and `observed` are still computed."""
    fuser = _Fuser(builder, kept)
    for node in builder.list:
        if node.op_type == "Add":
            fuser.into_product(node)
        elif node.op_type == "Relu":
            fuser.into_convolution(node)
    present = fuser.places.keys() - (fuser.gone - fuser.needed(observed))
    return [node for name, nodes in fuser.places.items() if name in present for node in nodes]


class _Fuser:
    """`places` has the nodes that compute each value, in order; `gone` the values that are fused into others."""

    def __init__(self, builder: OnnxBuilder, kept: Iterable[str]) -> None:
        self.builder, self.shape = builder, builder.shape
        self.places = {node.output[0]: [node] for node in builder.list}
        self.gone: set[str] = set()
        self.uses = Counter(name for node in builder.list for name in node.input)
        self.uses.update(kept)

    def into_product(self, add: NodeProto) -> None:
        """Add(addend, Gemm): the product starts from the addend, scaled where a Mul did no more than that."""
        for name, addend in _either(add.input):
            value, beta, scaling = self.scaled(addend)
            product = self.source(name, "Gemm")
            if product and len(product.input) == 2 and self.shape(value) == self.shape(name):
                gone = self.drop(name, product.output[0], *scaling)
                self.put(add, product, "Gemm", self.shape(name), value, gone, beta=beta)
                return

    def into_convolution(self, relu: NodeProto) -> None:
        """Relu(Conv), and Relu(Add(Conv, addend))."""
        added = self.only(relu.input[0], "Add")
        for name, addend in _either(added.input) if added else [(relu.input[0], "")]:
            convolution = self.source(name, "Conv")
            if convolution and (not addend or self.shape(addend) == self.shape(name)):
                gone = self.drop(relu.input[0], name, convolution.output[0])
                self.put(relu, convolution, "FusedConv", self.shape(name), addend, gone, activation="Relu")
                return

    def source(self, name: str, kind: str) -> NodeProto | None:
        """The node of this kind that made a value, perhaps in another shape, if both shapes are known and nothing
        else reads it."""
        reshape = self.only(name, "Reshape")
        node = self.only(reshape.input[0] if reshape else name, kind)
        return node if node and self.shape(node.output[0]) and self.shape(name) else None

    def only(self, name: str, kind: str) -> NodeProto | None:
        """The node of this kind that made a value which is read once."""
        made = () if name in self.gone else self.places.get(name, ())
        return made[-1] if self.uses[name] == 1 and made and made[-1].op_type == kind else None

    def scaled(self, name: str) -> tuple[str, float, tuple[str, ...]]:
        """A value, what it is multiplied by, and what is not needed then: Mul(v, 0.9) is v by 0.9."""
        node = self.only(name, "Mul")
        for value, factor in _either(node.input) if node else ():
            number = self.builder.value(factor)
            beta = np.float32(number.reshape(())) if number is not None and number.size == 1 else 0.0
            if beta and beta == number:  # of beta 0 a product does not read the addend, which may be infinite
                return value, float(beta), (name,)
        return name, 1.0, ()

    def drop(self, *names: str) -> list[NodeProto]:
        """Leave out values that are fused into another; gives the nodes that computed them."""
        nodes = [node for name in names if name not in self.gone for node in self.places.get(name, ())]
        self.gone.update(names)
        return nodes

    def needed(self, observed: Iterable[str]) -> set[str]:
        """The values among `gone` that must be computed all the same: those observed, and what they are made of."""
        found: set[str] = set()
        pending = [name for name in observed if name in self.gone]
        while pending:
            name = pending.pop()
            found.add(name)
            inputs = {x for node in self.places.get(name, ()) for x in node.input}
            pending += [x for x in inputs if x in self.gone and x not in found]
        return found

    def put(
        self,
        at: NodeProto,
        node: NodeProto,
        kind: str,
        shape: Shape | None,
        addend: str,
        gone: Sequence[NodeProto],
        **more: Any,
    ) -> None:
        """Let a node that has swallowed others stand in the place of the last of them, and make its value."""
        inner, inputs, before = self.shape(node.output[0]), list(node.input), []
        if addend and inner != shape:
            before = [self.reshape(addend, inner, f"{at.name}/addend")]
            addend = before[0].output[0]
        if addend:
            inputs += [*[""] * (2 + (kind == "FusedConv") - len(inputs)), addend]
        name = at.output[0] if inner == shape else f"{at.name}/{kind}:0"
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} | more
        domain = FUSED if kind == "FusedConv" else ""
        made = onnx.helper.make_node(kind, inputs, [name], name=f"{at.name}/{kind}", domain=domain, **given)
        stand_for(made, [operator for one in (node, *gone, at) for operator in stands_for(one)])
        after = [] if inner == shape else [self.reshape(name, shape, at.name, at.output[0])]
        self.places[at.output[0]] = [*before, made, *after]

    def reshape(self, name: str, shape: Shape | None, called: str, output: str = "") -> NodeProto:
        """A Reshape node."""
        inputs = [name, self.builder.const(list(shape or ()))]
        made: NodeProto = onnx.helper.make_node("Reshape", inputs, [output or f"{called}:0"], name=called)
        return made


def _either(pair: Sequence[str]) -> list[tuple[str, str]]:
    """Two operands, in both orders."""
    first, second = pair
    return [(first, second), (second, first)]
