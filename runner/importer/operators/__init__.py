"""The rules of ONNX operators, by kind."""

from runner.importer.operators import activation, arithmetic, control, linear, normalization, reduction, shape
from runner.importer.table import RULES

__all__ = ["RULES", "activation", "arithmetic", "control", "linear", "normalization", "reduction", "shape"]
