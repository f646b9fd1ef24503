"""Rules of branches whose condition is known when the network is imported."""

from typing import Any

import numpy as np

from runner.importer.node_call import NodeCall
from runner.importer.table import onnx_operator


@onnx_operator("If", static=("condition",))
def if_(call: NodeCall, condition: np.ndarray) -> tuple[Any, ...]:
    """One of two graphs; the condition is known at import."""
    return call.inner(call.attribute("then_branch" if condition else "else_branch"))
