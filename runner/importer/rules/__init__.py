"""The rules of ONNX operators, by kind."""

from runner.importer.node_call import RULES as RULES
from runner.importer.rules import elementwise as elementwise, images as images, sequence as sequence, shape as shape
