"""Frozen records with shared methods: `@dataclass(frozen=True)` compiles six functions for every class.

For the fifty classes of a start, that takes 80 ms. Here only the fields are collected; `dataclasses.fields`, `replace`,
`asdict` and `is_dataclass` accept these classes.
"""

import dataclasses
from typing import Any, ClassVar, dataclass_transform

from runner.validation.keywords import unknown_argument


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Frozen:
    """Base class of records: a subclass declares fields with defaults, as a dataclass does.

    Records are equal if their class and fields are equal, except those of `field(compare=False)`. Their construction
    is slower than that of a dataclass, so classes with thousands of objects, such as operators, are dataclasses.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # set by `dataclass`

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        cls.__dataclass_fields__ = {field.name: field for field in dataclasses.fields(cls)}  # no class variables

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self.__dataclass_fields__
        given = {**dict(zip(fields, values, strict=False)), **named}
        for name in named.keys() - fields.keys():
            raise unknown_argument(type(self).__name__, name, fields)
        if len(given) < len(values) + len(named) or len(values) > len(fields):
            raise TypeError(f"{type(self).__qualname__} takes {', '.join(fields) or 'nothing'}, each once")
        vars(self).update({name: given[name] if name in given else _default(self, f) for name, f in fields.items()})
        self.__post_init__()

    def __post_init__(self) -> None:
        """Hook for a subclass to check its fields."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), _values(self)))

    def __repr__(self) -> str:
        pairs = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({', '.join(pairs)})"


def _default(record: Frozen, field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        raise TypeError(f"{type(record).__qualname__} needs {field.name}")
    return field.default


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name, field in record.__dataclass_fields__.items() if field.compare])
