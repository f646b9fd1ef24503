"""The preprocessing that a run has stored."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.dataset.preprocessing import Preprocessing
from runner.dataset.readers.array_preprocessing import ArrayPreprocessing
from runner.dataset.readers.catalog_images import CatalogImages
from runner.dataset.readers.csv_table import TablePreprocessing
from runner.dataset.readers.image_folder import ImagePreprocessing
from runner.host.json import StoredValues

__all__ = ["stored_preprocessing"]

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
