"""Reduction of gradients over all ranks, in buckets, before the optimizer."""

from collections.abc import Sequence

from runner import dtype as dt, ops
from runner.communication import settings as auto_parallel
from runner.communication.settings import buckets
from runner.communication.world import join, world
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell

__all__ = ["DistributedGradReducer"]


class DistributedGradReducer(Cell):
    """(gradients) to their sums over all ranks, computed in Float32; with `mean` to their means.

    `indices` are the parameters that start another bucket (None: one bucket for all). Source: the cell of this name in
    r1.2, whose default is one bucket too. `degree`, the number of ranks that a mean divides by, must be theirs;
    `fusion_type` has no effect.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        mean: bool = True,
        degree: int | None = None,
        fusion_type: int = 1,
        *,
        indices: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(auto_prefix=False)
        parameters = tuple(parameters)
        if degree not in (None, world().size):
            rows = {"degree": degree, "ranks": world().size, "repair": "leave it out, or mpirun -n N"}
            raise ConfigError("degree is not the number of ranks", **rows)
        self.buckets = buckets(len(parameters), indices)[::-1]  # the gradients of the last layers are ready first
        self.all_reduce = ops.AllReduce("mean" if mean else "sum")
        self._ready: dict[int, Value] = {}

    def construct(self, gradients: Sequence[Value]) -> list[Value]:
        self._ready.clear()
        reduced = list(gradients)
        for bucket in self.buckets:
            sums = self.all_reduce(*[_in_float32(gradients[k]) for k in bucket])
            for k, value in zip(bucket, sums if len(bucket) > 1 else (sums,), strict=True):
                reduced[k] = value if value.dtype is gradients[k].dtype else value.astype(gradients[k].dtype)
        return reduced

    def on_gradient(self, index: int, gradient: Value) -> None:
        """A gradient is complete. PyNative mode starts to reduce a bucket with its last gradient, while it computes the
        others."""
        if not isinstance(gradient, Tensor) or gradient.dtype is not dt.float32:
            return
        self._ready[index] = gradient
        bucket = next(bucket for bucket in self.buckets if index in bucket)
        if all(k in self._ready for k in bucket):
            world().begin([self._ready[k].array for k in bucket])  # type: ignore[attr-defined]


def _in_float32(gradient: Value) -> Value:
    return gradient if gradient.dtype is dt.float32 else gradient.astype(dt.float32)


def reducer_from_context(parameters: Sequence[Parameter]) -> DistributedGradReducer:
    """The reducer for the settings of `context.set_auto_parallel_context`; connects to the other processes of mpirun.

    Raises ConfigError when device_num or global_rank differ from those of mpirun.
    """
    settings, joined = auto_parallel.settings(), join()
    for name, actual in (("device_num", joined.size), ("global_rank", joined.rank)):
        if settings[name] not in (None, actual):
            rows = {name: settings[name], "found": actual, "repair": "leave it out, or mpirun -n N"}
            raise ConfigError(f"{name} is not that of mpirun", **rows)
    return DistributedGradReducer(parameters, settings["gradients_mean"], indices=settings["all_reduce_fusion_config"])


def broadcast(parameters: Sequence[Parameter]) -> None:
    """Set the parameters of all ranks to the values of the first rank."""
    for parameter, array in zip(parameters, world().shared_arrays([p.array for p in parameters]), strict=True):
        parameter.set_data(array)
