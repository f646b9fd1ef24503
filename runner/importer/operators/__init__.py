"""The rules of ONNX operators, by kind."""

from runner.importer.operators import (
    activation,
    arithmetic,
    control,
    convolution,
    linear,
    normalization,
    padding,
    pooling,
    reduction,
    shape,
)
from runner.importer.table import RULES

__all__ = [
    "RULES",
    "activation",
    "arithmetic",
    "control",
    "convolution",
    "linear",
    "normalization",
    "padding",
    "pooling",
    "reduction",
    "shape",
]
