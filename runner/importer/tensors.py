"""The tensors of a network that an ONNX file describes: one for each parameter, whatever an exporter made of them.

Exporters write equal weights once, add helpers of their own, leave out biases of zeros, and repeat a row for each
sample. `own_tensors` undoes that as far as the file has evidence: what PyTorch noted of its calls, names, and values.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeAlias

import numpy as np

from runner.errors import ConfigError, known_names
from runner.importer.file import ExportedCall, OnnxGraph, OnnxNode
from runner.importer.float_types import as_used

PARAMETER, BUFFER = "PARAMETER", "BUFFER"  # the kinds of a signature
MayUntie: TypeAlias = Callable[[str], bool]  # whether a tensor of this name may become several


@dataclass(frozen=True, eq=False)
class Untied:
    """A graph with tensors of its own for each layer: `copies` has, by the name of a new tensor, the one it was."""

    graph: OnnxGraph
    copies: Mapping[str, str] = field(default_factory=dict)


def own_tensors(graph: OnnxGraph, untie: Sequence[str] | None = None) -> Untied:
    """The graph with one tensor for each parameter.

    `untie` are names or patterns of tensors of which each layer that reads one gets a copy; None decides by evidence.
    Tensors with one number in all places are always separate: so fresh scales are, and they are no ties.
    Raises ConfigError for a pattern that no tensor with several readers has.
    """
    graph = as_used(graph)
    if untie is not None:
        require_known("network.untie", untie, _shared(graph))

    def may_untie(name: str) -> bool:
        return untie is None or matches(name, untie)

    plain, copies = _without_identities(graph, may_untie)
    if plain.signature and any(node.call for node in plain.nodes):
        plain, more = _as_noted(plain, may_untie)
        copies |= more
    else:
        plain = _with_own_weights(plain)
    if untie:
        plain, more = _untied(plain, untie)
        copies |= more
    return Untied(_with_single_elements(_without_repetitions(_without_transposes(plain))), copies)


def _shared(graph: OnnxGraph) -> dict[str, list[tuple[int, int, str]]]:
    """The weights that several nodes read, with the places: numbers of node and input, and a name for a copy."""
    places = defaultdict[str, list[tuple[int, int, str]]](list)
    for node in graph.nodes:
        for k, name in enumerate(node.inputs):
            if name in graph.weights and graph.initializers[name].dtype.kind == "f":
                places[name].append((node.number, k, f"{node.name}.{name}"))
    return {name: found for name, found in places.items() if len(found) > 1}


def targets(graph: OnnxGraph, *kinds: str) -> set[str]:
    """The names in the network of what the exported program has of these kinds, by default of all."""
    return {target for kind, target in graph.signature.values() if not kinds or kind in kinds}


def lost_parameters(graph: OnnxGraph) -> list[str]:
    """The parameters of the exported program that the graph does not have: the exporter computed something of them."""
    return sorted(targets(graph, PARAMETER).difference(graph.initializers))


def is_uniform(array: np.ndarray) -> bool:
    """Whether a tensor of floats has one number in all places."""
    return array.dtype.kind == "f" and array.ndim > 0 and array.size > 0 and bool((array == array.flat[0]).all())


# Copies by Identity nodes, as PyTorch's older exporter writes parameters with equal elements.


def _without_identities(graph: OnnxGraph, may_untie: MayUntie) -> tuple[OnnxGraph, dict[str, str]]:
    """The graph without Identity nodes of initializers.

    Each becomes a tensor of its own where the tensors were equal by chance: all elements are equal, as in the scales of
    fresh normalizations, or the layers differ by their number alone, as copies of one layer do. Others are one tensor.
    """
    arrays, weights, names = dict(graph.initializers), set(graph.weights), dict[str, str]()
    kept: list[OnnxNode] = []
    copies: dict[str, str] = {}
    results = {value.name for value in graph.outputs}
    modules = _Modules(graph)
    for node in graph.nodes:
        source = names.get(node.inputs[0], node.inputs[0]) if node.inputs else ""
        if node.operator != "Identity" or source not in arrays or node.outputs[0] in results:
            kept.append(node.renamed(names))
            continue
        copy = node.outputs[0]
        uniform = is_uniform(arrays[source])
        if uniform or (may_untie(source) and modules.are_copies(source, copy)):
            arrays[copy] = arrays[source].copy()
            weights.add(copy)
            if not uniform:
                copies[copy] = source
        else:
            names[copy] = source
    return replace(graph, nodes=tuple(kept), initializers=arrays, weights=weights), copies


ANONYMOUS = re.compile(r"_?(?:val|scalar_tensor_default|onnx::\w+)_\d+")  # PyTorch's names of what it computes
_DIGITS = re.compile(r"\d+")
_AGAIN = re.compile(r"_\d+$")  # of the second call of a module, and on


class _Modules:
    """The modules whose nodes read a tensor, by the paths that nodes of PyTorch have as names."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._readers = defaultdict[str, set[str]](set)
        paths = {node.name.rpartition("/")[0] for node in graph.nodes}
        steps = [path.split("/") for path in paths]
        self._known = {"/".join(parts[:k]) for parts in steps for k in range(len(parts) + 1)}
        for node in graph.nodes:
            for name in node.inputs:
                self._readers[name].add(node.layer or self.of_node(node))

    def of_node(self, node: OnnxNode) -> str:
        """The path of the module of a node, as its name says."""
        return self._module(node.name.rpartition("/")[0])

    def _module(self, path: str) -> str:
        """The path of the module: a module that is called again has a number behind its name."""
        parts: list[str] = []
        for part in path.split("/"):
            first = _AGAIN.sub("", part)
            parts.append(first if "/".join([*parts, first]) in self._known else part)
        return "/".join(parts)

    def are_copies(self, a: str, b: str) -> bool:
        """Whether two names are those of tensors in copies of a layer, and not of one that has two users."""
        if _DIGITS.sub("", a) != _DIGITS.sub("", b):
            return False
        return not (ANONYMOUS.fullmatch(a) and self._readers[a] & self._readers[b])


