"""Which tensors of an ONNX file are trained, and by what evidence: `roles_of`.

A file does not say it. PyTorch's newer exporter leaves the signature of the program, with all parameters and buffers;
in other files the operator that reads a tensor, its name and its values are the evidence, and some cases stay in doubt.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from runner.errors import ConfigError, some
from runner.importer.file import OnnxGraph, OnnxNode
from runner.importer.rules import RULES
from runner.importer.tensors import (
    ANONYMOUS,
    ARRANGED,
    BUFFER,
    PARAMETER,
    base_name,
    is_uniform,
    lost_parameters,
    matches,
    require_known,
    targets,
)

TRAINED, STATISTICS, CONSTANT = "parameter", "statistics", "constant"
STATIC = "the operators that read it need it when the network is imported"


@dataclass(frozen=True)
class Role:
    """What a tensor is, `TRAINED`, `STATISTICS` (moving ones, which are not trained) or `CONSTANT`, and why."""

    kind: str
    reason: str
    in_doubt: bool = False


def roles_of(graph: OnnxGraph, train: Sequence[str] = (), constant: Sequence[str] = ()) -> dict[str, Role]:
    """The role of each tensor of the graph, by name; `train` and `constant` are names or patterns that overrule it.

    Raises ConfigError for a pattern without a tensor, one that both have, and for tensors that cannot be trained.
    """
    evidence = _Evidence(graph)
    roles = {name: evidence.role(name) for name in evidence.arrays}
    for key, patterns in (("network.train", train), ("network.constant", constant)):
        require_known(key, patterns, roles)
    return {name: _overruled(name, role, evidence, train, constant) for name, role in roles.items()}


def _overruled(name: str, role: Role, evidence: "_Evidence", train: Sequence[str], constant: Sequence[str]) -> Role:
    wanted, fixed = matches(name, train), matches(name, constant)
    if wanted and fixed:
        raise ConfigError("a tensor cannot be trained and constant", key="network.train, network.constant", value=name)
    if fixed:
        return Role(CONSTANT, "network.constant")
    if not wanted or role.kind == TRAINED:
        return role
    if reason := evidence.untrainable(name):
        if name in train:  # a name, not a pattern that fits other tensors too
            raise ConfigError("a tensor cannot be trained", key="network.train", value=name, reason=reason)
        return role
    return Role(TRAINED, "network.train")


def summary(roles: dict[str, Role], lost: Sequence[str]) -> str:
    """One line on what is trained and what is in doubt."""
    trained = [name for name, role in roles.items() if role.kind == TRAINED]
    doubts = [f"{name} ({role.kind})" for name, role in roles.items() if role.in_doubt]
    text = "1 tensor is trained" if len(trained) == 1 else f"{len(trained)} tensors are trained"
    if doubts:
        text += f"; in doubt: {some(doubts, 6)}"
    if lost:
        text += f"; parameters that are not in the file, or as a part of others: {some(lost, 6)}"
    if doubts or lost:
        text += "; `runner inspect` has the reasons, network.train and network.constant overrule them"
    return text


# Where operators take weights: Constant nodes there are parameters too, as some exporters write them.
WEIGHTS = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "LayerNormalization", "InstanceNormalization"), (1, 2)),
    **dict.fromkeys(("MatMul", "PRelu"), (1,)),
    "BatchNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3)),
}
STATES = dict.fromkeys(("LSTM", "GRU", "RNN"), (5, 6))  # where layers take what they start from: zeros are not learnt
NORMALIZATIONS = "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"
MOVED = "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Cast", "Identity"  # the same elements
BUFFERS = re.compile(r"(^|_)(mean|std|var|mask|grid|adj|adjacency|laplacian|inv_freq|freqs|anchors|buffer)(_|$)")
OWN_CONSTANT = re.compile(r"const:[\d.]+")  # in runner's own graphs, in which no parameter may have such a name
ELEMENTWISE = "Add", "Sub", "Mul", "Div"
MOST_REPEATED = 4096  # elements; more weights that were rounded to Float16 repeat too
LOWEST_WEIGHT = -1e4  # masks of attention add numbers below this
HIGHEST_OF_MASKS = -9.0  # in masks of two numbers, 0 and one below this

Use = tuple[OnnxNode, int]
Finding = tuple[Callable[["_Evidence", str, list[Use]], bool], Role]


class _Evidence:
    """The graph, with what reads each value and what writes it."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph, self.arrays = graph, graph.initializers
        self.writers = {name: node for node in graph.nodes for name in node.outputs}
        self.uses = defaultdict[str, list[Use]](list)
        for node in graph.all_nodes():
            for position, name in enumerate(node.inputs):
                self.uses[name].append((node, position))
        self.parameters, self.buffers = targets(graph, PARAMETER), targets(graph, BUFFER)
        self.has_calls = any(node.call for node in graph.nodes)
        self.lost = lost_parameters(graph)

    def untrainable(self, name: str) -> str | None:
        """Why a tensor cannot be a parameter, or None."""
        if self.arrays[name].dtype.kind != "f" or not self.arrays[name].size:
            return "only tensors of floats can be trained"
        if OWN_CONSTANT.fullmatch(name):
            return "a constant in an export of runner"
        return STATIC if self.is_static(name) else None

    def role(self, name: str) -> Role:
        """The role of a tensor, by the first evidence for one."""
        if reason := self.untrainable(name):
            return Role(CONSTANT, reason)
        if any(node.op_type == "BatchNormalization" and position > 2 for node, position in self.uses[name]):
            return Role(STATISTICS, "mean or variance of a BatchNormalization")
        if name in self.parameters:
            return Role(TRAINED, "a parameter of the exported program")
        if name in self.buffers:
            return Role(CONSTANT, "a buffer of the exported program")
        if self.parameters and not self.lost:
            return Role(CONSTANT, "computed by the exporter: the file has all parameters of the program")
        if self.has_calls and self.parameters and not self.is_weight(name):
            if base_name(name) in ARRANGED and ANONYMOUS.fullmatch(name) is None:
                return Role(TRAINED, f"a part or another shape of a parameter, of {some(self.lost, 3)}", True)
            return Role(CONSTANT, "computed by the exporter: no call passes it as a parameter", self.is_whole(name))
        if self.has_calls and self.parameters and ANONYMOUS.fullmatch(name) and is_uniform(self.arrays[name]):
            return Role(CONSTANT, "one number in all places, which no call passes as a parameter")
        return next(role for holds, role in FINDINGS if holds(self, name, self.uses[name]))

    def is_static(self, name: str) -> bool:
        """Whether it is read only by what must know it at import."""
        reads = [(RULES[node.operator], position) for node, position in self.uses[name] if node.operator in RULES]
        return bool(reads) and all(rule.is_static(position) for rule, position in reads)

    def is_weight(self, name: str) -> bool:
        """Whether an operator takes it as its weight."""
        return any(position in WEIGHTS.get(node.op_type, ()) for node, position in self.moved(name))

    def is_whole(self, name: str) -> bool:
        """Whether it may be all that is left of a parameter: it has as many elements as one could have."""
        return self.arrays[name].size > 1 and not is_uniform(self.arrays[name])

    def is_initializer(self, name: str) -> bool:
        """Whether it is an initializer of the file, and no Constant node."""
        return name in self.graph.weights

    def moved(self, name: str) -> list[Use]:
        """What reads the elements of a value, also in another shape or order."""
        found: list[Use] = []
        for node, position in self.uses[name]:
            found += self.moved(node.outputs[0]) if node.op_type in MOVED and position == 0 else [(node, position)]
        return found

    def waves(self, name: str) -> set[str]:
        """The operators that read a value, also a multiple of it."""
        found: set[str] = set()
        for node, _ in self.moved(name):
            multiple = node.op_type == "Mul" and any(x in self.arrays and not self.arrays[x].ndim for x in node.inputs)
            found |= self.waves(node.outputs[0]) if multiple else {node.op_type}
        return found

    def source(self, name: str) -> OnnxNode | None:
        """The node that computes the elements of a value, before they got another shape or order."""
        node = self.writers.get(name)
        while node is not None and node.op_type in MOVED:
            node = self.writers.get(node.inputs[0])
        return node

    def is_normalized(self, name: str) -> bool:
        """Whether a value is normalized: by an operator, or divided by a deviation."""
        node = self.source(name)
        if node is None:
            return False
        if node.op_type in NORMALIZATIONS:
            return True
        if node.op_type == "Div":
            return self.is_root(node.inputs[1])
        return node.op_type == "Mul" and any(map(self.is_inverse_root, node.inputs))

    def is_root(self, name: str) -> bool:
        """Whether a value is the square root of a computed one."""
        node = self.source(name)
        return node is not None and (
            node.op_type == "Sqrt" or (node.op_type == "Pow" and self.arrays.get(node.inputs[1], np.zeros(2)).size == 1)
        )

    def is_inverse_root(self, name: str) -> bool:
        """Whether a value is one over a square root."""
        node = self.source(name)
        if node is None or node.op_type not in ("Reciprocal", "Div"):
            return False
        return self.is_root(node.inputs[-1])

    def scales(self, node: OnnxNode) -> bool:
        """Whether a node multiplies a normalized value, or adds to such a product or to the value itself."""
        if node.op_type == "Mul":
            return any(map(self.is_normalized, node.inputs))
        before = [self.source(name) for name in node.inputs] if node.op_type == "Add" else []
        products = [one for one in before if one is not None and one.op_type == "Mul"]
        return any(map(self.scales, products)) or (bool(before) and any(map(self.is_normalized, node.inputs)))


