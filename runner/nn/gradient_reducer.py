"""Gradients of all ranks, bucket by bucket, between the gradients of one rank and its optimizer."""

from collections.abc import Sequence

from runner import dtype as dt, ops
from runner.communication import auto_parallel
from runner.communication.fusion import buckets
from runner.communication.joining import join
from runner.communication.world import world
from runner.core.value import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell


class DistributedGradReducer(Cell):
    """(gradients) to their sums over all ranks, in Float32; with `mean`, to their means.

    `indices` are the parameters at which another bucket begins (None: one bucket for all). Source: the cell of this
    name in r1.2, which has no buckets unless it is told of them.
    """

    def __init__(
        self, parameters: Sequence[Parameter], mean: bool = True, indices: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(auto_prefix=False)
        self.buckets = buckets(len(parameters), indices)[::-1]  # the gradients of the last layers are there first
        self.all_reduce = ops.AllReduce("mean" if mean else "sum")
        self._there: dict[int, Value] = {}

    def construct(self, gradients: Sequence[Value]) -> list[Value]:
        self._there.clear()
        reduced = list(gradients)
        for bucket in self.buckets:
            made = self.all_reduce(*[_in_float32(gradients[k]) for k in bucket])
            for k, value in zip(bucket, made if len(bucket) > 1 else (made,), strict=True):
                reduced[k] = value if value.dtype is gradients[k].dtype else value.astype(gradients[k].dtype)
        return reduced

    def ready(self, number: int, gradient: Value) -> None:
        """A gradient is complete. When it was the last one of its bucket, PyNative mode sends the bucket at once, and
        goes on with the others meanwhile."""
        if not isinstance(gradient, Tensor) or gradient.dtype is not dt.float32:
            return
        self._there[number] = gradient
        bucket = next(bucket for bucket in self.buckets if number in bucket)
        if all(k in self._there for k in bucket):
            world().begin([self._there[k].data for k in bucket])  # type: ignore[attr-defined]


def _in_float32(gradient: Value) -> Value:
    return gradient if gradient.dtype is dt.float32 else gradient.astype(dt.float32)


def reducer_of_context(parameters: Sequence[Parameter]) -> DistributedGradReducer:
    """The reducer that `context.set_auto_parallel_context` asks for; it joins the other processes of mpirun.

    Raises ConfigError when device_num or global_rank are not those of mpirun.
    """
    settings, joined = auto_parallel.settings(), join()
    for name, found in (("device_num", joined.size), ("global_rank", joined.rank)):
        if settings[name] not in (None, found):
            rows = {name: settings[name], "found": found, "repair": "leave it out, or mpirun -n N"}
            raise ConfigError(f"{name} is not that of mpirun", **rows)
    return DistributedGradReducer(parameters, settings["gradients_mean"], settings["all_reduce_fusion_config"])


def broadcast(parameters: Sequence[Parameter]) -> None:
    """Give the parameters of all ranks the values that they have on the first one."""
    for parameter, array in zip(parameters, world().shared_arrays([p.data for p in parameters]), strict=True):
        parameter.set_data(array)