# Files with PyTorch's notes: each call of its operators names the parameters that it passes.


def _as_noted(graph: OnnxGraph, may_untie: MayUntie) -> tuple[OnnxGraph, dict[str, str]]:
    """The graph with the parameters that the notes name, under these names.

    A call that passes a parameter reads a tensor of that name; or one of another name, which the exporter computed of
    it or shares with an equal one; or none, if it is a bias of zeros.
    """
    calls = defaultdict[ExportedCall, list[OnnxNode]](list)
    for node in graph.nodes:
        if node.call:
            calls[node.call].append(node)
    arrays, nodes = dict(graph.initializers), {node.number: node for node in graph.nodes}
    added: list[tuple[int, OnnxNode]] = []
    copies: dict[str, str] = {}
    packed: set[str] = set()
    shared = _shared(graph)
    for noted, group in calls.items():
        call = _Call(graph, noted, group)
        packed.update(call.packed)
        for name, target in call.claims.items():
            if name in shared and not (is_uniform(arrays[name]) or may_untie(name)):
                continue
            if target not in arrays:
                arrays[target] = arrays[name].copy()
                copies[target] = name
            if arrays[target].shape == arrays[name].shape and np.array_equal(arrays[target], graph.initializers[name]):
                for node in group:
                    nodes[node.number] = nodes[node.number].renamed({name: target})
        if call.bias and call.bias not in arrays:
            _add_bias(call, arrays, nodes, added)
    used = {name for node in (*nodes.values(), *(node for _, node in added)) for name in node.reads}
    kept = {name: array for name, array in arrays.items() if name in used or name not in graph.weights}
    counts = Counter([*copies.values(), *(name for name in copies.values() if name in kept)])
    untied = {name: old for name, old in copies.items() if counts[old] > 1 and not is_uniform(kept[name])}
    weights = {*graph.weights, *arrays} & kept.keys()
    signature = {name: entry for name, entry in graph.signature.items() if entry[1] not in packed}
    made = replace(graph, nodes=_ordered(nodes, added), initializers=kept, weights=weights, signature=signature)
    return _with_computed(made), untied


