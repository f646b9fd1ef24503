"""The registry: networks, datasets, losses, metrics, optimizers, schedules and callbacks by the names of configs.

`@register.network("mixer")` above a class or function makes it an option of its group, and its keyword parameters the
keys (`runner.validation.signature`). What runner has itself is registered in the same way; entries whose modules few
runs need are declared with `late`, and loaded when they are chosen.
"""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from runner.errors import PACKAGE, ConfigError, InternalError, known_names
from runner.validation.rules import Rule
from runner.validation.signature import Key, definition_of, keys_of, place_of

__all__ = ["callback", "dataset", "loss", "metric", "network", "optimizer", "schedule"]

T = TypeVar("T", bound=Callable[..., Any])
_NO_DEFAULT = inspect.Parameter.empty
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OWN_FOLDERS = (PACKAGE, os.path.join(os.path.dirname(os.path.dirname(PACKAGE)), "models") + os.sep)


def key(
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    pattern: str = "",
    hint: str | None = None,
) -> Rule:
    """A rule for a key: `depth: Annotated[int, runner.key(low=1, high=64)] = 4`.

    `low` and `high` are inclusive bounds, `above` and `below` exclusive ones, `pattern` is a regular expression that
    the whole text matches, and `hint` a line of the error for other values.
    """
    return Rule(low=low, high=high, above=above, below=below, pattern=pattern, hint=hint)


class Entry:
    """A registered class or function: its name, and what its config keys are."""

    def __init__(self, kind: "Kind", name: str, source: Callable[..., Any]) -> None:
        self.kind, self.name, self.source = kind, name, source

    @cached_property
    def keys(self) -> dict[str, Key]:
        """The config keys. Raises ConfigError for a parameter that cannot be one."""
        found = keys_of(self.source, self.kind.facts)
        for name, key in found.items():
            if name in self.kind.open_facts:
                found[name] = replace(key, kind=key.kind | None, default=None, required=False)
            if name in self.kind.reserved:
                rows = {"parameter": name, "where": self.place, "allowed": "another name"}
                raise ConfigError(f"runner has a key of this name for every {self.kind.name}", **rows)
        return found

    def check(self) -> None:
        """Raise ConfigError for a parameter that cannot be a key, and for a missing one that the run supplies."""
        if self.kind.needed and not self.parameters.keys() & set(self.kind.needed):
            rows = {self.kind.name: self.name, "where": self.place, "allowed": " or ".join(self.kind.needed)}
            raise ConfigError(f"a parameter that every {self.kind.name} has is missing", **rows)
        assert self.keys is not None

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the source."""
        return inspect.signature(self.source).parameters

    @cached_property
    def place(self) -> str:
        """File and line."""
        return place_of(self.source)

    @property
    def is_own(self) -> bool:
        """Whether it is part of runner."""
        return self.file.startswith(_OWN_FOLDERS)

    @property
    def file(self) -> str:
        """The source file; "" for what has none."""
        return _file(definition_of(self.source))

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(definition_of(self.source)) or "").partition("\n")[0]

    def call(self, settings: Mapping[str, Any], facts: Mapping[str, Any]) -> Any:
        """Call the source with plain values of keys, and with the facts of its kind that it has parameters for.

        An open fact is that of the key, if it has a value, or of the run, or the default of the parameter. Raises
        ConfigError when there is no value.
        """
        known = self.kind.facts + self.kind.open_facts
        arguments = {name: value for name, value in facts.items() if name in self.parameters and name in known}
        for name, key in self.keys.items():
            value = settings[name]
            if value is not None or name not in self.kind.open_facts:
                arguments[name] = key.convert(value)
            if name not in arguments and self.parameters[name].default is _NO_DEFAULT:
                rows = {"key": f"{self.kind.name}.{name}", "where": self.place, "hint": f"{self.kind.name}.{name}=..."}
                raise ConfigError(f"the dataset does not determine {name}", **rows)
        for name in self.kind.facts:
            if name in self.parameters and name not in arguments and self.parameters[name].default is _NO_DEFAULT:
                hint = "a dataset that has it, or a default of the parameter"
                rows = {self.kind.name: self.name, "parameter": name, "where": self.place, "hint": hint}
                raise ConfigError(f"the dataset does not determine {name}", **rows)
        return self.source(**arguments)


class Kind(Mapping[str, Entry]):
    """All entries of a kind, by name, in the order of registration.

    `facts` are names of parameters that a run supplies. Those that are `open_facts` are keys as well, null by default.
    `reserved` are names of keys that all entries have anyway. An entry has a parameter for one of `needed`.
    """

    def __init__(
        self,
        name: str,
        facts: tuple[str, ...] = (),
        reserved: tuple[str, ...] = ("name",),
        open_facts: tuple[str, ...] = (),
        needed: tuple[str, ...] = (),
    ) -> None:
        self.name, self.facts, self.reserved, self.open_facts = name, facts, reserved, open_facts
        self.needed = needed
        self._entries: dict[str, Entry | Callable[[], object]] = {}

    @property
    def with_article(self) -> str:
        """`a network`, `an optimizer`."""
        return f"an {self.name}" if self.name[0] in "aeiou" else f"a {self.name}"

    def __call__(self, name: str) -> Callable[[T], T]:
        """The decorator that registers a class or function under a name.

        Raises ConfigError for an invalid name, for one that is taken, and for a parameter that cannot be a key.
        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            hint = f'@runner.register.{self.name}("name")'
            allowed = "a lower-case letter, then letters, digits and _, at most 64"
            raise ConfigError(f"not a name for {self.with_article}", value=repr(name), allowed=allowed, hint=hint)

        def add(source: T) -> T:
            self.add(Entry(self, name, source))
            return source

        return add

    def late(self, name: str, load: Callable[[], object]) -> None:
        """Declare an entry that `load` registers, by importing its module."""
        self._entries.setdefault(name, load)

    def __getitem__(self, name: str) -> Entry:
        entry = self._entries[name]
        if isinstance(entry, Entry):
            return entry
        entry()
        loaded = self._entries[name]
        if not isinstance(loaded, Entry):
            raise InternalError("a module does not register what it is listed for", kind=self.name, name=name)
        return loaded

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def of(self, name: str) -> Entry:
        """The entry of a name. Raises ConfigError for an unknown one."""
        if name not in self._entries:
            raise ConfigError(f"unknown {self.name}", value=name, **known_names(name, self._entries))
        return self[name]

    def add(self, entry: Entry) -> None:
        """Register an entry. Raises ConfigError for a name that is taken, and for a parameter that cannot be a key."""
        before = self._entries.get(entry.name)
        if isinstance(before, Entry) and not _is_again(before.source, entry.source):
            rows = {"first": before.place, "second": entry.place, "hint": "one of them needs another name"}
            raise ConfigError(f"two {self.name}s of one name", value=entry.name, **rows)
        if not entry.is_own:
            if callable(before) and not isinstance(before, Entry):
                rows = {"second": entry.place, "hint": "choose another name"}
                raise ConfigError(f"runner has {self.with_article} of this name", value=entry.name, **rows)
            entry.check()  # where it is registered
        self._entries[entry.name] = entry

    def loaded(self) -> Iterator[Entry]:
        """The entries whose modules are loaded."""
        return (entry for entry in self._entries.values() if isinstance(entry, Entry))

    def discard(self, name: str) -> None:
        """Forget an entry, if there is one, for tests and notebooks."""
        self._entries.pop(name, None)


