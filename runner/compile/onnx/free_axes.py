"""Axes of any length in a model: found by comparing what the same function lowers to for several lengths.

A traced graph has the lengths of its inputs in constants: the shapes of reshapes and broadcasts, and arrays made from
them. The models for several lengths have to be the same nodes, and each constant that differs has to follow a rule that
holds for all of them: a vector of integers that are linear in the lengths, or an array that repeats itself along the
axes in which it grows. Then the first model, with these constants computed from the shapes of its inputs, is the model
for any length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from runner.compile.onnx.builder import inner_graphs, onnx, source_operators

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto


# Rules by which a constant follows from the lengths of free axes, found from its values for several lengths.

Lengths = Mapping[str, int]  # of the free axes, by name
LARGEST_FACTORS = tuple([1 << k for k in range(0, 31, 3)])  # simple fractions are tried first
MOST_VALUES = 1 << 12  # of an array whose elements are fitted


class Linear(NamedTuple):
    """`constant` plus, for each name, the length times an array."""

    constant: np.ndarray
    factors: dict[str, np.ndarray]


class Quotient(NamedTuple):
    """(a n + b) / max(c n + d, 1) for the length n of one axis: four arrays of Float64."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray


def linear(values: Sequence[np.ndarray], lengths: Sequence[Lengths]) -> Linear | None:
    """The rule of arrays of integers for these lengths; None when they are not linear in them."""
    if len({value.shape for value in values}) > 1:
        return None
    first, factors = values[0].astype(np.int64), {}
    constant = first.copy()
    for k, name in enumerate(lengths[0], 1):
        factor, rest = np.divmod(values[k] - first, lengths[k][name] - lengths[0][name])
        if rest.any():
            return None
        factors[name] = factor
        constant -= factor * lengths[0][name]
    for value, known in zip(values, lengths, strict=True):
        if not np.array_equal(constant + sum(f * known[name] for name, f in factors.items()), value):
            return None
    return Linear(constant, {name: factor for name, factor in factors.items() if factor.any()})


def quotient(values: Sequence[np.ndarray], lengths: Sequence[Lengths]) -> Quotient | None:
    """The rule of arrays of floats for lengths of one axis; None when there is none.

    A training step has such constants: the mean over a batch divides by its length, and an unbiased variance multiplies
    by m / (m - 1), where m is a multiple of it.
    """
    first = values[0]
    if first.dtype.kind != "f" or len(lengths[0]) != 1 or first.size > MOST_VALUES:
        return None
    if any((value.shape, value.dtype) != (first.shape, first.dtype) for value in values):
        return None
    sizes = [known[name] for known in lengths for name in known]
    found: dict[tuple[float, ...], tuple[float, ...] | None] = {}
    rows = []
    for elements in zip(*(value.ravel().tolist() for value in values), strict=True):
        if elements not in found:
            found[elements] = _fit(elements, sizes, first.dtype)
        if (row := found[elements]) is None:
            return None
        rows.append(row)
    return Quotient(*np.array(rows, np.float64).T.reshape(4, *first.shape)) if rows else None


def _fit(values: Sequence[float], sizes: Sequence[int], dtype: np.dtype) -> tuple[float, ...] | None:
    """The coefficients of `Quotient` for one element."""
    if len(set(values)) == 1:
        return 0.0, values[0], 0.0, 1.0
    if not all(map(math.isfinite, values)) or 0.0 in values:
        return None
    divided = _fraction(
        values[0] * sizes[0], lambda f: [f.numerator / (f.denominator * n) for n in sizes], values, dtype
    )
    if divided is not None:
        return 0.0, float(divided.numerator), float(divided.denominator), 0.0
    multiplied = _fraction(
        values[0] / sizes[0], lambda f: [f.numerator * n / f.denominator for n in sizes], values, dtype
    )
    if multiplied is not None:
        return float(multiplied.numerator), 0.0, 0.0, float(multiplied.denominator)
    factor = round(values[0] / (values[0] - 1.0) / sizes[0]) if values[0] > 1.0 else 0
    if factor < 1:
        return None
    unbiased = [n * factor / max(n * factor - 1, 1) for n in sizes]
    # The factor of large ones is known to the precision of the element type only.
    return (float(factor), 0.0, float(factor), -1.0) if _are_near(unbiased, values, dtype) else None


