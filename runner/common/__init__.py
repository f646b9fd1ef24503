"""Import paths of the reference: `runner.common.initializer`, `Tensor` and `Parameter`."""

from functools import partial

from runner import ops  # noqa: F401  registers the arithmetic of tensors (`x + y`)
from runner.core.value import Parameter, Tensor
from runner.host.lazy import reference_attribute

__all__ = ["Parameter", "Tensor"]
__getattr__ = partial(reference_attribute, __name__)
