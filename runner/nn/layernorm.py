"""Normalisation of each sample by itself, with the signature and defaults of r1.2."""

from runner import ops
from runner.common.initializer import initializer
from runner.core.value import Parameter, Value
from runner.errors import ConfigError
from runner.nn.arguments import Init, above
from runner.nn.cell import Cell


class LayerNorm(Cell):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, over the axes of x from `begin_norm_axis` on.

    gamma and beta: `normalized_shape`, which must be the shape of x from `begin_params_axis` on.
    """

    def __init__(
        self,
        normalized_shape: tuple[int, ...] | list[int],
        begin_norm_axis: int = -1,
        begin_params_axis: int = -1,
        gamma_init: Init = "ones",
        beta_init: Init = "zeros",
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
