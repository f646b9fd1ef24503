"""Records whose keys are arguments of a constructor, with its defaults."""

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field, field
from typing import Any, ClassVar

from runner.validation.records import Frozen
from runner.validation.rules import Rule


def argument(**rule: Any) -> Any:
    """A key with a rule, and the default of the constructor's argument of the same name."""
    return field(metadata={"rule": Rule(**rule)})


class ConstructorSettings(Frozen):
    """Base class of the settings of a constructor: `class AdamSettings(ConstructorSettings, constructor=nn.Adam)`."""

    constructor: ClassVar[type[Any]]

    def __init_subclass__(cls, constructor: type[Any] | None = None) -> None:
        if constructor is not None:
            cls.constructor = constructor
            for name, key in vars(cls).items():
                if isinstance(key, Field) and key.default is MISSING:
                    key.default = _default(constructor, name)
        super().__init_subclass__()

    def create(self, *positional: Any, **computed: Any) -> Any:
        """Call the constructor with the keys that are its arguments, and with further arguments."""
        names = [name for name in _parameters(self.constructor) if name in self.__dataclass_fields__]
        return self.constructor(*positional, **{**{name: getattr(self, name) for name in names}, **computed})


def _default(constructor: type[Any], name: str) -> Any:
    parameter = _parameters(constructor).get(name)
    if parameter is None or parameter.default is parameter.empty:
        raise TypeError(f"{constructor.__qualname__} has no default for an argument {name}")
    return parameter.default


def _parameters(constructor: type[Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(constructor).parameters