def _is_again(before: Any, now: Any) -> bool:
    """Whether a module is executed once more, as when it is reloaded. Every cell of a notebook has another file."""
    before, now = definition_of(before), definition_of(now)
    is_cell = before.__module__ == now.__module__ == "__main__"
    return bool(before.__qualname__ == now.__qualname__) and (is_cell or _file(before) == _file(now))


def _file(definition: Any) -> str:
    """The source file of a class or function; "" for what has none."""
    if code := getattr(definition, "__code__", None):
        return str(code.co_filename)
    return str(getattr(sys.modules.get(definition.__module__), "__file__", None) or "")


DATASET_FACTS = ("num_classes", "num_channels", "image_size", "input_shape", "num_features")
_OF_DATASETS = ("name", "batch_size", "drop_remainder", "shuffle", "buffer_size", "num_parallel_workers")

network = Kind("network", reserved=("name", "freeze", "head"), open_facts=DATASET_FACTS)
dataset = Kind("dataset", ("split",), _OF_DATASETS, needed=("split",))
loss = Kind("loss", ("num_classes", "class_names"))
metric = Kind("metric", ("summed", "num_classes", "class_names"))
_PARAMETERS = ("params", "parameters")
optimizer = Kind("optimizer", _PARAMETERS, ("name", "schedule"), needed=_PARAMETERS)
schedule = Kind("schedule", ("step", "global_step", "learning_rate", "total_steps"), ("name", "warmup_steps"))
callback = Kind("callback", ("run_dir", "total_steps", "class_names"))

PLURALS = {
    "networks": network,
    "datasets": dataset,
    "losses": loss,
    "metrics": metric,
    "optimizers": optimizer,
    "schedules": schedule,
    "callbacks": callback,
}
KINDS = {kind.name: kind for kind in PLURALS.values()}


def registered() -> Iterator[Entry]:
    """The entries of all kinds whose modules are loaded."""
    return (entry for kind in KINDS.values() for entry in kind.loaded())
