"""Lamb: adaptive moments with a rate for each layer, for large batches (You et al., 2019)."""

from collections.abc import Sequence

from runner import dtype as dt, ops
from runner.core.values import Parameter, Tensor, Value
from runner.nn.optim.adam import check_decays, with_complement
from runner.nn.optim.optimizer import LearningRate, Optimizer
from runner.nn.optim.parameter_groups import Parameters

__all__ = ["Lamb"]

LARGEST_RATIO = 10.0


class Lamb(Optimizer):
    """w -= learning_rate r (m' / (sqrt(v') + eps) + decay w), with m' and v' the moments of Adam, corrected.

    r = |w| / |m' / sqrt(v' + eps) + decay w|, Euclidean norms over the parameter, is at most 10, and 1 where a norm is
    0. As in r1.2, the norm contains the weight decay of parameters too that are not decayed (`beta`, `gamma`).
    State: `lamb_m.{parameter}`, `lamb_v.{parameter}`, `beta1_power` and `beta2_power`.
    """

    def __init__(
        self,
        params: Parameters,
        learning_rate: LearningRate,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay)
        check_decays(self.where, beta1, beta2, eps)
        self.betas, self.eps = [with_complement(beta) for beta in (beta1, beta2)], float(eps)
        # Powers and no number of the step: they also count inside of a sink, and not the steps that overflow.
        self.beta1_power = Parameter(Tensor(1.0, dt.float32), "beta1_power", requires_grad=False)
        self.beta2_power = Parameter(Tensor(1.0, dt.float32), "beta2_power", requires_grad=False)
        self.moments1, self.moments2 = self.state("lamb_m"), self.state("lamb_v")
        self.sqrt, self.square, self.sum = ops.Sqrt(), ops.Square(), ops.ReduceSum()
        self.select, self.minimum = ops.Select(), ops.Minimum()

    def construct(self, gradients: Sequence[Value]) -> None:
        (beta1, rest1), (beta2, rest2) = self.betas
        powers = self.beta1_power * beta1, self.beta2_power * beta2
        self.assign_all((self.beta1_power, self.beta2_power), powers)
        rows = zip(self.parameters, self.moments1, self.moments2, self.each_lr(), gradients, strict=True)
        for k, (parameter, m, v, rate, gradient) in enumerate(rows):
            gradient = self._centralized(k, gradient)
            first = m * beta1 + gradient * rest1
            second = v * beta2 + self.square(gradient) * rest2
            mean, square = first / (1.0 - powers[0]), second / (1.0 - powers[1])
            ratio = self._ratio(k, gradient, mean / self.sqrt(square + self.eps))
            step = self._decayed(k, mean / (self.sqrt(square) + self.eps))
            self.assign_all((parameter, m, v), (parameter - step * (ratio * rate), first, second))

    def _ratio(self, k: int, gradient: Value, step: Value) -> Value:
        """The trust ratio of parameter `k`, a scalar."""
        parameter, decay = self.parameters[k], self.get_weight_decay(k)
        size, length = self._norm(parameter), self._norm(step + parameter * decay if decay else step)
        is_one = ops.LogicalOr()(size <= 0.0, self._norm(gradient) <= 0.0)
        # Both are chosen before the division: one by 0 would be reported as the first value that is not finite.
        ratio: Value = self.minimum(self.select(is_one, 1.0, size) / self.select(is_one, 1.0, length), LARGEST_RATIO)
        return ratio

    def _norm(self, value: Value) -> Value:
        norm: Value = self.sqrt(self.sum(self.square(value)))
        return norm