def _fraction(
    estimate: float, of_sizes: Callable[[Fraction], list[float]], values: Sequence[float], dtype: np.dtype
) -> Fraction | None:
    """The simplest fraction near an estimate with which `of_sizes` gives these values."""
    for largest in LARGEST_FACTORS:
        fraction = Fraction(estimate).limit_denominator(largest)
        if not fraction:
            continue
        found = of_sizes(fraction)
        if _are_near(found, values, dtype) if dtype == np.float64 else _are_equal(found, values, dtype):
            return fraction
    return None


def _are_equal(found: Sequence[float], values: Sequence[float], dtype: np.dtype) -> bool:
    return [float(dtype.type(x)) for x in found] == list(values)


def _are_near(found: Sequence[float], values: Sequence[float], dtype: np.dtype) -> bool:
    """Whether the numbers differ by a rounding at most."""
    return all(abs(x - y) <= abs(np.spacing(dtype.type(y))) for x, y in zip(found, values, strict=True))


# Models for several lengths: compared, and the constants that differ replaced by their rules.

FreeAxes = Sequence[Mapping[int, str]]  # for each input, the names of its free axes by position
Use = tuple[int, int]  # numbers of a node and of one of its operands


class NotFreeError(Exception):
    """An axis has to keep its length; the message is the reason."""


class Lowered(NamedTuple):
    """A model and the lengths for which it was lowered."""

    lengths: Lengths
    model: ModelProto


def with_free_axes(lowered: Sequence[Lowered], free: FreeAxes, quotients: bool = False) -> ModelProto:
    """The first model with free axes in its first inputs, in which it must not contain a parameter.

    The lengths of the second one differ from it in the first name, those of the third in the second name, and so on;
    the models after these only confirm the rules. With `quotients`, floats may be quotients of a length, as in a
    training step. Raises NotFreeError when there is no rule.
    """
    generalized: ModelProto = onnx.ModelProto()
    generalized.CopyFrom(lowered[0].model)
    lengths = [entry.lengths for entry in lowered]
    first = _Indexed(lowered[0].model)
    matches = [_match(first, _Indexed(entry.model)) for entry in lowered]
    writer = _Writer(generalized, lengths, free, quotients)
    for use in sorted(matches[0].constants):
        arrays = [match.constants[use] for match in matches]
        if any(not _equal(arrays[0], other) for other in arrays[1:]):
            writer.replace(use, arrays)
    writer.finish(matches[0].nodes)
    for declared, axes in zip(generalized.graph.input, free, strict=False):
        for axis, name in axes.items():
            declared.type.tensor_type.shape.dim[axis].dim_param = name
    for k, declared in enumerate(generalized.graph.output):
        _free_result(declared, [entry.model.graph.output[k] for entry in lowered], lengths)
    return generalized


class _Indexed:
    """A model with its constants and the producers of its values by name."""

    def __init__(self, model: ModelProto) -> None:
        self.graph = model.graph
        self.constants = {x.name: onnx.numpy_helper.to_array(x) for x in self.graph.initializer}
        self.producers = {y: (n, k) for n, node in enumerate(self.graph.node) for k, y in enumerate(node.output)}


class _Match(NamedTuple):
    """The nodes of the first model that its results need, and for its constant operands those of the other model."""

    nodes: set[int]
    constants: dict[Use, np.ndarray]


