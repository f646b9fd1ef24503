"""Batch normalisation, in one process and over all ranks, and layer normalisation, as in r1.2."""

from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar, NoReturn

from runner import ops
from runner.common.initializer import Initial, initializer
from runner.communication import settings
from runner.communication.world import world
from runner.core.interpreter import current
from runner.core.values import Parameter, Value
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.ops.array import require
from runner.validation.arguments import above, at_least, at_most, flag, one_of, whole


class BatchNormalization(Cell):
    """Base: normalises each channel to mean `beta` and deviation `gamma`, which are trainable if `affine`.

    Training uses mean and variance of the batch and updates the moving averages (`momentum` is the weight of the old
    value); inference uses the moving averages. `use_batch_statistics` True or False fixes which are used; inference
    never updates them. With gamma and beta frozen, training too uses the moving averages, and keeps them. All four
    parameters have shape (num_features,). In data-parallel training mean and variance are those of the batches of
    all ranks, unless the setting `sync_batch_norm` is off; in inference those of this rank.
    Raises ConfigError for arguments out of range, ShapeError for an x with other axes.
    """

    axes: ClassVar[tuple[str, ...]]  # the allowed axes of x

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
        self.num_features, self.eps, self.momentum = num_features, eps, 1.0 - momentum  # as MindSpore shows it
        shape = (num_features,)
        self.moving_mean = Parameter(initializer(moving_mean_init, shape), "moving_mean", requires_grad=False)
        self.moving_variance = Parameter(initializer(moving_var_init, shape), "moving_variance", requires_grad=False)
        self.gamma = Parameter(initializer(gamma_init, shape), "gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, shape), "beta", requires_grad=affine)
        # The operator's momentum is the weight of the new value. In decimals, since 1 - 0.9 is 0.09999999999999998.
        weight = float(1 - Decimal(repr(float(momentum))))
        self.bn_train = ops.BatchNorm(True, eps, weight)
        self.bn_infer = ops.BatchNorm(False, eps)
        self.bn_synchronous = ops.SyncBatchNorm(True, eps, weight)
        self.synchronous = False  # whatever the settings are

    @property
    def learns(self) -> bool:
        """Whether it is in training, and not frozen."""
        return self.training and not (self.gamma.frozen and self.beta.frozen)

    def construct(self, x: Value) -> Value:
        learns = self.learns
        of_batch = learns if self.use_batch_statistics is None else self.use_batch_statistics
        over_all = learns and world().size > 1 and (self.synchronous or settings.synchronizes_batch_norm())
        op = self.bn_infer if not of_batch else self.bn_synchronous if over_all else self.bn_train
        if x.ndim not in [axes.count(",") + 1 for axes in self.axes]:
            error = ShapeError(f"{type(self).__name__} takes {' or '.join(self.axes)}", x=x.type)
            raise current().add_location(error, op, (x,))
        moving = self.moving_mean, self.moving_variance
        output, *updated = op(x, self.gamma, self.beta, *moving)[:3]
        if of_batch and learns:
            self.assign(self.moving_mean, updated[0])
            self.assign(self.moving_variance, updated[1])
        return output

    def extend_repr(self) -> str:
        names = "num_features", "eps", "momentum", "gamma", "beta", "moving_mean", "moving_variance"
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class BatchNorm1d(BatchNormalization):
    """Batch normalisation of (N, C)."""

    axes = ("(N, C)",)


class BatchNorm2d(BatchNormalization):
    """Batch normalisation of (N, C, H, W). `data_format` can only be NCHW, as on CPUs in MindSpore."""

    axes = ("(N, C, H, W)",)

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
        data_format: str = "NCHW",
    ) -> None:
        one_of({"layer": type(self).__name__}, ("NCHW",), data_format=data_format)
        initial = gamma_init, beta_init, moving_mean_init, moving_var_init
        super().__init__(num_features, eps, momentum, affine, *initial, use_batch_statistics)


class BatchNorm3d(Cell):
    """Batch normalisation of (N, C, D, H, W), by its child `bn2d` with depth and height as one axis."""

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
        data_format: str = "NCDHW",
    ) -> None:
        super().__init__()
        require(data_format == "NCDHW", "unknown data_format", given=data_format, allowed="NCDHW")
        initial = gamma_init, beta_init, moving_mean_init, moving_var_init
        self.bn2d = BatchNorm2d(num_features, eps, momentum, affine, *initial, use_batch_statistics)
        self.reshape = ops.Reshape()

    def construct(self, x: Value) -> Value:
        require(x.ndim == 5, "BatchNorm3d takes (N, C, D, H, W)", x=x.type)
        images = self.reshape(x, (*x.shape[:2], x.shape[2] * x.shape[3], x.shape[4]))
        return self.reshape(self.bn2d(images), x.shape)


class SyncBatchNorm(BatchNormalization):
    """Batch normalisation of (N, C) or (N, C, H, W), in training with mean and variance over all ranks.

    `process_groups`, lists of ranks, may only be one group of all ranks, in MindSpore also several groups. Raises
    ConfigError for others, when a training step runs.
    """

    axes = ("(N, C)", "(N, C, H, W)")

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
        process_groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        initial = gamma_init, beta_init, moving_mean_init, moving_var_init
        super().__init__(num_features, eps, momentum, affine, *initial, use_batch_statistics)
        self.synchronous = True
        self.process_groups = process_groups

    def construct(self, x: Value) -> Value:
        size = world().size
        if (
            size > 1
            and self.process_groups is not None
            and [sorted(g) for g in self.process_groups] != [[*range(size)]]
        ):
            _unsupported_groups(self, process_groups=self.process_groups, allowed=f"{[[*range(size)]]}, or None")
        return super().construct(x)


class GlobalBatchNorm(BatchNormalization):
    """As `SyncBatchNorm`, with the size of groups of ranks instead of the groups.

    With several ranks, `device_num_each_group` must be their number. Raises ConfigError otherwise, when a training
    step runs.
    """

    axes = ("(N, C)", "(N, C, H, W)")

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
        device_num_each_group: int = 2,
    ) -> None:
        initial = gamma_init, beta_init, moving_mean_init, moving_var_init
        super().__init__(num_features, eps, momentum, affine, *initial, use_batch_statistics)
        whole({"layer": type(self).__name__}, 1, device_num_each_group=device_num_each_group)
        self.synchronous = True
        self.device_num_each_group = device_num_each_group

    def construct(self, x: Value) -> Value:
        if (size := world().size) > 1 and self.device_num_each_group != size:
            _unsupported_groups(self, device_num_each_group=self.device_num_each_group, allowed=size)
        return super().construct(x)


def _unsupported_groups(layer: Cell, **rows: object) -> NoReturn:
    what = "statistics of some of the ranks are not supported"
    raise ConfigError(what, layer=type(layer).__name__, **rows, ranks=world().size)


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
        self.normalized_shape = tuple(normalized_shape)
        self.gamma = Parameter(initializer(gamma_init, normalized_shape), "gamma")
        self.beta = Parameter(initializer(beta_init, normalized_shape), "beta")
        self.layer_norm = ops.LayerNorm(begin_norm_axis, begin_params_axis, float(epsilon))

    def construct(self, x: Value) -> Value:
        return self.layer_norm(x, self.gamma, self.beta)[0]

    def extend_repr(self) -> str:
        norm = self.layer_norm
        axes = f"begin_norm_axis={norm.begin_norm_axis}, begin_params_axis={norm.begin_params_axis}"
        return f"normalized_shape={self.normalized_shape}, {axes}, gamma{self.gamma}, beta={self.beta}"  # sic