_RECURRENT = "LSTM", "GRU", "RNN"  # whose inputs 5 and 6 are what they start from
_BIASED = "Gemm", "Conv", "ConvTranspose"  # operators whose third input is a bias


class _Call:
    """A call of a torch operator: which tensors that its nodes read are which parameters that it passes.

    `claims` has the parameter by the name of the tensor, `bias` is one that no tensor is, and `packed` are those that
    the file has in one tensor with others, as for recurrent layers.
    """

    def __init__(self, graph: OnnxGraph, call: ExportedCall, nodes: Sequence[OnnxNode]) -> None:
        self.nodes = nodes
        passed = dict.fromkeys(graph.signature[name] for name in call.passes if name in graph.signature)
        read = dict.fromkeys(name for node in nodes for name in node.inputs)
        floats = [name for name in read if name in graph.initializers and graph.initializers[name].dtype.kind == "f"]
        left = [target for kind, target in passed if kind == PARAMETER and target not in floats]
        known = {target for _, target in passed}.union(call.passes, _others(call, nodes))
        found = [name for name in floats if name not in known]
        if len(found) > len(left):  # helpers: numbers, and scales of 1 before the one that is passed
            found = [name for name in found if graph.initializers[name].ndim] or found
        more = max(0, len(found) - len(left))
        helpers, found = found[:more], found[more:]
        shared = targets(graph, PARAMETER).intersection(helpers)
        self.claims = {x: f"{nodes[-1].name}.{x}" for x in shared if is_uniform(graph.initializers[x])}
        self.claims |= dict(zip(found, left, strict=False))
        rest = left[len(found) :]
        is_bias = len(rest) == 1 and _takes_bias(graph, call, rest[0])
        self.bias, self.packed = (rest[0], []) if is_bias else ("", rest if found else [])


def _others(call: ExportedCall, nodes: Sequence[OnnxNode]) -> set[str]:
    """Tensors that are none of its parameters: starts of layers, and weights into which a normalization was folded."""
    found = {name for node in nodes if node.op_type in _RECURRENT for name in node.inputs[5:7]}
    if "norm" in call.operator:
        found |= {name for node in nodes if node.op_type in (*_BIASED, "MatMul") for name in node.inputs}
    return found


# What an exporter computes of a parameter of which it then writes nothing else, and the function that leads back.
COMPUTED: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "exp": ("Exp", np.log),
    "sqrt": ("Sqrt", np.square),
    "reciprocal": ("Reciprocal", np.reciprocal),
    "neg": ("Neg", np.negative),
    "tanh": ("Tanh", np.arctanh),
    "sigmoid": ("Sigmoid", lambda y: np.log(y) - np.log1p(-y)),
    "softplus": ("Softplus", lambda y: y + np.log(-np.expm1(-y))),
}


def _with_computed(graph: OnnxGraph) -> OnnxGraph:
    """The graph with the parameter where the only one that is lost has one tensor that was computed of it.

    PyTorch names such a tensor by its operator: `exp` is the exponential of a temperature.
    """
    lost, own = lost_parameters(graph), targets(graph)
    values = {
        x for node in graph.nodes if node.call for x in node.call.passes if x in graph.initializers and x not in own
    }
    found = [name for name in values if base_name(name) in COMPUTED and graph.initializers[name].dtype.kind == "f"]
    if len(lost) != 1 or len(found) != 1:
        return graph
    name, (operator, inverse) = found[0], COMPUTED[base_name(found[0])]
    with np.errstate(all="ignore"):
        array = np.asarray(inverse(graph.initializers[name].astype(np.float64)), graph.initializers[name].dtype)
    if not np.isfinite(array).all():
        return graph
    arrays = {key: value for key, value in graph.initializers.items() if key != name} | {lost[0]: array}
    nodes = _computed(graph, operator, f"{lost[0]}.{operator}", (lost[0],), name), *graph.nodes
    weights = {*graph.weights, lost[0]} - {name}
    return replace(graph, nodes=nodes, initializers=arrays, weights=weights)


