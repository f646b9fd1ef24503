"""`runner.parallel`: what scripts of MindSpore read and set for several ranks, beyond `context`."""

from collections.abc import Sequence
from typing import Any

from runner.communication import settings
from runner.host.console import note_once

__all__ = ["auto_parallel_context", "get_algo_parameters", "reset_algo_parameters", "set_algo_parameters"]

# Of the search for a strategy of automatic parallelism, which runner does not have.
_DEFAULTS: dict[str, Any] = {
    "fully_use_devices": False,
    "elementwise_op_strategy_follow": False,
    "enable_algo_approxi": False,
    "algo_approxi_epsilon": 0.1,
    "tensor_slice_align_enable": False,
    "tensor_slice_align_size": 16,
}
_parameters = dict(_DEFAULTS)


def set_algo_parameters(
    *,
    fully_use_devices: bool | None = None,
    elementwise_op_strategy_follow: bool | None = None,
    enable_algo_approxi: bool | None = None,
    algo_approxi_epsilon: float | None = None,
    tensor_slice_align_enable: bool | None = None,
    tensor_slice_align_size: int | None = None,
) -> None:
    """Keep parameters of the search of automatic parallelism, which has no effect: runner trains data-parallel."""
    note_once("set_algo_parameters has no effect: runner has data parallelism, which searches no strategy")
    _parameters.update({name: value for name, value in locals().items() if value is not None})


def get_algo_parameters(attr_key: str) -> Any:
    """A parameter of `set_algo_parameters`. Raises KeyError for an unknown name."""
    return _parameters[attr_key]


def reset_algo_parameters() -> None:
    """Restore the defaults."""
    _parameters.update(_DEFAULTS)


class AutoParallelContext:
    """The object behind `set_auto_parallel_context`, for scripts that call its methods."""

    def set_all_reduce_fusion_split_indices(self, indices: Sequence[int], group: str = "") -> None:
        """The setting `all_reduce_fusion_config`. Raises ConfigError."""
        settings.set_auto_parallel_context(all_reduce_fusion_config=list(indices))

    def get_all_reduce_fusion_split_indices(self, group: str = "") -> list[int]:
        """The setting `all_reduce_fusion_config`."""
        return list(settings.get_auto_parallel_context("all_reduce_fusion_config") or ())

    def get_parallel_mode(self) -> str:
        """The setting `parallel_mode`."""
        return _get_parallel_mode()

    def get_device_num(self) -> int:
        """The number of ranks."""
        return _get_device_num()

    def get_gradients_mean(self) -> bool:
        """The setting `gradients_mean`."""
        return _get_gradients_mean()

    def set_gradients_mean(self, gradients_mean: bool) -> None:
        """Set `gradients_mean`. Raises ConfigError."""
        settings.set_auto_parallel_context(gradients_mean=gradients_mean)


def auto_parallel_context() -> AutoParallelContext:
    """The settings of several ranks."""
    return AutoParallelContext()


# Private names that own training cells of the release's tutorials import.


def _get_parallel_mode() -> str:
    mode: str = settings.get_auto_parallel_context("parallel_mode")
    return mode


def _get_device_num() -> int:
    number: int = settings.get_auto_parallel_context("device_num")
    return number


def _get_global_rank() -> int:
    rank: int = settings.get_auto_parallel_context("global_rank")
    return rank


def _get_gradients_mean() -> bool:
    mean: bool = settings.get_auto_parallel_context("gradients_mean")
    return mean


def _get_parameter_broadcast() -> bool:
    broadcast: bool = settings.get_auto_parallel_context("parameter_broadcast")
    return broadcast
