"""The types of attributes that ONNX declares for its operators."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import onnx

from runner.errors import ConfigError

Kinds = onnx.AttributeProto


def require_attribute_types(proto: onnx.NodeProto, domain: str, opset: int, name: str) -> None:
    """Raise ConfigError when an attribute of a node has another type than its operator declares."""
    declared = _declared(proto.op_type, domain, opset)
    for attribute in proto.attribute:
        expected = declared.get(attribute.name, attribute.type)
        if attribute.type != expected:
            rows = {"node": name, "operator": f"{proto.op_type}, opset {opset}", "attribute": attribute.name}
            types = {"given": _label(attribute.type), "allowed": _label(expected)}
            raise ConfigError("an attribute has another type than ONNX declares", **rows, **types)


@cache
def _declared(operator: str, domain: str, opset: int) -> Mapping[str, Any]:
    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return {}
    kinds: Mapping[str, Any] = {name: attribute.type for name, attribute in schema.attributes.items()}
    return {name: int(kind.value) for name, kind in kinds.items()}


def _label(kind: int) -> str:
    return str(Kinds.AttributeType.Name(kind)) if kind in Kinds.AttributeType.values() else str(kind)