def _match(first: _Indexed, other: _Indexed) -> _Match:
    """What in the first model has a partner in the other one.

    The graphs are compared from their results: equal nodes may be one node in the other model, where constants happen
    to be equal. Raises NotFreeError when they differ in anything but constants.
    """
    found: dict[Use, np.ndarray] = {}
    ends = [[y.name for y in graph.output] for graph in (first.graph, other.graph)]
    starts = [[x.name for x in graph.input] for graph in (first.graph, other.graph)]
    branch = next((node for node in first.graph.node if inner_graphs(node)), None)
    _require(branch is None, "branches or loops on values", branch)
    _require(ends[0] == ends[1] and sorted(starts[0]) == sorted(starts[1]), "its inputs or outputs")
    partners: dict[int, int] = {}
    open_pairs = [(first.producers[name], other.producers[name]) for name in ends[0]]
    while open_pairs:
        (n, output), (m, other_output) = open_pairs.pop()
        node, partner = first.graph.node[n], other.graph.node[m]
        _require(output == other_output and partners.setdefault(n, m) == m, "the operators", node)
        _require(_is_alike(node, partner), "an attribute or the operands", node)
        for k, (x, z) in enumerate(zip(node.input, partner.input, strict=True)):
            if x in first.producers and z in other.producers:
                pair = first.producers[x], other.producers[z]
                if partners.get(pair[0][0]) != pair[1][0]:
                    open_pairs.append(pair)
                else:
                    _require(pair[0][1] == pair[1][1], "the operands", node)
            elif x in first.constants and z in other.constants:
                found[n, k] = other.constants[z]
            else:
                _require(x == z and x not in first.producers and z not in other.producers, "the operands", node)
    return _Match(set(partners), found)


def _is_alike(node: NodeProto, other: NodeProto) -> bool:
    """Whether two nodes differ at most in names."""
    described = [
        (x.op_type, x.domain, len(x.input), [a.SerializeToString(deterministic=True) for a in x.attribute])
        for x in (node, other)
    ]
    return described[0] == described[1]


def _equal(array: np.ndarray, other: np.ndarray) -> bool:
    return array.dtype == other.dtype and array.shape == other.shape and array.tobytes() == other.tobytes()


def _require(holds: bool, what: str, node: NodeProto | None = None) -> None:
    if not holds:
        place = f" at {', '.join(source_operators(node)[:1]) or node.name}" if node is not None else ""
        raise NotFreeError(f"{what} of the network depend on the length{place}")


