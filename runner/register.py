"""The registry: networks, datasets, losses, metrics, optimizers, schedules and callbacks by the names of configs.

`@register.network("mixer")` above a class or function makes it an option of its group, and its keyword parameters the
keys (`runner.register`). What runner has itself is registered in the same way; entries whose modules few
runs need are declared with `late`, and loaded when they are chosen.
"""

import enum
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from runner.errors import PACKAGE, ConfigError, InternalError, known_names
from runner.validation.rules import FREE, Frozen, Invalid, Rule, validate

# Config keys from a signature: each keyword parameter with its type, rule, default and help.
#
# An annotation is `int`, `float`, `bool`, `str`, `Path`, a `Literal` of texts, an `Enum`, a tuple or list of these, or
# an optional one; `Annotated[int, key(low=1)]` adds a rule. The value of a key is plain (text, number, list), as in a
# config file; `Key.convert` makes the argument from it.

SUPPORTED = "int, float, bool, str, Path, Literal, Enum, tuples and lists of these, optional or Annotated"
Source = Callable[..., Any]
_PLAIN = (int, float, bool, str)
_ARGUMENT = re.compile(r"^\s+(\w+)(?: \([^)]*\))?: (.+)$")


def _unchanged(value: Any) -> Any:
    return value


class Key(Frozen):
    """One key: the type and rule of its plain value, its plain default, and how the argument is made from a value."""

    kind: Any
    rule: Rule = FREE
    default: Any = None
    required: bool = False
    help: str = ""
    convert: Callable[[Any], Any] = _unchanged

    @property
    def type_name(self) -> str:
        """The type as it is written in Python, without modules."""
        if self.rule.choices:
            return " | ".join(self.rule.choices)
        return re.sub(r"\w+\.", "", getattr(self.kind, "__name__", "") if type(self.kind) is type else str(self.kind))


def keys_of(source: Source, computed: Collection[str] = ()) -> dict[str, Key]:
    """The keys of a class or function, except for the parameters in `computed`.

    Raises ConfigError, with the place of the source, for an annotation that is not supported or a default of another
    type.
    """
    try:
        parameters = inspect.signature(source, eval_str=True).parameters
    except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as reason:
        raise ConfigError("the annotations cannot be evaluated", where=place_of(source), reason=reason) from None
    helps = help_of(source)
    keys = {}
    for name, parameter in parameters.items():
        if name in computed or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        try:
            keys[name] = _key(parameter, helps.get(name, ""))
        except Invalid as invalid:
            rows = {"value": _declaration(parameter), "allowed": invalid.allowed}
            where = f"{getattr(source, '__qualname__', source)}, {place_of(source)}"
            raise ConfigError(invalid.what, parameter=name, where=where, **rows, hint=invalid.hint) from None
    return keys


def definition_of(source: Any) -> Any:
    """The class or function itself, of which a `partial` binds some arguments."""
    return definition_of(source.func) if isinstance(source, partial) else source


def place_of(source: Any) -> str:
    """File and line of a class or function; its module when it has no source."""
    source = definition_of(source)
    try:
        return f"{inspect.getsourcefile(source)}:{inspect.findsource(source)[1] + 1}"
    except (OSError, TypeError):
        return str(getattr(source, "__module__", source))


def help_of(source: Any) -> dict[str, str]:
    """The help of each parameter in a docstring: the lines `name: help` below a line `Args:`."""
    source = definition_of(source)
    texts = inspect.getdoc(source) or "", inspect.getdoc(getattr(source, "__init__", None)) or ""
    lines = "\n".join(texts).partition("Args:\n")[2].splitlines()
    return {found[1]: found[2] for line in lines if (found := _ARGUMENT.match(line))}


def _key(parameter: inspect.Parameter, text: str) -> Key:
    if parameter.annotation is parameter.empty:
        raise Invalid("a parameter without an annotation", SUPPORTED, hint=f"{parameter.name}: int, for example")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise Invalid("a parameter that cannot be named", "parameters after the /")
    kind, rule, convert = _resolve(parameter.annotation)
    key = Key(kind, rule, help=text, convert=convert, required=parameter.default is parameter.empty)
    return key if key.required else replace(key, default=_plain_default(key, parameter.default))


