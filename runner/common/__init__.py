"""Addresses of the reference: `runner.common.initializer`, `Tensor` and `Parameter`."""

from runner.core.value import Parameter, Tensor

__all__ = ["Parameter", "Tensor"]
