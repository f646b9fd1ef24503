"""The rules of ONNX operators, by kind; each module fills `RULES`."""

from runner.importer.node_call import RULES as RULES
from runner.importer.rules import (
    convolution as convolution,
    elementwise as elementwise,
    indexing as indexing,
    products as products,
    recurrent as recurrent,
    resizing as resizing,
    shape as shape,
)