def _plain_default(key: Key, default: Any) -> Any:
    """The default of a parameter in the form of a config file."""
    if isinstance(default, enum.Enum):
        default = default.name
    elif isinstance(default, Path):
        default = str(default)
    try:
        return None if default is None else validate(key.kind, key.rule, default)
    except Invalid as invalid:
        raise Invalid(f"a default that is {invalid.what}", invalid.allowed) from None


def _resolve(annotation: Any) -> tuple[Any, Rule, Callable[[Any], Any]]:
    """The type and rule of a key's plain value, and the conversion of a value into an argument."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind, rule, convert = _resolve(arguments[0])
        given = next((one for one in arguments[1:] if isinstance(one, Rule)), FREE)
        return kind, _merged(rule, given), convert
    if origin in (Union, types.UnionType):
        return _resolve_optional(arguments)
    if annotation in _PLAIN:
        return annotation, FREE, _unchanged
    if annotation is Path:
        return str, Rule(path=True), Path
    if origin is Literal and all(isinstance(one, str) for one in arguments):
        return str, Rule(choices=arguments), _unchanged
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return str, Rule(choices=tuple(annotation.__members__)), annotation.__getitem__
    if origin in (tuple, list):
        return _resolve_list(origin, arguments)
    raise Invalid("an annotation that cannot be a config key", SUPPORTED)


def _resolve_optional(arguments: tuple[Any, ...]) -> tuple[Any, Rule, Callable[[Any], Any]]:
    others = [one for one in arguments if one is not types.NoneType]
    if len(others) != 1 or len(arguments) != 2:
        raise Invalid("an annotation with several types", SUPPORTED, hint="one type, or one type | None")
    kind, rule, convert = _resolve(others[0])
    return kind | None, rule, lambda value: None if value is None else convert(value)


def _resolve_list(origin: type[Any], arguments: tuple[Any, ...]) -> tuple[Any, Rule, Callable[[Any], Any]]:
    elements = [one for one in arguments if one is not Ellipsis]
    if not elements or any(one != elements[0] for one in elements):
        raise Invalid("a list of several types", SUPPORTED)
    kind, rule, convert = _resolve(elements[0])
    if get_origin(kind) is not None:
        raise Invalid("a list of lists or optional values", SUPPORTED)
    if origin is tuple and Ellipsis not in arguments:
        element, count = rule, len(elements)
        rule = Rule(validate=lambda value: _validated_list(kind, element, count, value))
    return types.GenericAlias(tuple, (kind, ...)), rule, lambda values: origin(convert(one) for one in values)


def _validated_list(kind: Any, rule: Rule, count: int, value: object) -> tuple[Any, ...]:
    values: tuple[Any, ...] = validate(types.GenericAlias(tuple, (kind, ...)), rule, value)
    if len(values) != count:
        raise Invalid("a list of another length", f"a list of {count} values")
    return values


def _merged(rule: Rule, given: Rule) -> Rule:
    """The rule of a type with what a `key(...)` adds."""
    if given.validate is not None:
        return given
    return replace(rule, **{name: value for name, value in vars(given).items() if value != getattr(FREE, name)})


def _declaration(parameter: inspect.Parameter) -> str:
    """A parameter as it is written in Python, without modules of plain types."""
    kind, default = parameter.annotation, parameter.default
    plain = isinstance(kind, type) and not get_args(kind)
    text = "" if kind is parameter.empty else f": {kind.__name__ if plain else kind}"
    equals = " = " if text else "="
    return f"{parameter.name}{text}" + ("" if default is parameter.empty else f"{equals}{default!r}")


# Entries and kinds.

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


def is_kind(word: str | None) -> bool:
    """Whether a word of the command line is the plural of a kind, such as `networks`."""
    return word in PLURALS
