"""Validates the arguments of `Model`'s methods."""

from runner.core.graph import ValueObserver
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError
from runner.validation.arguments import flag, whole


def check_train_arguments(
    epoch: int, train_dataset: Dataset, dataset_sink_mode: bool, sink_size: int, max_steps: int | None
) -> None:
    """Raise ConfigError unless epoch and max_steps are positive ints and sink_size is -1 or positive."""
    whole({}, 1, epoch=epoch)
    flag({}, dataset_sink_mode=dataset_sink_mode)
    if type(sink_size) is not int or (sink_size < 1 and sink_size != -1):
        raise ConfigError("sink_size must be -1 or a whole number of at least 1", given=repr(sink_size))
    if max_steps is not None:
        whole({}, 1, max_steps=max_steps)
    if not isinstance(train_dataset, Dataset):
        raise ConfigError("train_dataset must be a dataset of runner.dataset", given=repr(train_dataset))


def epoch_steps(dataset: Dataset, dataset_sink_mode: bool, sink_size: int) -> int:
    """The number of steps of an epoch."""
    return dataset.get_dataset_size() if sink_size == -1 or not dataset_sink_mode else sink_size


def total_steps(epoch: int, steps: int, max_steps: int | None) -> int:
    """The number of steps of a training of `epoch` epochs of `steps` steps."""
    return epoch * steps if max_steps is None else min(max_steps, epoch * steps)


def check_dump(observer: ValueObserver, sunk: bool) -> None:
    """Raise ConfigError for a synchronous dump with data sinking."""
    if sunk and not observer.supports_sinks:
        repair = "dataset_sink_mode=False, or an asynchronous dump, which works while sinking"
        raise ConfigError("a synchronous dump needs separate steps", dataset_sink_mode="true", repair=repair)
