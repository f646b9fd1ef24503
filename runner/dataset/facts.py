"""What a network may need to know about a dataset."""

from typing import Any

from runner.dataset.pipeline import Dataset


def facts_of(data: Dataset) -> dict[str, Any]:
    shape = data.column_types()[0].shape
    found: dict[str, Any] = {"input_shape": shape, "num_classes": 10}
    if len(shape) == 3:
        found["num_channels"] = shape[0]
        found["image_size"] = shape[-1]
    return found
