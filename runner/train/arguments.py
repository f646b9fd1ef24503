"""Checks of what `Model` is asked to do."""

from runner.core.observers import ValueObserver
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError


def check_train_arguments(
    epoch: int, train_dataset: Dataset, dataset_sink_mode: bool, sink_size: int, max_steps: int | None
) -> None:
    """Raise ConfigError unless epoch and max_steps are positive ints and sink_size is -1 or positive."""
    if type(epoch) is not int or epoch < 1:
        raise ConfigError("epoch must be a positive whole number", given=repr(epoch))
    check_sink_mode(dataset_sink_mode)
    if type(sink_size) is not int or (sink_size < 1 and sink_size != -1):
        raise ConfigError("sink_size must be -1 or positive", given=repr(sink_size))
    if max_steps is not None and (type(max_steps) is not int or max_steps < 1):
        raise ConfigError("max_steps must be None or a positive whole number", given=repr(max_steps))
    if not isinstance(train_dataset, Dataset):
        raise ConfigError("train_dataset must be a dataset of runner.dataset", given=repr(train_dataset))


def check_sink_mode(dataset_sink_mode: bool) -> None:
    """Raise ConfigError unless it is a bool."""
    if type(dataset_sink_mode) is not bool:
        raise ConfigError("dataset_sink_mode must be a bool", given=repr(dataset_sink_mode))


def check_dump(observer: ValueObserver, sunk: bool) -> None:
    """Raise ConfigError when a synchronous dump meets data sinking."""
    if sunk and not observer.supports_sinks:
        raise ConfigError(
            "a synchronous dump needs every step by itself",
            dataset_sink_mode="true",
            repair="dataset_sink_mode=False, or an asynchronous dump, which works while sinking",
        )
