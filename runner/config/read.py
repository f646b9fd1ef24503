"""Reader of a config file, YAML or JSON, with fixed limits.

OmegaConf's loader takes a minute for 280 bytes of YAML aliases and is slow on ordinary files; here the size, depth and
number of nodes are checked before any value is created, and libyaml does the parsing.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from runner.errors import ConfigError
from runner.host import json
from runner.host.json import MAX_DEPTH, MAX_NODES

SUFFIXES = (".yaml", ".json")

_PACKAGE = re.compile(r"#\s*@package\s+(\S+)\s*$")
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> tuple[Any, str | None]:
    """The values of a file, and its package.

    A YAML file names its package in a comment, a JSON file under the key "@package". Raises ConfigError.
    """
    text = _text(path)
    if path.suffix == ".json":
        values = json.parse_config(text, display_path(path))
        package = values.pop("@package", None) if isinstance(values, dict) else None
        return values, package
    values = _yaml_values(path, text)
    json.measure(values)
    return values, _header(text)


class Lines:
    """The lines of the keys in a file that has been read, also in a JSON file, which the YAML parser accepts."""

    def __init__(self, path: Path) -> None:
        try:
            self._root = yaml.compose(_text(path), Loader=_Base)
        except (yaml.YAMLError, ConfigError):
            self._root = None

    def of(self, keys: Iterable[str]) -> int | None:
        """The line of a key; None if it is not in the file."""
        line, node = None, self._root
        for key in keys:
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            found = next(((name, value) for name, value in pairs if getattr(name, "value", None) == key), None)
            if found is None:
                return None
            line, node = found[0].start_mark.line + 1, found[1]
        return line


def display_path(file: Path) -> str:
    """A path for messages: relative to the current folder if it is inside."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def _text(path: Path) -> str:
    return json.decoded(json.config_bytes(path))


def _yaml_values(path: Path, text: str) -> Any:
    try:
        return _load_yaml(text)
    except ConfigError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f"{display_path(path)}:{mark.line + 1}:{mark.column + 1}" if mark else f"{display_path(path)}:1:1"
        raise json.syntax_error("YAML", location, error.problem or error.context or "not YAML") from None
    except RecursionError:
        raise json.too_deep() from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError("the file cannot be read", reason=str(error).splitlines()[0]) from None


def _header(text: str) -> str | None:
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            return None
        if found := _PACKAGE.match(line):
            return found[1]
    return None


class _Loader(_Base):  # type: ignore[misc]
    """Plain values only, with floats as OmegaConf and JSON read them (`1e-2`), and without YAML's dates."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        seen: set[Any] = set()
        for name, _ in node.value:
            found = self.construct_object(name, deep=True)
            if isinstance(found, list | dict):
                raise ConfigError("a key must be one word", line=name.start_mark.line + 1)
            if found in seen:
                raise ConfigError("duplicate key", key=found, line=name.start_mark.line + 1)
            seen.add(found)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=True)
        return mapping


_REPLACED = {f"tag:yaml.org,2002:{name}" for name in ("timestamp", "float", "int", "value")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag not in _REPLACED]
    for first, rules in _Base.yaml_implicit_resolvers.items()
}
_EXPONENT = r"([eE][-+]?\d+)"
_FLOAT = (
    rf"[-+]?(\d[\d_]*\.[\d_]*{_EXPONENT}?|\d[\d_]*{_EXPONENT}|\.\d[\d_]*{_EXPONENT}?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
)
_INT = r"[-+]?(0|[1-9][\d_]*)|0x[0-9a-fA-F_]+"  # 012 and 12:30:45 are text; in YAML 1.1 they are 10 and 45045
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{_FLOAT})$"), list("-+0123456789."))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(f"^(?:{_INT})$"), list("-+0123456789"))


def _load_yaml(text: str) -> Any:
    _check_limits(text)
    return yaml.load(text, Loader=_Loader)  # a safe loader with fewer rules


def _check_limits(text: str) -> None:
    """Check depth and number of nodes in the stream of events, before any value is created. Raises ConfigError."""
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    count = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ConfigError(
                    "an alias that contains itself", value=f"*{event.anchor}", line=event.start_mark.line + 1
                )
            count += sizes[event.anchor]
        elif isinstance(event, yaml.NodeEvent):
            _reject_tag(event)
            count += 1
            if isinstance(event, yaml.CollectionStartEvent):
                opened.append((event.anchor, count))
            elif event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor:
                sizes[anchor] = count - before + 1
        if len(opened) > MAX_DEPTH:
            raise json.too_deep()
        if count > MAX_NODES:
            raise ConfigError("too many values", allowed=f"{MAX_NODES} in one file")


def _reject_tag(event: Any) -> None:
    tag = getattr(event, "tag", None)
    if tag is not None and tag != "!":  # "!" only marks a plain word as text
        raise ConfigError("YAML tags are not supported", value=tag, line=event.start_mark.line + 1)
