"""The preprocessing that a run has stored, of any reader: the one module that knows and loads all of them."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.dataset.catalog import CatalogImages
from runner.dataset.pipeline import Preprocessing
from runner.dataset.readers.arrays import ArrayPreprocessing
from runner.dataset.readers.csv import TablePreprocessing
from runner.dataset.readers.image_folder import ImagePreprocessing
from runner.host.json import StoredValues

READERS: dict[str, Callable[[Mapping[str, Any]], Preprocessing]] = {
    "catalog": CatalogImages.from_json,
    "image_folder": ImagePreprocessing.from_json,
    "npz": ArrayPreprocessing.from_json,
    "csv": TablePreprocessing.from_json,
}


def stored_preprocessing(values: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing with these values of JSON, from `Preprocessing.as_json`.

    Raises DataError for values of another form: the file may be damaged.
    """
    reader = values.get("reader")
    StoredValues(values).require(isinstance(reader, str) and reader in READERS, "reader", ", ".join(READERS))
    return READERS[str(reader)](values)