class _Writer:
    """Replaces constants of a model by values that nodes at its start compute from the shapes of its inputs."""

    def __init__(self, model: ModelProto, lengths: Sequence[Lengths], free: FreeAxes, quotients: bool) -> None:
        self.graph, self.lengths, self.quotients = model.graph, lengths, quotients
        self.places: dict[str, tuple[str, int]] = {}
        for declared, axes in zip(self.graph.input, free, strict=False):
            for axis, name in axes.items():
                self.places.setdefault(name, (declared.name, axis))
        self.nodes: list[NodeProto] = []
        self.known: dict[tuple[object, ...], str] = {}

    def replace(self, use: Use, arrays: Sequence[np.ndarray]) -> None:
        """Replace an operand, which is one of `arrays` for each of the lengths."""
        node = self.graph.node[use[0]]
        rules = (self._computed, self._divided, self._repeated)
        found = self._inferred(node, use[1], arrays) or next(filter(None, (rule(arrays) for rule in rules)), "")
        _require(bool(found), "the numbers", node)
        node.input[use[1]] = found

    def finish(self, needed: set[int]) -> None:
        """Put the new nodes first, and remove nodes that no result needs, and unused constants."""
        nodes = [*self.nodes, *(node for k, node in enumerate(self.graph.node) if k in needed)]
        used = {x for node in nodes for x in node.input}
        constants = [x for x in self.graph.initializer if x.name in used]
        for field, entries in ((self.graph.node, nodes), (self.graph.initializer, constants)):
            copies = [type(entry).FromString(entry.SerializeToString()) for entry in entries]
            del field[:]
            field.extend(copies)

    def _inferred(self, node: NodeProto, operand: int, arrays: Sequence[np.ndarray]) -> str:
        """The shape of a Reshape whose only free axis follows from the number of elements."""
        if (node.op_type, operand) != ("Reshape", 1) or len({array.shape for array in arrays}) > 1:
            return ""
        changes = np.flatnonzero(np.ptp(np.stack(arrays), axis=0))
        if len(changes) != 1 or (np.stack(arrays) < 1).any():
            return ""
        shape = arrays[0].copy()
        shape[changes[0]] = -1
        return self._constant(shape)

    def _computed(self, arrays: Sequence[np.ndarray]) -> str:
        """Integers that are linear in the lengths: a vector or a single number."""
        if arrays[0].dtype != np.int64 or arrays[0].ndim > 1:
            return ""
        rule = linear([np.atleast_1d(array) for array in arrays], self.lengths)
        if rule is None:
            return ""
        return self._vector(rule) if arrays[0].ndim else self._node("Squeeze", (self._vector(rule),))

    def _divided(self, arrays: Sequence[np.ndarray]) -> str:
        """Floats that are quotients of a length."""
        rule = quotient(arrays, self.lengths) if self.quotients else None
        if rule is None:
            return ""
        dtype = arrays[0].dtype
        wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
        (name,) = self.lengths[0]
        length = self._cast(self._node("Squeeze", (self._length(name),)), wide)
        one = self._constant(np.ones((), wide))
        parts = [self._constant(array.astype(wide)) for array in rule]
        above, below = (
            self._node("Add", (self._node("Mul", (factor, length)), offset))
            for factor, offset in (parts[:2], parts[2:])
        )
        divided = self._node("Div", (above, self._node("Max", (below, one))))
        return divided if dtype == wide else self._cast(divided, dtype)

    def _cast(self, name: str, dtype: np.dtype) -> str:
        return self._node("Cast", (name,), to=int(onnx.helper.np_dtype_to_tensor_dtype(dtype)))

    def _vector(self, rule: Linear) -> str:
        total = ""
        for name, factor in rule.factors.items():
            product = self._length(name)
            if (factor != 1).any() or factor.size > 1:
                product = self._node("Mul", (product, self._constant(factor)))
            total = self._node("Add", (total, product)) if total else product
        return self._node("Add", (total, self._constant(rule.constant))) if rule.constant.any() else total

    def _repeated(self, arrays: Sequence[np.ndarray]) -> str:
        """An array that repeats itself along the axes in which it grows."""
        first = arrays[0]
        if len({array.ndim for array in arrays}) > 1 or not all(array.size for array in arrays):
            return ""
        rule = linear([np.array(array.shape, np.int64) for array in arrays], self.lengths)
        growing = {axis for array in arrays for axis in range(first.ndim) if array.shape[axis] != first.shape[axis]}
        part = tuple(slice(0, 1) if axis in growing else slice(None) for axis in range(first.ndim))
        parts = [array[part] for array in arrays]
        repeats = all(_equal(array, np.broadcast_to(x, array.shape)) for x, array in zip(parts, arrays, strict=True))
        if rule is None or not growing or not repeats:
            return ""
        is_constant = all(_equal(parts[0], x) for x in parts)
        repeated = self._constant(parts[0]) if is_constant else self._divided(parts)
        return self._node("Expand", (repeated, self._vector(rule))) if repeated else ""

    def _length(self, name: str) -> str:
        given, axis = self.places[name]
        return self._node("Shape", (given,), start=axis, end=axis + 1)

    def _node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        key = kind, tuple(inputs), tuple(attributes.items())
        if key not in self.known:
            name = self.known[key] = f"length:{len(self.known)}"
            self.nodes.append(onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return self.known[key]

    def _constant(self, array: np.ndarray) -> str:
        key = "const", array.dtype.str, array.shape, array.tobytes()
        if key not in self.known:
            name = self.known[key] = f"length:{len(self.known)}"
            self.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return self.known[key]


def _free_result(declared: ValueInfoProto, results: Sequence[ValueInfoProto], lengths: Sequence[Lengths]) -> None:
    """Declare the axes of an output that depend on the lengths; one that is a free axis gets its name."""
    shapes = [np.array([d.dim_value for d in result.type.tensor_type.shape.dim], np.int64) for result in results]
    if len({shape.size for shape in shapes}) > 1:
        raise NotFreeError(f"the number of axes of {declared.name} depends on the length")
    for axis, dimension in enumerate(declared.type.tensor_type.shape.dim):
        measured = [int(shape[axis]) for shape in shapes]
        if len(set(measured)) > 1:
            names = [name for name in lengths[0] if measured == [known[name] for known in lengths]]
            dimension.Clear()
            if names:
                dimension.dim_param = names[0]
