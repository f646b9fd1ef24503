"""`Schema`: names, element types and shapes of the columns of TFRecord files. Source: `mindspore.dataset` r1.2."""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from runner import dtype as dt
from runner.errors import ConfigError, DataError, known_names
from runner.host import json_file
from runner.validation.arguments import as_list, whole_number

__all__ = ["Schema"]

TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string"),
)
_KEYS = "datasetType", "numRows", "columns"


class Schema:
    """Columns with their types, of a JSON file or added one by one.

    Raises DataError for a file that cannot be read, and ConfigError for one that is no schema.

    >>> schema = Schema()
    >>> schema.add_column("x", dt.float32, [2])
    >>> json.loads(schema.to_json())
    {'columns': [{'name': 'x', 'rank': 1, 'shape': [2], 'type': 'float32'}]}
    """

    def __init__(self, schema_file: str | PathLike[str] | None = None) -> None:
        self.schema_file = "" if schema_file is None else str(schema_file)
        self._about: dict[str, Any] = {}
        self.columns: list[dict[str, Any]] = []
        if self.schema_file:
            path = Path(self.schema_file)
            if not path.is_file():
                raise DataError("a schema is missing", file=path, expected="a JSON file with columns")
            self.from_json(json_file.parse(json_file.text(json_file.content(path)), str(path)))

    def add_column(self, name: str, de_type: Any, shape: Sequence[int] | None = None) -> None:
        """A further column. `de_type` is an element type or its name, or "string"; -1 in `shape` is any length.

        Without `shape`, values have one axis of any length. Raises ConfigError for an unknown type.
        """
        self.columns.append(_column(name, {"type": de_type, **({} if shape is None else {"shape": shape})}))

    def parse_columns(self, columns: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Further columns: dicts with `name`, `type` and perhaps `shape`, or a dict of such dicts by name.

        Raises ConfigError for one without name or type.
        """
        if isinstance(columns, Mapping):
            self.columns += [_column(str(name), given) for name, given in columns.items()]
            return
        for given in columns:
            if not isinstance(given, Mapping) or "name" not in given:
                raise ConfigError("a column without a name", argument="columns", value=given)
            self.columns.append(_column(str(given["name"]), given))

    def to_json(self) -> str:
        """The schema as JSON text."""
        return json.dumps({"columns": self.columns or None, **self._about}, indent=2, sort_keys=True)

    def from_json(self, json_obj: Mapping[str, Any]) -> None:
        """Replace the schema by one that JSON gave. Raises ConfigError for unknown keys and without columns."""
        if not isinstance(json_obj, Mapping) or "columns" not in json_obj:
            raise ConfigError("not a schema", value=json_obj, allowed='a dict with "columns"')
        for name in json_obj:
            if name not in _KEYS:
                raise ConfigError("an unknown key of a schema", value=name, **known_names(str(name), list(_KEYS)))
        self._about = {name: json_obj[name] for name in _KEYS[:2] if name in json_obj}
        self.columns = []
        self.parse_columns(json_obj["columns"])

    @staticmethod
    def get_num_rows(schema: Any) -> int:
        """The number of rows that a schema, or the file of one, gives; 0 without one."""
        known = schema if isinstance(schema, Schema) else Schema(schema)
        return whole_number("numRows", known._about.get("numRows", 0), 0)

    def __str__(self) -> str:
        return self.to_json()


def _column(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or "type" not in given:
        raise ConfigError("a column without a type", column=name, value=given, allowed=", ".join(TYPES))
    kind = given["type"]
    text = str(kind).lower() if kind is dt.string or isinstance(kind, str) else str(dt.of(kind)).lower()
    if text not in TYPES:
        raise ConfigError("not a type of a column", column=name, value=kind, **known_names(text, list(TYPES)))
    if "shape" not in given:
        return {"name": name, "rank": whole_number("rank", given.get("rank", 1), 0), "type": text}
    shape = [whole_number("shape", length, -1) for length in as_list(given["shape"])]
    return {"name": name, "rank": len(shape), "shape": shape, "type": text}