def base_name(name: str) -> str:
    """A name that PyTorch made of an operator, without the number of its repetition."""
    return _AGAIN.sub("", name)


def _takes_bias(graph: OnnxGraph, call: ExportedCall, target: str) -> bool:
    """Whether a parameter is the third operand of a layer, which adds it."""
    is_layer = call.operator.startswith(("aten.linear", "aten.conv"))
    return is_layer and len(call.passes) > 2 and graph.signature.get(call.passes[2], ("", ""))[1] == target


def _add_bias(
    call: _Call, arrays: dict[str, np.ndarray], nodes: dict[int, OnnxNode], added: list[tuple[int, OnnxNode]]
) -> None:
    """Add the bias of zeros to the node of the call that takes it, or a node that adds it to a product."""
    for node in (nodes[one.number] for one in call.nodes):
        weight = arrays.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if weight is None or node.domain or node.op_type not in (*_BIASED, "MatMul"):
            continue
        if node.op_type == "MatMul":
            inner = f"{node.outputs[0]}.without_bias"
            nodes[node.number] = replace(node, outputs=(inner,))
            add = replace(node, name=f"{node.name}.bias", op_type="Add", inputs=(inner, call.bias), attributes={})
            added.append((node.number, add))
            length = weight.shape[-1]
        elif len(node.inputs) == 2:
            nodes[node.number] = replace(node, inputs=(*node.inputs, call.bias))
            length = _outputs(node, weight)
        else:
            continue
        arrays[call.bias] = np.zeros(length, weight.dtype)
        return


def _outputs(node: OnnxNode, weight: np.ndarray) -> int:
    """The number of outputs, or output channels, of a layer."""
    if node.op_type == "Gemm":
        return int(weight.shape[0 if node.attributes.get("transB", 0) else 1])
    return int(
        weight.shape[1] * node.attributes.get("group", 1) if node.op_type == "ConvTranspose" else weight.shape[0]
    )


def _ordered(nodes: Mapping[int, OnnxNode], added: Sequence[tuple[int, OnnxNode]]) -> tuple[OnnxNode, ...]:
    after = dict(added)
    return tuple(one for number, node in nodes.items() for one in (node, after.get(number)) if one is not None)


# Files without notes: one tensor for all layers whose weights are equal in all elements.

# What the inputs of operators with weights are, by the names of PyTorch.
SCALED = "", "weight", "bias"
KINDS = {
    **dict.fromkeys(("LayerNormalization", "GroupNormalization", "InstanceNormalization", "Conv", "Gemm"), SCALED),
    "ConvTranspose": SCALED,
    "BatchNormalization": (*SCALED, "running_mean", "running_var"),
}


def _with_own_weights(graph: OnnxGraph) -> OnnxGraph:
    """The graph with a weight of its own for each layer, where a file has one for all that are equal by chance.

    So PyTorch writes fresh scales and biases, without Identity nodes: the scale of a normalization is its variance too.
    """
    uniform = {name for name in graph.weights if is_uniform(graph.initializers[name])}
    places = [(node, k, name) for node in graph.nodes for k, name in enumerate(node.inputs) if name in uniform]
    kinds = {(node.number, k): kind for node, k, name in places if (kind := _kind(node, k, name))}
    labels = Counter(f"{node.layer}.{kinds[node.number, k]}" for node, k, _ in places if (node.number, k) in kinds)
    owners, modules = defaultdict[str, list[tuple[int, int, str]]](list), _Modules(graph)
    for node, k, name in places:
        if modules.of_node(node).replace("/", ".") == name.rpartition(".")[0] != "":
            owners[name].append((node.number, k, name))  # of a layer that is called again
        elif (node.number, k) in kinds:
            label = f"{node.layer}.{kinds[node.number, k]}"
            is_layer = node.layer and labels[label] == 1
            owners[name].append((node.number, k, label if is_layer else f"{node.name}.{kinds[node.number, k]}"))
    return _with_copies(graph, owners)


