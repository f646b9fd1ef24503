"""MindRecord files for scripts: `FileWriter`, `FileReader` and `MindPage` of `mindspore.mindrecord` r1.2.

The package `mindspore` writes and reads the files, and checks fields against the schema. Since its release 2 some calls
return nothing; here they return what they did in r1.2.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Self

from runner.dataset.formats.mindrecord import errors_of_library, library
from runner.errors import ConfigError, StorageError, known_names
from runner.validation.arguments import whole_number

__all__ = ["FAILED", "SUCCESS", "FileReader", "FileWriter", "MSRStatus", "MindPage"]

MAX_SHARDS = 1000


class MSRStatus(IntEnum):
    """The result of a call."""

    SUCCESS = 0
    FAILED = 1


SUCCESS, FAILED = MSRStatus.SUCCESS, MSRStatus.FAILED


class FileWriter:
    """Writes rows into `shard_num` MindRecord files, `file_name` or `file_name0`, `file_name1`, ..., and their indexes.

    `add_schema`, then `add_index` if fields are to be searched, then `write_raw_data` as often as necessary, then
    `commit`. Raises StorageError when one of the files exists, ConfigError without the extra `mindrecord`, DataError
    for what the format cannot have.
    """

    def __init__(self, file_name: str, shard_num: int = 1) -> None:
        whole_number("shard_num", shard_num, 1, MAX_SHARDS)
        self._file_name = str(file_name)
        numbers = [""] if shard_num == 1 else map(str, range(shard_num))
        for path in (Path(f"{file_name}{number}{end}") for number in numbers for end in ("", ".db")):
            if path.exists():
                raise StorageError("a file of this name exists", path=path, repair="remove it, or write another one")
        with self._errors():
            self._writer = library().records.FileWriter(self._file_name, shard_num)

    @classmethod
    def open_for_append(cls, file_name: str) -> Self:
        """A writer that adds rows to existing files, whose schema it has. Raises DataError when they are damaged."""
        writer = cls.__new__(cls)
        writer._file_name = str(file_name)
        with writer._errors():
            writer._writer = library().records.FileWriter.open_for_append(writer._file_name)
        return writer

    def add_schema(self, content: Mapping[str, Any], desc: str | None = None) -> int:
        """The fields, such as {"label": {"type": "int32"}, "x": {"type": "float32", "shape": [-1]}}; its number, 0."""
        with self._errors():
            self._writer.add_schema(dict(content), desc)
        return 0

    def add_index(self, index_fields: Sequence[str]) -> MSRStatus:
        """Fields of numbers or text by which files can be searched."""
        return self._call("add_index", list(index_fields) if isinstance(index_fields, tuple) else index_fields)

    def write_raw_data(self, raw_data: Sequence[Mapping[str, Any]], parallel_writer: bool = False) -> MSRStatus:
        """Add rows: dicts with a value for each field. `parallel_writer` writes them in several processes."""
        return self._call("write_raw_data", raw_data, parallel_writer)

    def set_header_size(self, header_size: int) -> MSRStatus:
        """Bytes of the header, a power of two from 16 KiB to 128 MiB."""
        return self._call("set_header_size", header_size)

    def set_page_size(self, page_size: int) -> MSRStatus:
        """Bytes of a page, a power of two from 32 KiB to 256 MiB; a row has to fit."""
        return self._call("set_page_size", page_size)

    def commit(self) -> MSRStatus:
        """Write what is left, and the indexes."""
        return self._call("commit")

    def _call(self, method: str, *arguments: Any) -> MSRStatus:
        with self._errors():
            getattr(self._writer, method)(*arguments)
        return SUCCESS

    def _errors(self) -> Any:
        return errors_of_library("a MindRecord file cannot be written", file=self._file_name)


class FileReader:
    """Reads the rows of MindRecord files in their order; a name stands for all files that were written with it.

    `columns` are the fields to read, by default all. Raises ConfigError without the extra `mindrecord`, DataError for
    missing and damaged files.
    """

    def __init__(
        self,
        file_name: str | Sequence[str],
        num_consumer: int = 4,
        columns: Sequence[str] | None = None,
        operator: Any = None,
    ) -> None:
        self._file_name = file_name
        if columns is not None and not isinstance(columns, list):
            raise ConfigError("not names of fields", argument="columns", value=columns, allowed="a list of names")
        with self._errors():
            self._reader = library().records.FileReader(file_name, _threads(num_consumer), columns, operator)

    def get_next(self) -> Iterator[dict[str, Any]]:
        """Row after row: a dict of Python numbers, text, bytes and arrays."""
        with self._errors():
            yield from self._reader.get_next()

    def close(self) -> None:
        """Stop reading."""
        with self._errors():
            self._reader.close()

    def _errors(self) -> Any:
        return errors_of_library("a MindRecord file cannot be read", file=self._file_name)


class MindPage:
    """Reads rows of MindRecord files by the values of an indexed field, page by page.

    Raises ConfigError without the extra `mindrecord`, DataError for missing and damaged files.
    """

    def __init__(self, file_name: str | Sequence[str], num_consumer: int = 4) -> None:
        self._file_name = file_name
        with self._errors():
            self._pages = library().records.MindPage(file_name, _threads(num_consumer))

    @property
    def candidate_fields(self) -> list[str]:
        """The indexed fields."""
        return list(self._pages.candidate_fields)

    def get_category_fields(self) -> list[str]:
        """The indexed fields."""
        return self.candidate_fields

    @property
    def category_field(self) -> str | None:
        """The field whose values are categories."""
        chosen: str | None = self._pages.category_field
        return chosen

    @category_field.setter
    def category_field(self, category_field: str) -> None:
        self.set_category_field(category_field)

    def set_category_field(self, category_field: str) -> MSRStatus:
        """Choose the field. Raises ConfigError for one that is not indexed."""
        if category_field not in self.candidate_fields:
            known = known_names(str(category_field), self.candidate_fields)
            raise ConfigError("not an indexed field", argument="category_field", value=category_field, **known)
        with self._errors():
            self._pages.category_field = category_field
        return SUCCESS

    def read_category_info(self) -> str:
        """The categories with their numbers and counts of rows, as JSON text."""
        with self._errors():
            return str(self._pages.read_category_info())

    def read_at_page_by_id(self, category_id: int, page: int, num_row: int) -> list[dict[str, Any]]:
        """The rows of a page, `num_row` long, of the category with this number."""
        with self._errors():
            return list(self._pages.read_at_page_by_id(category_id, page, num_row))

    def read_at_page_by_name(self, category_name: str, page: int, num_row: int) -> list[dict[str, Any]]:
        """The rows of a page, `num_row` long, of the category with this name."""
        with self._errors():
            return list(self._pages.read_at_page_by_name(category_name, page, num_row))

    def _errors(self) -> Any:
        return errors_of_library("a MindRecord file cannot be read", file=self._file_name)


def _threads(num_consumer: int) -> int:
    """The number of threads, at most that of the machine's cores, which is what the library accepts."""
    return min(whole_number("num_consumer", num_consumer, 1), os.cpu_count() or 1)
