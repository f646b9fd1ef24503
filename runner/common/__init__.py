"""Addresses of the reference: `runner.common.initializer`, `Tensor` and `Parameter`."""

import runner.ops  # noqa: F401  the arithmetic of handles (`x + y`) is theirs
from runner.core.value import Parameter, Tensor

__all__ = ["Parameter", "Tensor"]
