"""Records of the keys of registered entries: one frozen class for each, made from its signature."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar, TypeVar, cast

from runner.errors import ConfigError, RunnerError, user_lines
from runner.register import Entry, Kind
from runner.validation.rules import Frozen, key

T = TypeVar("T")
PLACES = {"schedule": "optimizer.schedule"}  # where the keys of a kind are, if not below its name


class Settings(Frozen):
    """Base class: the keys of one entry. Subclasses are made by `record_of`."""

    entry: ClassVar[Entry]

    name: str = key("")  # the entry

    def __getattr__(self, name: str) -> Any:
        """Only for keys that the entry does not have. Raises AttributeError."""
        raise AttributeError(f"{type(self).__name__} has no key {name}", name=name, obj=self)

    def keywords(self) -> dict[str, Any]:
        """The arguments of the registered class or function that are keys."""
        return {name: own.convert(getattr(self, name)) for name, own in self.entry.keys.items()}

    def create(self, kind: type[T], **facts: Any) -> T:
        """What the registered class or function makes of the keys, and of the facts that it has parameters for.

        Raises ConfigError when a fact is missing that it needs, and when the result is not of this kind.
        """
        try:
            made = self.entry.call({name: getattr(self, name) for name in self.entry.keys}, facts)
        except RunnerError as error:
            if (argument := error.rows.get("argument")) in self.entry.keys:
                error.add(key=f"{PLACES.get(self.entry.kind.name, self.entry.kind.name)}.{argument}")
            if not error.rows.keys() & {"where", "line", "at"} and (lines := user_lines(error)):
                error.add(at="\n".join(lines))
            raise
        if not isinstance(made, kind):
            what = self.entry.kind.with_article
            rows = {
                "value": type(made).__name__,
                "where": self.entry.place,
                "allowed": f"{kind.__module__}.{kind.__name__}",
            }
            raise ConfigError(f"{self.name} is registered as {what} and makes something else", **rows)
        return made


S = TypeVar("S", bound=Settings)


class Records(Mapping[str, type[S]]):
    """The records of all entries of a kind, by name; each is made when it is first used."""

    def __init__(self, kind: Kind, base: type[S], default: str = "") -> None:
        self.kind, self.base, self.default = kind, base, default
        self._made: dict[Entry, type[S]] = {}

    def __getitem__(self, name: str) -> type[S]:
        entry = self.kind[name]
        if entry not in self._made:
            self._made[entry] = record_of(entry, self.base)
        return self._made[entry]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kind)

    def __len__(self) -> int:
        return len(self.kind)

    def __contains__(self, name: object) -> bool:
        return name in self.kind


def record_of(entry: Entry, base: type[S]) -> type[S]:
    """The record of an entry: the keys of `base`, which all entries of its kind have, and its own."""
    values: dict[str, Any] = {"name": key(entry.name, choices=(entry.name,))}
    kinds: dict[str, Any] = {"name": str}
    for name, own in entry.keys.items():
        kinds[name] = own.kind
        values[name] = field(default=own.default, metadata={"rule": own.rule, "help": own.help})
    doc = entry.summary or f"The {entry.kind.name} {entry.name}."
    about = {"__doc__": doc, "__module__": base.__module__, "__annotations__": kinds, "entry": entry}
    return cast(type[S], type(f"{base.__name__}_{entry.name}", (base,), about | values))


def missing_keys(record: type[Settings], values: Mapping[str, Any]) -> Iterator[str]:
    """The keys without a default that have no value."""
    if hasattr(record, "entry"):
        yield from (name for name, own in record.entry.keys.items() if own.required and values.get(name) is None)
