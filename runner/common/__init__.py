"""Import paths of the reference: `runner.common.initializer`, `Tensor` and `Parameter`."""

from runner import ops  # noqa: F401  registers the arithmetic of tensors (`x + y`)
from runner.core.value import Parameter, Tensor

__all__ = ["Parameter", "Tensor"]
