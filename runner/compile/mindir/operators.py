"""The operators that MindIR has, and what their nodes contain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.core.primitive import Primitive


@dataclass(frozen=True)
class Form:
    """The primitive of an operator, its attributes, and the arguments that follow the operands."""

    name: str
    attributes: Mapping[str, Any]
    arguments: tuple[Any, ...]
    is_tuple: bool = False  # whether all operands are one tuple


def form_of(op: Primitive) -> Form:
    attributes = {name: value for name, value in op.attributes().items() if name not in op.statics}
    form = Form(op.name, attributes, tuple(getattr(op, name) for name in op.statics))
    change = CHANGES.get(op.name)
    return change(form) if change else form

Change = Callable[[Form], Form]
CHANGES: dict[str, Change] = {}
