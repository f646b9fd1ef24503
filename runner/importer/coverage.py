"""All reasons why a graph cannot be imported, in one error."""

from collections import defaultdict
from collections.abc import Iterable

from runner.errors import ConfigError, some
from runner.importer.graph import OnnxGraph, OnnxNode
from runner.importer.operators import RULES

QUANTIZED = {
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"),
    *("ConvInteger", "MatMulInteger", "QLinearAdd", "QLinearMul", "QLinearGlobalAveragePool", "QLinearConcat"),
}
NO_GRADIENT = "a quantized model: rounding has no gradient, so it cannot be trained"


def unsupported(graph: OnnxGraph) -> dict[str, list[OnnxNode]]:
    """The nodes without a rule, by operator."""
    found = defaultdict[str, list[OnnxNode]](list)
    for node in graph.all_nodes():
        if node.operator not in RULES:
            found[node.operator].append(node)
    return dict(found)


def require_supported(graph: OnnxGraph) -> None:
    """Raise ConfigError that lists all operators without a rule, with their nodes."""
    missing = unsupported(graph)
    if not missing:
        return
    if is_quantized(missing):
        rows = {"operators": ", ".join(sorted(missing)), "repair": "import the model from before quantization"}
        raise ConfigError(NO_GRADIENT, **rows)
    lines = [_line(operator, nodes) for operator, nodes in sorted(missing.items())]
    repair = "`runner inspect FILE` lists all operators; a model exported with other ones"
    what = f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of an ONNX file cannot be imported"
    raise ConfigError(what, operators="\n".join(lines), repair=repair)


def is_quantized(operators: Iterable[str]) -> bool:
    """Whether some of the operators are those of quantized models."""
    return any(operator.rpartition(".")[2] in QUANTIZED for operator in operators)


def _line(operator: str, nodes: list[OnnxNode]) -> str:
    return f"{operator}, opset {nodes[0].opset}: {some([node.name for node in nodes], 3)}"
