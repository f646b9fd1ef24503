"""`inputs.json` of a run directory: what a prediction needs to know of the training data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import dtype as dt
from runner.dataset.facts import facts_of
from runner.dataset.pipeline import Dataset
from runner.dataset.preprocessing import Preprocessing
from runner.dataset.readers.json_values import StoredValues
from runner.dataset.readers.stored_preprocessing import READERS, stored_preprocessing
from runner.errors import DataError
from runner.host import json_data
from runner.types import TensorType
from runner.validation.records import Frozen

INPUTS_FILE = "inputs.json"
MAX_BYTES = 64 << 20
SHAPE = "input_shape"


class ModelInputs(Frozen):
    """The facts that networks are built from, the types of the inputs, names, and the preprocessing of new files.

    `inputs` are the types of single samples by column name. `preprocessing` is None for data of a function that has
    none; with `is_foreign` it is the user's own, which only the dataset itself has.
    """

    facts: Mapping[str, Any]
    inputs: Mapping[str, TensorType]
    target: str
    class_names: tuple[str, ...] | None
    preprocessing: Preprocessing | None
    is_foreign: bool = False

    @classmethod
    def of(cls, data: Dataset) -> "ModelInputs":
        """Of the training data, batched or not, with the target as the last column."""
        *names, target = data.get_col_names()
        columns = [column.sample for column in data.columns[:-1]]
        inputs = dict(zip(names, columns, strict=True))
        return cls(facts_of(data), inputs, target, data.class_names, data.preprocessing)

    def as_json(self) -> dict[str, Any]:
        """Values of plain JSON."""
        inputs = [
            {"name": name, "dtype": kind.dtype.numpy.name, "shape": list(kind.shape)}
            for name, kind in self.inputs.items()
        ]
        return {
            "facts": {name: list(value) if name == SHAPE else value for name, value in self.facts.items()},
            "inputs": inputs,
            "target": self.target,
            "class_names": None if self.class_names is None else list(self.class_names),
            "preprocessing": None if self.preprocessing is None else self.preprocessing.as_json(),
        }

    @classmethod
    def read(cls, folder: Path) -> "ModelInputs | None":
        """Those of a run directory; None for runs of versions without them. Raises DataError for a damaged file."""
        path = folder / INPUTS_FILE
        if not path.exists():
            return None
        try:
            return cls._from_json(json_data.read_object(path, MAX_BYTES))
        except DataError as error:
            raise error.add(file=path) from None

    @classmethod
    def _from_json(cls, values: Mapping[str, Any]) -> "ModelInputs":
        stored = StoredValues(values)
        facts = values.get("facts")
        stored.require(isinstance(facts, dict), "facts", "an object")
        known = StoredValues(dict(facts or {}))
        found: dict[str, Any] = {name: known.whole(name, 1, 1 << 31) for name in known.values if name != SHAPE}
        if SHAPE in known.values:
            found[SHAPE] = known.shape(SHAPE)
        inputs = {one.text("name"): _type(one) for one in stored.groups("inputs")}
        reader = values.get("preprocessing")
        stored.require(reader is None or isinstance(reader, dict), "preprocessing", "an object, or null")
        is_foreign = reader is not None and reader.get("reader") not in READERS
        preprocessing = None if reader is None or is_foreign else stored_preprocessing(reader)
        names = stored.optional_names("class_names")
        return cls(found, inputs, stored.text("target"), names, preprocessing, is_foreign)


def _type(stored: StoredValues) -> TensorType:
    types = {kind.numpy.name: kind for kind in (dt.float32, dt.float16, dt.float64, dt.int32, dt.int64, dt.uint8)}
    stored.require(stored.values.get("dtype") in types, "dtype", ", ".join(types))
    return TensorType(types[stored.text("dtype")], stored.shape("shape"))
