"""`inputs.json` of a run directory: what a prediction needs to know of the training data."""

from collections.abc import Mapping
from typing import Any

from runner.dataset.batches import facts_of
from runner.dataset.pipeline import Dataset
from runner.dataset.preprocessing import Preprocessing
from runner.host.console import as_unicode
from runner.types import TensorType
from runner.validation.rules import Frozen

INPUTS_FILE = "inputs.json"
SHAPE, NAMES = "input_shape", "class_names"


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
            "facts": {
                name: list(value) if name == SHAPE else value
                for name, value in self.facts.items()
                if name != NAMES  # stored below
            },
            "inputs": inputs,
            "target": self.target,
            NAMES: None if self.class_names is None else [as_unicode(str(name)) for name in self.class_names],
            "preprocessing": None if self.preprocessing is None else self.preprocessing.as_json(),
        }
