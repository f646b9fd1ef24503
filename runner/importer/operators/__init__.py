"""The rules of ONNX operators, by kind."""

from runner.importer.operators import (
    activation,
    arithmetic,
    control,
    convolution,
    einsum,
    grid_sample,
    indexing,
    linear,
    normalization,
    order,
    padding,
    pooling,
    recurrent,
    reduction,
    resizing,
    scatter,
    shape,
)
from runner.importer.table import RULES

__all__ = [
    "RULES",
    "activation",
    "arithmetic",
    "control",
    "convolution",
    "einsum",
    "grid_sample",
    "indexing",
    "linear",
    "normalization",
    "order",
    "padding",
    "pooling",
    "recurrent",
    "reduction",
    "resizing",
    "scatter",
    "shape",
]