def _with_copies(graph: OnnxGraph, owners: Mapping[str, Sequence[tuple[int, int, str]]]) -> OnnxGraph:
    """The graph with a copy of a tensor for each of its places: numbers of nodes and inputs, and the copy's name."""
    own: dict[tuple[int, int], str] = {}
    arrays = dict(graph.initializers)
    for name, claims in owners.items():
        first = next((claim for claim in claims if claim[2] == name), claims[0])  # this one keeps the name of the file
        for number, k, label in claims:
            if (number, k) != first[:2]:
                own[number, k] = label
                arrays[label] = arrays[name].copy()
    nodes = tuple(_with_inputs(node, own) for node in graph.nodes)
    return replace(graph, nodes=nodes, initializers=arrays, weights={*graph.weights, *own.values()})


def _with_inputs(node: OnnxNode, own: Mapping[tuple[int, int], str]) -> OnnxNode:
    inputs = tuple(own.get((node.number, k), name) for k, name in enumerate(node.inputs))
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def _kind(node: OnnxNode, position: int, name: str) -> str:
    """What a weight at a place of a layer is; empty at places that take no weights."""
    if node.op_type in ("Add", "Mul") and "." in name:
        return name.rpartition(".")[2]
    kinds = KINDS.get(node.op_type, ())
    return kinds[position] if position < len(kinds) else ""


# What the user says.


def _untied(graph: OnnxGraph, patterns: Sequence[str]) -> tuple[OnnxGraph, dict[str, str]]:
    """The graph with a copy of each of these tensors for every node that reads it; the first node keeps its name."""
    chosen = {name: claims for name, claims in _shared(graph).items() if matches(name, patterns)}
    copies = {label: name for name, claims in chosen.items() for _, _, label in claims[1:]}
    return _with_copies(graph, chosen), copies


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is a name, or has `*` and fits it."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def require_known(key: str, patterns: Sequence[str], names: Collection[str]) -> None:
    """Raise ConfigError for a pattern that fits none of the names."""
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in names):
            rows = known_names(pattern, [*names]) if names else {"allowed": "none: no tensor has several readers"}
            raise ConfigError("no such tensor of the ONNX file", key=key, value=pattern, **rows)


# Embeddings that are also the last layer, and tokens that are written for every sample.


def _without_transposes(graph: OnnxGraph) -> OnnxGraph:
    """The graph with one parameter where a file has a matrix and the same matrix transposed.

    So exporters write an embedding that is also the last layer. A Transpose node of the first one replaces the other.
    """
    matrices = [
        (name, array) for name, array in graph.initializers.items() if name in graph.weights and _is_matrix(array)
    ]
    gathered = {node.inputs[0] for node in graph.nodes if node.operator == "Gather"}
    sources = [(name, array) for name, array in matrices if name in gathered]
    nodes, arrays = list(graph.nodes), dict(graph.initializers)
    for name, array in matrices:
        for source, other in sources:
            if name not in gathered and array.shape == other.shape[::-1] and np.array_equal(array, other.T):
                nodes.insert(0, _computed(graph, "Transpose", f"{source}.transposed", (source,), name))
                del arrays[name]
                break
    return replace(graph, nodes=tuple(nodes), initializers=arrays)


def _without_repetitions(graph: OnnxGraph) -> OnnxGraph:
    """The graph with one parameter where a file has a vector and a tensor whose every row is this vector.

    So an exporter writes the first step of a recurrent layer that starts from zeros: only the bias is left of it. An
    Expand node of the vector replaces the tensor.
    """
    own = targets(graph, PARAMETER) or graph.weights
    floats = {name: array for name, array in graph.initializers.items() if array.dtype.kind == "f" and array.size > 1}
    parameters, read = targets(graph, PARAMETER), {name for node in graph.nodes for name in node.inputs}
    vectors = {array.tobytes(): name for name, array in reversed(floats.items()) if name in own and array.ndim == 1}
    for name, array in floats.items():
        if array.ndim < 2 or name in parameters or name not in read:
            continue
        first = array.reshape(-1, array.shape[-1])[0]
        vector = vectors.get(first.tobytes())
        if vector is not None and (array == floats[vector]).all() and not is_uniform(array):
            graph = _expanded(graph, vector, name)
    return graph


