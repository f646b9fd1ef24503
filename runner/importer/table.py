"""The table of ONNX operators: each has one rule, a function that applies ours. `operators/` fills it."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from runner.errors import InternalError

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class OnnxRule:
    """What an ONNX operator becomes: a function of the call and of the ONNX inputs.

    `static` are the inputs that must be known when the network is imported: it takes them as numpy arrays.
    """

    operator: str
    apply: Callable[..., Any]
    inputs: tuple[str, ...]
    static: frozenset[str]
    is_variadic: bool

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        return (inspect.getdoc(self.apply) or "").partition("\n")[0]

    def is_static(self, position: int) -> bool:
        """Whether the input at a position must be known at import."""
        return position < len(self.inputs) and self.inputs[position] in self.static


RULES: dict[str, OnnxRule] = {}


def onnx_operator(operator: str, *, static: Sequence[str] = ()) -> Callable[[T], T]:
    """Declare the rule of an ONNX operator; one of another domain has its name, `com.microsoft.Gelu`.

    The parameters after the first are the ONNX inputs in their order, optional ones with the default None.
    """

    def add(function: T) -> T:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        inputs = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        if operator in RULES or not set(static) <= set(inputs):
            raise InternalError(
                "an ONNX operator has two rules, or a static input that it does not have", name=operator
            )
        is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        RULES[operator] = OnnxRule(operator, function, inputs, frozenset(static), is_variadic)
        return function

    return add
