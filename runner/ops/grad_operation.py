"""`GradOperation`: the gradient of a network or function, as a function of the same operands."""

from collections.abc import Callable, Sequence
from typing import Any

from runner.core.eager import Eager
from runner.core.gradients import differentiate
from runner.core.operators import is_nested
from runner.core.structure import flatten
from runner.core.values import Parameter
from runner.errors import ConfigError
from runner.validation.keywords import KeywordNames

__all__ = ["GradOperation"]


def _run_step(function: "GradientFunction", inputs: tuple[Any, ...], sens: dict[str, Any]) -> Any:
    with Eager() as interpreter:
        outputs = function.compute(inputs, sens)
        interpreter.commit()
    return outputs


# Executes a gradient that is called outside of networks; `runner/nn/calls.py` replaces it by the mode of the context.
EXECUTOR: list[Callable[["GradientFunction", tuple[Any, ...], dict[str, Any]], Any]] = [_run_step]


class GradOperation(KeywordNames):
    """`GradOperation(...)(network)(*inputs)`: gradients of the results of a cell or function, summed over elements.

    By default that of the first input. `get_all`: a tuple of those of all tensors among the inputs. `get_by_list`: a
    tuple of those of the parameters in `GradOperation(...)(network, parameters)`, with `get_all` the pair of both
    tuples. `sens_param`: the last input (or the keyword `sens`) is not one of the network but the factor of its
    results, of their structure and shapes. The function that is returned can be differentiated again. Inputs that are
    no floats have gradients of 0.
    """

    def __init__(self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False) -> None:
        for name, value in (("get_all", get_all), ("get_by_list", get_by_list), ("sens_param", sens_param)):
            if not isinstance(value, bool):
                raise ConfigError("a setting of GradOperation must be true or false", **{name: repr(value)})
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param

    def __call__(self, fn: Callable[..., Any], weights: Any = None) -> "GradientFunction":
        """The gradient function. Raises ConfigError when `fn` is no function, or `weights` are no parameters."""
        if not callable(fn):
            raise ConfigError("GradOperation differentiates a cell or a function", given=type(fn).__name__)
        return GradientFunction(self, fn, self._parameters(fn, weights))

    def _parameters(self, fn: Any, weights: Any) -> tuple[Parameter, ...]:
        if not self.get_by_list:
            return ()
        if weights is None:
            weights = getattr(fn, "trainable_params", tuple)()
        elif hasattr(weights, "trainable_params"):
            weights = weights.trainable_params()
        given = (weights,) if isinstance(weights, Parameter) else tuple(weights)
        if not given or not all(isinstance(parameter, Parameter) for parameter in given):
            kinds = ", ".join(sorted({type(x).__name__ for x in given})) or "none"
            repair = "grad(network, ParameterTuple(network.trainable_params()))"
            raise ConfigError("get_by_list needs the parameters to differentiate", given=kinds, repair=repair)
        return given


class GradientFunction:
    """The gradients of `function`, as `operation` selects them."""

    def __init__(
        self, operation: GradOperation, function: Callable[..., Any], parameters: tuple[Parameter, ...]
    ) -> None:
        self.operation, self.function, self.parameters = operation, function, parameters

    @property
    def key(self) -> tuple[Any, ...]:
        """What distinguishes it from the other gradient functions of the same function."""
        options = self.operation
        return options.get_all, options.get_by_list, options.sens_param, *self.parameters

    def __call__(self, *inputs: Any, **sens: Any) -> Any:
        return self.compute(inputs, sens) if is_nested() else EXECUTOR[0](self, inputs, sens)

    def compute(self, inputs: Sequence[Any], sens: dict[str, Any]) -> Any:
        """The gradients, in operators. Raises ConfigError for a missing `sens`, and without tensors."""
        operands, factor = self._split(tuple(inputs), sens)
        found = differentiate(self.function, operands, self.parameters, factor)
        if self.operation.get_by_list and not self.operation.get_all:
            return found.parameters
        selected = self._of_inputs(operands, found.operands)
        return (selected, found.parameters) if self.operation.get_by_list else selected

    def _split(self, inputs: tuple[Any, ...], sens: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        if not self.operation.sens_param:
            if sens:
                raise ConfigError("unknown argument of a gradient", given=", ".join(sens), repair="sens_param=True")
            return inputs, None
        if "sens" in sens:
            return inputs, sens["sens"]
        if not inputs:
            raise ConfigError("with sens_param the last argument is the factor of the gradient", given="nothing")
        return inputs[:-1], inputs[-1]

    def _of_inputs(self, operands: Sequence[Any], gradients: Sequence[Any]) -> Any:
        pairs = zip(operands, gradients, strict=True)
        of_tensors = [gradient for operand, gradient in pairs if flatten(operand).values]
        if not of_tensors:
            given = ", ".join(type(x).__name__ for x in operands) or "no inputs"
            raise ConfigError("a gradient needs a tensor among the inputs", given=given, repair="get_by_list=True")
        return tuple(of_tensors) if self.operation.get_all else of_tensors[0]
