"""Batch normalisation layers, with the signatures and defaults of r1.2 (spec section 8.2)."""

from decimal import Decimal
from typing import ClassVar

from runner import ops
from runner.common.initializer import Initial, initializer
from runner.core.primitive import current
from runner.core.value import Parameter, Value
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.validation.arguments import above, at_least, at_most, flag, whole

__all__ = ["BatchNorm1d", "BatchNorm2d", "LayerNorm"]


class BatchNormalization(Cell):
    """Base: normalises each channel to mean `beta` and deviation `gamma`, which are trainable if `affine`.

    Training uses mean and variance of the batch and updates the moving averages (`momentum` is the weight of the old
    value); inference uses the moving averages. `use_batch_statistics` True or False fixes which are used; inference
    never updates them. All four parameters have shape (num_features,).
    Raises ConfigError for arguments out of range, ShapeError for an x with other axes.
    """

    axes: ClassVar[str]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        gamma_init: Initial = "ones",
        beta_init: Initial = "zeros",
        moving_mean_init: Initial = "zeros",
        moving_var_init: Initial = "ones",
        use_batch_statistics: bool | None = None,
    ) -> None:
        super().__init__()
        where = {"layer": type(self).__name__}
        whole({"layer": type(self).__name__}, 1, num_features=num_features)
        above(where, 0.0, eps=eps)
        at_least(where, 0.0, momentum=momentum)
        at_most(where, 1.0, eps=eps, momentum=momentum)
        flag(where, affine=affine)
        if use_batch_statistics is not None:
            flag(where, use_batch_statistics=use_batch_statistics)
        self.use_batch_statistics = use_batch_statistics
        shape = (num_features,)
        self.moving_mean = Parameter(initializer(moving_mean_init, shape), "moving_mean", requires_grad=False)
        self.moving_variance = Parameter(initializer(moving_var_init, shape), "moving_variance", requires_grad=False)
        self.gamma = Parameter(initializer(gamma_init, shape), "gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, shape), "beta", requires_grad=affine)
        # The operator's momentum is the weight of the new value. In decimals, since 1 - 0.9 is 0.09999999999999998.
        self.bn_train = ops.BatchNorm(True, eps, float(1 - Decimal(repr(float(momentum)))))
        self.bn_infer = ops.BatchNorm(False, eps)

    def construct(self, x: Value) -> Value:
        of_batch = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        op = self.bn_train if of_batch else self.bn_infer
        if x.ndim != self.axes.count(",") + 1:
            raise current().add_location(ShapeError(f"{type(self).__name__} takes {self.axes}", x=x.type), op, (x,))
        moving = [self._latest(self.moving_mean), self._latest(self.moving_variance)]
        output: Value
        output, *updated, _, _ = op(x, self.gamma, self.beta, *moving)
        if of_batch and self.training:
            self.assign(self.moving_mean, updated[0])
            self.assign(self.moving_variance, updated[1])
        return output

    def _latest(self, moving: Parameter) -> Value:
        """The value after earlier uses of this layer in the same step."""
        return current().updates.get(moving, moving)


class BatchNorm1d(BatchNormalization):
    """Batch normalisation of (N, C)."""

    axes = "(N, C)"


class BatchNorm2d(BatchNormalization):
    """Batch normalisation of (N, C, H, W)."""

    axes = "(N, C, H, W)"


class LayerNorm(Cell):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, over the axes of x from `begin_norm_axis`.

    gamma and beta: `normalized_shape`, which must be the shape of x from `begin_params_axis`.
    """

    def __init__(
        self,
        normalized_shape: tuple[int, ...] | list[int],
        begin_norm_axis: int = -1,
        begin_params_axis: int = -1,
        gamma_init: Initial = "ones",
        beta_init: Initial = "zeros",
        epsilon: float = 1e-7,
    ) -> None:
        super().__init__()
        fits = isinstance(normalized_shape, tuple | list) and len(normalized_shape) > 0
        if not fits or any(type(n) is not int or n < 1 for n in normalized_shape):
            raise ConfigError(
                "normalized_shape must be a tuple of positive ints", layer="LayerNorm", given=repr(normalized_shape)
            )
        above({"layer": "LayerNorm"}, 0.0, epsilon=epsilon)
        self.gamma = Parameter(initializer(gamma_init, normalized_shape), "gamma")
        self.beta = Parameter(initializer(beta_init, normalized_shape), "beta")
        self.layer_norm = ops.LayerNorm(begin_norm_axis, begin_params_axis, float(epsilon))

    def construct(self, x: Value) -> Value:
        output: Value = self.layer_norm(x, self.gamma, self.beta)[0]
        return output