def _expanded(graph: OnnxGraph, vector: str, name: str) -> OnnxGraph:
    """The graph with a node that repeats a vector in place of a tensor."""
    shape, arrays = f"{name}.shape", dict(graph.initializers)
    node = _computed(graph, "Expand", f"{name}.repeated", (vector, shape), name)
    arrays[shape] = np.asarray(arrays.pop(name).shape, np.int64)
    return replace(graph, nodes=(node, *graph.nodes), initializers=arrays, weights=graph.weights & arrays.keys())


def _is_matrix(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.ndim == 2 and min(array.shape) > 1 and bool((array != array.flat[0]).any())


def _computed(graph: OnnxGraph, operator: str, label: str, inputs: tuple[str, ...], name: str) -> OnnxNode:
    """A node that computes a tensor of the file from others, with the number of the first node that reads it."""
    number = min(node.number for node in graph.nodes if name in node.inputs)
    return OnnxNode(label, operator, "", graph.nodes[0].opset, inputs, (name,), {}, number)


# Operators of PyTorch that choose, repeat and arrange the elements of one tensor. The exporter names by them what it
# computed of a parameter of which it then writes nothing else.
ARRANGED = {
    *("view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "t", "slice", "expand", "repeat", "clone"),
    *("select", "index", "index_select", "embedding", "gather", "narrow", "flip"),
}


def _with_single_elements(graph: OnnxGraph) -> OnnxGraph:
    """The graph with each element of a parameter once, where an exporter computed a tensor that repeats them.

    So a class token has equal rows, for each sample of a batch of fixed size, and a table of relative positions has one
    element for several pairs.
    """
    lengths = {value.shape[0] for value in graph.inputs if value.shape}
    first = next(iter(lengths), 0) if len(lengths) == 1 else 0
    rows = first if isinstance(first, int) else 0
    joined = {name for node in graph.nodes if node.operator == "Concat" for name in node.inputs}
    lost, own = lost_parameters(graph), targets(graph)
    if graph.signature and not lost:
        return graph
    for name, array in graph.initializers.items():
        if array.dtype.kind != "f" or name not in graph.weights or name in own:
            continue
        is_noted = bool(graph.signature) and base_name(name) in ARRANGED
        if (is_noted or name in joined) and _has_equal_rows(array, rows):
            graph = _from_elements(graph, name, "Expand", array[:1], np.asarray(array.shape, np.int64))
        elif is_noted and not is_uniform(array):
            elements, places = np.unique(array, return_inverse=True)
            if elements.size < array.size:
                graph = _from_elements(graph, name, "Gather", elements, places.reshape(array.shape))
    return graph


def _has_equal_rows(array: np.ndarray, rows: int) -> bool:
    return array.ndim > 2 and len(array) == rows > 1 and array[0].size > 1 and bool((array == array[:1]).all())


def _from_elements(graph: OnnxGraph, name: str, operator: str, elements: np.ndarray, places: np.ndarray) -> OnnxGraph:
    """The graph with a parameter, of the name of the only one that is lost, from which a node computes a tensor."""
    lost = lost_parameters(graph)
    parameter, operand, result = lost[0] if len(lost) == 1 else name, f"{name}.places", f"{name}.repeated"
    node = _computed(graph, operator, result, (parameter, operand), name)
    nodes = replace(node, outputs=(result,)), *(one.renamed({name: result}) for one in graph.nodes)
    arrays = {key: array for key, array in graph.initializers.items() if key != name}
    arrays |= {parameter: np.ascontiguousarray(elements), operand: places.astype(np.int64)}
    weights = {*graph.weights, parameter} & arrays.keys()
    return replace(graph, nodes=nodes, initializers=arrays, weights=weights)