# Evidence in files without a signature, in the order in which it counts.


def _is_not_written(of: _Evidence, name: str, uses: list[Use]) -> bool:
    return not of.is_initializer(name) and (of.graph.producer == "pytorch" or not of.is_weight(name))


def _is_helper(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """Scales of 1 and shifts of 0 of a normalization of groups, whose own ones come after it."""
    neutral = {1: 1.0, 2: 0.0}
    is_named = of.graph.producer == "pytorch" and _has_usual_name(of, name, uses)
    return (
        is_uniform(of.arrays[name])
        and not is_named
        and all(
            node.op_type == "InstanceNormalization"
            and neutral.get(position) == of.arrays[name].flat[0]
            and any(of.scales(other) for other, _ in of.moved(node.outputs[0]))
            for node, position in uses
        )
    )


def _is_bound(of: _Evidence, name: str, uses: list[Use]) -> bool:
    return bool(uses) and all(node.op_type == "Clip" and position > 0 for node, position in uses)


def _is_repetitive(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """A small matrix whose numbers repeat, as those of a filter bank or of coordinates do, and no drawn weights.

    Not in layers and tables, which may be sparse or rounded; not where it is added, as relative positions are; not of
    zeros and ones alone, from which weights may start.
    """
    array = of.arrays[name]
    if array.ndim < 2 or array.size > MOST_REPEATED or is_uniform(array) or np.isin(array, (0.0, 1.0)).all():
        return False
    if any(node.op_type not in ("Sub", "Mul", "Div", "MatMul", "Concat") for node, _ in of.moved(name)):
        return False
    rows = array.reshape(-1, array.shape[-1])
    repeats = array.size >= 16 and 2 * len(np.unique(array)) <= array.size
    return repeats or any(map(_is_one_number, rows)) or any(map(_is_one_number, rows.T))


def _is_one_number(row: np.ndarray) -> bool:
    return len(row) > 2 and row[0] != 0 and is_uniform(row)


def _is_symmetric(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """A symmetric matrix, which no drawn weights are: distances, or how the nodes of a graph are connected."""
    array = of.arrays[name]
    if array.ndim < 2 or len(set(array.shape[-2:])) > 1 or array.shape[-1] < 3:
        return False
    is_edge_equal = bool((array[..., 0, :] == array[..., :, 0]).all())  # weights end here, however large they are
    if not is_edge_equal or not (array == array.swapaxes(-1, -2)).all():
        return False
    return len(np.unique(array[..., ~np.eye(array.shape[-1], dtype=bool)])) > 1


def _is_of_waves(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """Frequencies: the product is read by a sine and a cosine, as in Fourier features (Tancik et al., 2020)."""
    products = [node for node, position in of.moved(name) if node.op_type == "MatMul" and position == 1]
    return bool(products) and all(of.waves(node.outputs[0]) == {"Sin", "Cos"} for node in products)


def _is_named_number(of: _Evidence, name: str, uses: list[Use]) -> bool:
    is_named = not ANONYMOUS.fullmatch(name) and not _has_name_of_buffer(of, name, uses)
    return of.arrays[name].size == 1 and of.graph.producer == "pytorch" and is_named


def _is_number(of: _Evidence, name: str, uses: list[Use]) -> bool:
    return of.arrays[name].ndim == 0


def _is_repeated_kernel(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """One kernel of weights that are not negative for every channel: a filter, such as one that blurs."""
    array = of.arrays[name]
    alone = all(
        node.op_type == "Conv" and position == 1 and array.shape[:2] == (node.attributes.get("group", 1), 1)
        for node, position in uses
    )
    return alone and len(array) > 1 and array.min() >= 0 and bool((array == array[:1]).all())


def _is_weight(of: _Evidence, name: str, uses: list[Use]) -> bool:
    return of.is_weight(name) and of.arrays[name].ndim > 0


def _scales(of: _Evidence, name: str, uses: list[Use]) -> bool:
    return any(of.scales(node) for node, _ in of.moved(name))


def _is_computed(of: _Evidence, name: str, uses: list[Use]) -> bool:
    return ANONYMOUS.fullmatch(name) is not None and is_uniform(of.arrays[name])


def _is_mask(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """Numbers that no weight has: infinite ones, and those that make attention ignore a position."""
    array = of.arrays[name]
    if not np.isfinite(array).all() or bool((array < LOWEST_WEIGHT).any()):
        return True
    lowest = float(array.min())
    return lowest < HIGHEST_OF_MASKS and bool(np.isin(array, (0.0, lowest)).all())


def _is_flags(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """Zeros and ones, both."""
    array = of.arrays[name]
    return array.size > 2 and not is_uniform(array) and bool(np.isin(array, (0.0, 1.0)).all())


def _is_start(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """What a recurrent layer starts from, and zeros into which values are scattered."""
    scattered = all(node.op_type.startswith("Scatter") and position == 0 for node, position in uses)
    starts = all(position in STATES.get(node.op_type, ()) for node, position in uses)
    return (starts or scattered) and not of.arrays[name].any()


def _is_of_input(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """A number for each channel by which an input is shifted or scaled, as it is; or for each column, subtracted from
    it or dividing it.
    """
    array = of.arrays[name]
    is_channel = sum(n > 1 for n in array.shape) <= 1
    is_column = any(value.shape and value.shape[-1] == array.size for value in of.graph.inputs)
    is_standard = is_column and all(node.op_type in ("Sub", "Div") and position == 1 for node, position in uses)
    return is_channel and (array.ndim > 1 or is_standard) and all(_is_first(of, node) for node, _ in uses)


def _is_first(of: _Evidence, node: OnnxNode) -> bool:
    """Whether a node of arithmetic has an input of the file as an operand, or one that other numbers shifted before."""
    if node.op_type not in ELEMENTWISE:
        return False
    before = [of.source(name) for name in node.inputs if name not in of.arrays]
    return bool(before) and all(one is None or _is_first(of, one) for one in before)


def _is_sines(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """A table of sines and cosines: in pairs, the sum of their squares is 1."""
    array = of.arrays[name].astype(np.float64)
    if array.ndim < 2 or array.shape[-1] % 2 or array.size < 8:
        return False
    half = array.shape[-1] // 2
    pairs = (array[..., ::2], array[..., 1::2]), (array[..., :half], array[..., half:])
    return any(np.allclose(a * a + b * b, 1, atol=1e-4) for a, b in pairs)


def _is_spaced(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """Numbers at equal distances, perhaps the same in each row: a grid."""
    array = of.arrays[name]
    rows = array.reshape(-1, max(array.shape, default=1)).astype(np.float64)
    if rows.shape[1] <= 3 or is_uniform(array) or not (rows == rows[0]).all():
        return False
    steps = np.diff(rows[0])
    return np.allclose(steps, steps[0], rtol=1e-3)


def _has_name_of_buffer(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """The names that people give to what they register as a buffer."""
    return BUFFERS.search(name.replace("/", ".").rpartition(".")[2].lower()) is not None


def _has_usual_name(of: _Evidence, name: str, uses: list[Use]) -> bool:
    """The names that layers give to their parameters."""
    last = name.replace("/", ".").rpartition(".")[2]
    return last in ("gamma", "beta", "scale", "kernel") or re.search(r"(^|_)(weight|bias)(_|$)", last) is not None


def _always(of: _Evidence, name: str, uses: list[Use]) -> bool:
    return True


FINDINGS: Sequence[Finding] = (
    (_is_not_written, Role(CONSTANT, "the value of a Constant node, which is no weight of a layer")),
    (_is_helper, Role(CONSTANT, "a scale of 1 or shift of 0 before those of the normalization")),
    (_is_bound, Role(CONSTANT, "a bound of Clip")),
    (_is_of_waves, Role(CONSTANT, "frequencies of sines and cosines", True)),
    (_is_repeated_kernel, Role(CONSTANT, "one filter for every channel", True)),
    (_is_symmetric, Role(CONSTANT, "a symmetric matrix", True)),
    (_is_repetitive, Role(CONSTANT, "a matrix whose numbers repeat", True)),
    (_is_weight, Role(TRAINED, "the weight or bias of a layer")),
    (_is_named_number, Role(TRAINED, "a number that the exporter named as a parameter or buffer", True)),
    (_is_number, Role(CONSTANT, "a number without axes")),
    (_scales, Role(TRAINED, "the scale or shift of a normalization")),
    (_is_computed, Role(CONSTANT, "one number in all places, which the exporter computed")),
    (_is_mask, Role(CONSTANT, "a mask: infinite or large negative numbers")),
    (_is_flags, Role(CONSTANT, "a mask: zeros and ones", True)),
    (_is_start, Role(CONSTANT, "zeros from which a layer starts")),
    (_is_sines, Role(CONSTANT, "a table of sines and cosines", True)),
    (_is_spaced, Role(CONSTANT, "numbers at equal distances", True)),
    (_is_of_input, Role(CONSTANT, "mean or deviation of the input", True)),
    (_has_name_of_buffer, Role(CONSTANT, "named as buffers are", True)),
    (_has_usual_name, Role(TRAINED, "named as parameters of layers are")),
    (_always, Role(TRAINED, "a float tensor that an operator reads as a value", True)),
)
