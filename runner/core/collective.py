"""Collectives: operators that need all ranks of a data-parallel run, such as `AllReduce`.

PyNative mode computes them like any operator. onnxruntime has none on the CPU, so a graph is cut there: what comes
before and what comes after are programs of their own, and the host runs the kernels in between
(`runner/compile/split_at_collectives.py`).
"""

from runner.core.primitive import Primitive


class Collective(Primitive):
    """Base of operators whose kernel exchanges with other ranks. Subclasses are declared with `@primitive`."""
