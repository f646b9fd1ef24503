"""Collectives: operators that communicate with all ranks of a data-parallel run, such as `AllReduce`.

PyNative mode computes them like any operator. onnxruntime has none on the CPU, so a graph is split at its collectives:
the parts before and after are separate programs, and the host runs the kernels in between
(`runner/compile/split_at_collectives.py`).
"""

from runner.core.primitive import Primitive


class Collective(Primitive):
    """Base of operators whose kernel communicates with other ranks. Subclasses are declared with `@primitive`."""
