"""Import paths of MindSpore: `runner.common.initializer`, `Tensor`, `Parameter` and `ParameterTuple`."""

from runner import ops  # noqa: F401  registers the arithmetic of tensors (`x + y`)
from runner.core.values import syntax
from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
syntax.initial = lambda *given: __getattr__("initializer").initializer(*given)
