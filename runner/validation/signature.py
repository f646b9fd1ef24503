"""Config keys from a signature: each keyword parameter with its type, rule, default and help.

An annotation is `int`, `float`, `bool`, `str`, `Path`, a `Literal` of texts, an `Enum`, a tuple or list of these, or an
optional one; `Annotated[int, key(low=1)]` adds a rule. The value of a key is plain (text, number, list), as in a config
file; `Key.convert` makes the argument from it.
"""

import enum
import inspect
import re
import types
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from runner.errors import ConfigError
from runner.validation.records import Frozen
from runner.validation.rules import FREE, Rule
from runner.validation.validate import Invalid, validate

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
