"""`ParameterTuple`: parameters with different names, as gradients and optimizers take them."""

from collections.abc import Iterable
from typing import Any, Self

from runner.core.value import Parameter
from runner.errors import ConfigError


class ParameterTuple(tuple[Parameter, ...]):
    """A tuple of parameters. As in the reference, names that occur twice are numbered: `w_0`, `w_1`.

    Raises ConfigError for other elements.
    """

    __slots__ = ()

    def __new__(cls, iterable: Iterable[Parameter]) -> Self:
        parameters = tuple(iterable)
        for place, parameter in enumerate(parameters):
            if not isinstance(parameter, Parameter):
                rows = {"given": type(parameter).__name__, "at": place}
                raise ConfigError("a ParameterTuple takes parameters", **rows, repair="Parameter(tensor, name=...)")
        _number_names(parameters)
        return super().__new__(cls, parameters)

    def clone(self, prefix: str, init: Any = "same") -> "ParameterTuple":
        """Copies with names below `prefix`; `init` is as for `Parameter.clone`."""
        copies = [parameter.clone(init) for parameter in self]
        for copy in copies:
            copy.name = f"{prefix}.{copy.name}"
        return ParameterTuple(copies)


def _number_names(parameters: tuple[Parameter, ...]) -> None:
    by_name: dict[str, list[Parameter]] = {}
    for parameter in dict.fromkeys(parameters):
        if parameter.name:
            by_name.setdefault(parameter.name, []).append(parameter)
    for name, several in by_name.items():
        for number, parameter in enumerate(several if len(several) > 1 else ()):
            parameter.name = f"{name}_{number}"
