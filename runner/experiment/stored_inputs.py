"""Reads `inputs.json` of a run directory, which may be damaged or edited; only predictions do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import dtype as dt
from runner.dataset.readers.image_folder import READERS, stored_preprocessing
from runner.errors import DataError
from runner.experiment.model_inputs import INPUTS_FILE, NAMES, SHAPE, ModelInputs
from runner.host import json
from runner.host.json import StoredValues
from runner.types import TensorType

MAX_BYTES = 64 << 20
LARGEST_FACT = 1 << 31
TYPES = {kind.numpy.name: kind for kind in (dt.float32, dt.float16, dt.float64, dt.int32, dt.int64, dt.uint8)}


def read_inputs(folder: Path) -> ModelInputs | None:
    """Those of a run directory; None for runs of versions without them. Raises DataError for a damaged file."""
    path = folder / INPUTS_FILE
    if not path.exists():
        return None
    try:
        return _from_json(json.read_object(path, MAX_BYTES))
    except DataError as error:
        raise error.add(file=path) from None


def _from_json(values: Mapping[str, Any]) -> ModelInputs:
    stored = StoredValues(values)
    reader = values.get("preprocessing")
    stored.require(reader is None or isinstance(reader, dict), "preprocessing", "an object, or null")
    is_foreign = reader is not None and reader.get("reader") not in READERS
    names = stored.optional_names(NAMES)
    return ModelInputs(
        facts=_facts(stored) | ({} if names is None else {NAMES: names}),
        inputs={one.text("name"): _type(one) for one in stored.groups("inputs")},
        target=stored.text("target"),
        class_names=names,
        preprocessing=None if reader is None or is_foreign else stored_preprocessing(reader),
        is_foreign=is_foreign,
    )


def _facts(stored: StoredValues) -> dict[str, Any]:
    values = stored.values.get("facts")
    stored.require(isinstance(values, dict), "facts", "an object")
    facts = StoredValues(dict(values or {}))
    return {name: facts.shape(SHAPE) if name == SHAPE else facts.whole(name, 1, LARGEST_FACT) for name in facts.values}


def _type(stored: StoredValues) -> TensorType:
    stored.require(stored.values.get("dtype") in [*TYPES], "dtype", ", ".join(TYPES))
    return TensorType(TYPES[stored.text("dtype")], stored.shape("shape"))
