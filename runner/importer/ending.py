"""The end of an ONNX file and the loss: whether an activation there is that of the loss, and what cannot be right.

An activation counts behind nodes that change no number, as Cast and Reshape. `left_out` decides, and says so.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.core.values import Value
from runner.errors import ConfigError
from runner.host.console import LOG
from runner.importer.file import OnnxGraph, OnnxNode
from runner.nn.cell import Cell
from runner.nn.loss.losses import LOG_PROBABILITIES, LOGITS, PROBABILITIES, LossInput

SOFTMAX, SIGMOID, LOG_SOFTMAX, SHARES = "Softmax", "Sigmoid", "LogSoftmax", "numbers from 0 to 1"
APPLIED = {"softmax": SOFTMAX, "sigmoid": SIGMOID}  # by losses with this `activation`
REPAIRS = {
    SOFTMAX: "loss=softmax_cross_entropy",
    SIGMOID: "loss=binary_cross_entropy",
    LOG_SOFTMAX: "loss=softmax_cross_entropy",
    SHARES: 'a loss that takes = "probabilities"',
}
# Operators whose results are from 0 to 1: always, if their first operand is, and if all of them are.
CARRYING = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"})
BOUNDED = frozenset({SOFTMAX, SIGMOID, "HardSigmoid"})
CHOOSING = CARRYING | {"Slice", "Gather", "Split", "Clip", "MaxPool", "AveragePool", "GlobalMaxPool"}
CHOOSING |= {"GlobalAveragePool", "ReduceMax", "ReduceMin", "ReduceMean"}
JOINING = frozenset({"Concat", "Mul", "Max", "Min", "Mean"})


Instead = Mapping[OnnxNode, Callable[[Value], Value]]  # what replaces the results of nodes, of their last operand


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
    is_applied = wanted.takes == LOGITS and end.makes != LOG_SOFTMAX
    how = f"is left out, since {loss} applies it" if is_applied else f"is kept, as {loss} wants it"
    LOG.warning("%s: %s %s", file.name, end, how)
    return end.instead if is_applied else {}


def _suits(wanted: LossInput, made: str) -> bool:
    """Whether a loss may take what a file makes; a softmax does not change what LogSoftmax made."""
    if wanted.takes == LOGITS and wanted.activation is not None:
        applied = APPLIED[wanted.activation]
        return made == applied or (applied == SOFTMAX and made == LOG_SOFTMAX)
    if wanted.takes == LOG_PROBABILITIES:
        return made == LOG_SOFTMAX
    return wanted.takes != PROBABILITIES or made != LOG_SOFTMAX


def ending_of(graph: OnnxGraph) -> Ending:
    """The Softmax, LogSoftmax or Sigmoid of which the output has the numbers, in any shape and element type.

    A Sigmoid p behind the probabilities 1 - p and p of two classes makes what the Softmax of 0 and its operand makes.
    """
    writers = {name: node for node in graph.nodes for name in node.outputs}
    name = graph.outputs[0].name
    while (node := writers.get(name)) is not None and node.operator in CARRYING:
        name = node.inputs[0]
    if node is None:
        return Ending()
    shape = graph.outputs[0].shape
    is_over_batch = node.attributes.get("axis") == 0 and (shape is None or len(shape) > 1)
    if node.operator in (SOFTMAX, SIGMOID, LOG_SOFTMAX) and not is_over_batch:
        return Ending(node.operator, node, {node: lambda x: x})
    if node.operator == "Concat" and all(name in writers for name in node.inputs):
        rest, *ends = (writers[name] for name in node.inputs)
        if [end.operator for end in ends] == [SIGMOID] and _is_rest(graph, rest, {node.inputs[1]}):
            return Ending(SOFTMAX, ends[0], {ends[0]: lambda x: x, rest: lambda x: x - x})
    return Ending(SHARES if name in _shares(graph) else None)


def _shares(graph: OnnxGraph) -> set[str]:
    """The values whose numbers are from 0 to 1 whatever the weights are."""
    found = set[str]()
    for node in graph.nodes:
        is_chosen = node.operator in CHOOSING and node.inputs[0] in found
        is_joined = node.operator in JOINING and found.issuperset(node.inputs)
        if node.operator in BOUNDED or is_chosen or is_joined or _is_rest(graph, node, found):
            found.update(node.outputs)
    return found


def _is_rest(graph: OnnxGraph, node: OnnxNode, shares: Container[str]) -> bool:
    """Whether it is 1 - x for one of these values, as in the probabilities of two classes."""
    one = graph.initializers.get(node.inputs[0]) if node.operator == "Sub" and node.inputs[1] in shares else None
    return one is not None and bool((one == 1).all())
