"""Cells that return gradients, for training loops that are not `Model.train`."""

from typing import Any

from runner import ops
from runner.core.values import Parameter, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.ops.composite import assign
from runner.validation.arguments import flag


class ForwardValueAndGrad(Cell):
    """Inputs of a network to its result and gradients, which `ops.GradOperation` describes.

    `weights` are the parameters of `get_by_list` (default: the trainable ones of the network). With `sens_param` the
    last input is the factor of the result, of its shape. Source: the cell of this name in r1.2.
    """

    def __init__(
        self,
        network: Cell,
        weights: Any = None,
        get_all: bool = False,
        get_by_list: bool = False,
        sens_param: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        if not callable(network):
            raise ConfigError("ForwardValueAndGrad needs a network", given=type(network).__name__)
        flag({"cell": "ForwardValueAndGrad"}, get_all=get_all, get_by_list=get_by_list, sens_param=sens_param)
        self.network, self.weights = network, weights
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param
        self.grad = ops.GradOperation(get_all=get_all, get_by_list=get_by_list, sens_param=sens_param)

    def construct(self, *inputs: Any) -> tuple[Any, Any]:
        loss = self.network(*(inputs[:-1] if self.sens_param else inputs))
        return loss, self.grad(self.network, self.weights)(*inputs)


class WithGradCell(Cell):
    """Inputs, and with a `loss_fn` the label as the last one, to the gradients of the trainable parameters.

    `sens` is the factor of the result: a tensor of its shape, or a number. Source: the cell of this name in r1.2.
    """

    def __init__(self, network: Cell, loss_fn: Cell | None = None, sens: Any = None) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss_fn, self.sens = network, loss_fn, sens
        self.weights = tuple(network.trainable_params())
        self.grad = ops.GradOperation(get_by_list=True, sens_param=sens is not None)

    def construct(self, *inputs: Any) -> Any:
        differentiated = self.network if self.loss_fn is None else self._loss
        sens = () if self.sens is None else (self.sens,)
        return self.grad(differentiated, self.weights)(*inputs, *sens)

    def _loss(self, *inputs: Any) -> Value:
        assert self.loss_fn is not None
        *data, label = inputs
        result: Value = self.loss_fn(self.network(*data), label)
        return result


class ParameterUpdate(Cell):
    """Assigns a parameter the operand, a tensor of its shape and type, and returns it. Source: r1.2."""

    def __init__(self, param: Parameter) -> None:
        super().__init__(auto_prefix=False)
        if not isinstance(param, Parameter):
            raise ConfigError("ParameterUpdate needs a Parameter", given=type(param).__name__)
        self._param = param

    def construct(self, x: Any) -> Value:
        return assign(self._param, x)
