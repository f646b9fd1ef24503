"""The rules of ONNX operators, by kind."""

from runner.importer.node_call import RULES
from runner.importer.rules import elementwise, images, sequence, shape

__all__ = ["RULES", "elementwise", "images", "sequence", "shape"]
