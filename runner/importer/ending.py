"""The end of an ONNX file and the loss: whether an activation there is that of the loss, and what cannot be right.

An activation counts behind nodes that change no number, as Cast and Reshape. `left_out` decides, and says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from runner.core.values import Value
from runner.errors import ConfigError
from runner.host.console import LOG
from runner.importer.file import OnnxGraph, OnnxNode
from runner.nn.cell import Cell
from runner.nn.loss.losses import LOG_PROBABILITIES, LOGITS, PROBABILITIES, LossInput

SOFTMAX, SIGMOID, LOG_SOFTMAX = "Softmax", "Sigmoid", "LogSoftmax"
SHARES, LOG_SHARES = "numbers from 0 to 1", "logarithms of numbers from 0 to 1"
APPLIED = {"softmax": SOFTMAX, "sigmoid": SIGMOID}  # by losses with this `activation`
REPAIRS = {
    SOFTMAX: "loss=softmax_cross_entropy",
    SIGMOID: "loss=binary_cross_entropy",
    LOG_SOFTMAX: "loss=softmax_cross_entropy",
    SHARES: 'a loss that takes = "probabilities"',
    LOG_SHARES: 'a loss that takes = "log_probabilities"',
}
# Operators whose results are from 0 to 1: always, if their first operand is, and if all of them are.
CARRYING = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"})
BOUNDED = frozenset({SOFTMAX, SIGMOID, "HardSigmoid"})
CHOOSING = CARRYING | {"Slice", "Gather", "Split", "Clip", "MaxPool", "AveragePool", "GlobalMaxPool"}
CHOOSING |= {"GlobalAveragePool", "ReduceMax", "ReduceMin", "ReduceMean"}
JOINING = frozenset({"Concat", "Mul", "Max", "Min", "Mean"})


Instead = Mapping[OnnxNode, Callable[..., Value]]  # what replaces the results of nodes, of their operands


@dataclass(frozen=True)
class Ending:
    """What a file makes at its end, with the node of the activation, and what is computed instead of it; or nothing."""

    makes: str | None = None
    node: OnnxNode | None = None
    instead: Instead = field(default_factory=dict)

    def __str__(self) -> str:
        return "" if self.node is None else f"the {self.node.operator} {self.node.name} at the end"


def left_out(end: Ending, loss_fn: Cell, file: Path) -> Instead:
    """`Ending.instead` if the loss applies the activation itself, {} if it wants it.

    Raises ConfigError for outputs that cannot be right for the loss.
    """
    wanted, loss = LossInput.of(loss_fn), type(loss_fn).__name__
    if end.makes is not None and not _suits(wanted, end.makes):
        takes = f"{wanted.takes}, of which it takes the {wanted.activation}" if wanted.takes == LOGITS else wanted.takes
        rows = {"file": file, "output": end.makes, "node": end.node.name if end.node else None, "loss": loss}
        repair = f"{REPAIRS[end.makes]}, or network.logits=false (logits=False in a script), for outputs as they are"
        what = "the end of an ONNX file does not suit the loss"
        raise ConfigError(what, key="network.logits", **rows, takes=takes, repair=repair)
    if end.node is None:
        return {}
    is_applied = wanted.takes == LOGITS and end.makes in (SOFTMAX, SIGMOID)
    how = f"is left out, since {loss} applies it" if is_applied else f"is kept, as {loss} wants it"
    LOG.warning("%s: %s %s", file.name, end, how)
    return end.instead if is_applied else {}


def _suits(wanted: LossInput, made: str) -> bool:
    """Whether a loss may take what a file makes; a softmax does not change what LogSoftmax made."""
    if wanted.takes == LOGITS and wanted.activation is not None:
        applied = APPLIED[wanted.activation]
        return made == applied or (applied == SOFTMAX and made == LOG_SOFTMAX)
    if wanted.takes == LOG_PROBABILITIES:
        return made in (LOG_SOFTMAX, LOG_SHARES)
    return wanted.takes != PROBABILITIES or made not in (LOG_SOFTMAX, LOG_SHARES)


def ending_of(graph: OnnxGraph) -> Ending:
    """What the output of a graph is, in any shape and element type."""
    (output,) = graph.outputs[:1]
    return _Writers(graph).ending(output.name, 2 if output.shape is None else len(output.shape))


def _same(x: Value) -> Value:
    return x


class _Writers:
    """The nodes of a graph by the names that they write."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph
        self.nodes = {name: node for node in graph.nodes for name in node.outputs}

    def ending(self, name: str, ndim: int) -> Ending:
        """What a value with so many axes is: of the activation that has its numbers, or of its range."""
        node, batch = self.source(name)
        if node is None:
            return Ending()
        over = node.attributes.get("axis", -1 if node.opset >= 13 else 1)
        is_over_batch = node.operator != SIGMOID and ndim > 1 and over % ndim == batch
        if node.operator in (SOFTMAX, SIGMOID, LOG_SOFTMAX) and not is_over_batch:
            return Ending(node.operator, node, {node: _same})
        if node.operator == "Log":
            inner = self.ending(node.inputs[0], ndim)
            made = {SOFTMAX: LOG_SOFTMAX, SIGMOID: LOG_SHARES, SHARES: LOG_SHARES}.get(inner.makes or "")
            return Ending(made, node, {**inner.instead, node: _same}) if made else Ending()
        written = self.of_exponentials(node) if node.operator == "Div" else self.of_two_classes(node)
        return written or Ending(SHARES if node.outputs[0] in self.shares() else None)

    def source(self, name: str, also: str = "") -> tuple[OnnxNode | None, int | None]:
        """The node that makes the numbers of a value, and which of its axes is the first one of the value."""
        axis: int | None = 0
        while (node := self.nodes.get(name)) is not None and (node.operator in CARRYING or node.operator == also):
            perm = node.attributes.get("perm")
            if axis is not None and perm is not None:
                axis = perm[axis]
            elif node.operator == "Transpose" or (axis and node.operator not in ("Identity", "Cast")):
                axis = None
            name = node.inputs[0]
        return node, axis

    def of_two_classes(self, node: OnnxNode) -> Ending | None:
        """The probabilities 1 - p and p of a Sigmoid, which the Softmax of 0 and its operand makes."""
        if node.operator != "Concat" or len(node.inputs) != 2:
            return None
        rest, end = (self.source(name)[0] for name in node.inputs)
        if rest is None or end is None or end.operator != SIGMOID or not self.is_rest(rest):
            return None
        is_of_both = self.source(rest.inputs[1])[0] is end
        return Ending(SOFTMAX, end, {end: _same, rest: lambda _, x: x - x}) if is_of_both else None

    def of_exponentials(self, node: OnnxNode) -> Ending | None:
        """Exponentials divided by their sum, as a Softmax in single operators."""
        top, total = self.source(node.inputs[0])[0], self.source(node.inputs[1], "Expand")[0]
        if top is None or total is None or (top.operator, total.operator) != ("Exp", "ReduceSum"):
            return None
        axes = total.attributes.get("axes") or self.graph.initializers.get(total.inputs[-1], np.ones(1)).reshape(-1)
        is_of_rows = self.source(total.inputs[0])[0] is top and 0 not in axes
        return Ending(SOFTMAX, node, {top: _same, node: lambda x, _: x}) if is_of_rows else None

    def shares(self) -> set[str]:
        """The values whose numbers are from 0 to 1 whatever the weights are."""
        found = set[str]()
        for node in self.graph.nodes:
            is_chosen = node.operator in CHOOSING and node.inputs[0] in found
            is_joined = node.operator in JOINING and found.issuperset(node.inputs)
            is_rest = self.is_rest(node) and node.inputs[1] in found
            if node.operator in BOUNDED or is_chosen or is_joined or is_rest or self.is_logistic(node):
                found.update(node.outputs)
        return found

    def is_rest(self, node: OnnxNode) -> bool:
        """Whether it is 1 - x, as in the probabilities of two classes."""
        return node.operator == "Sub" and self.is_one(node.inputs[0])

    def is_logistic(self, node: OnnxNode) -> bool:
        """Whether it is 1 / (1 + exp(x)), a Sigmoid in single operators."""
        is_inverse = node.operator == "Reciprocal" or (node.operator == "Div" and self.is_one(node.inputs[0]))
        below = self.nodes.get(node.inputs[-1]) if is_inverse else None
        if below is None or below.operator != "Add":
            return False
        return any(self.is_one(a) and self.writes(b, "Exp") for a, b in (below.inputs, below.inputs[::-1]))

    def is_one(self, name: str) -> bool:
        """Whether a value is the constant 1."""
        array = self.graph.initializers.get(name)
        return array is not None and bool((array == 1).all())

    def writes(self, name: str, operator: str) -> bool:
        """Whether an operator writes a value."""
        return name in self.nodes and self.nodes[name].operator == operator
