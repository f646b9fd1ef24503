"""`DatasetHelper`: the batches of a dataset for training loops that scripts write themselves."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from runner.core.values import Tensor
from runner.dataset.pipeline import Dataset
from runner.nn.cell import Cell
from runner.train.model import epoch_steps
from runner.types import TensorType
from runner.validation.arguments import flag, whole
from runner.validation.keywords import KeywordNames


class DatasetHelper(KeywordNames):
    """Iterates over the batches of an epoch, each a tuple of tensors.

    With `dataset_sink_mode`, an epoch is `sink_size` batches (-1: the whole dataset), the next one continues where it
    ended, and the network of `connect_network_with_dataset` takes the batches: the iterator yields empty tuples.
    Raises ConfigError for invalid arguments.
    """

    def __init__(
        self, dataset: Dataset, dataset_sink_mode: bool = True, sink_size: int = -1, epoch_num: int = 1
    ) -> None:
        flag({}, dataset_sink_mode=dataset_sink_mode)
        whole({}, 1, epoch_num=epoch_num)
        self.dataset, self.sinks, self.epoch_num = dataset, dataset_sink_mode, epoch_num
        self.steps = epoch_steps(dataset, dataset_sink_mode, sink_size)
        self._next_step = 0
        self._batches: Iterator[Sequence[np.ndarray]] | None = None

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(self.steps):
            yield () if self.sinks else self.next_batch()

    def next_batch(self) -> tuple[Tensor, ...]:
        """The next batch; after the last one of the dataset, the first one of its next epoch."""
        if self._batches is None:
            self._batches = iter(self.dataset.prepared(self.dataset.visits_from(self._next_step)))
        self._next_step += 1
        return tuple(Tensor(array) for array in next(self._batches))

    def sink_size(self) -> int:
        """Batches of an epoch."""
        return self.steps

    def types_shapes(self) -> tuple[list[Any], list[tuple[int, ...]]]:
        """Element types and shapes of the columns."""
        types: Sequence[TensorType] = [TensorType.of(x) for x in next(iter(self.dataset.read(0)))]
        return [x.dtype for x in types], [x.shape for x in types]

    def get_data_info(self) -> tuple[list[Any], list[tuple[int, ...]]]:
        """As `types_shapes`: all batches have the types and shapes of the first one."""
        return self.types_shapes()

    def stop_send(self) -> None:
        """Part of MindSpore's API, without effect: no thread sends data to a device."""

    def continue_send(self) -> None:
        """Part of MindSpore's API, without effect."""

    def release(self) -> None:
        """Close the iterator."""
        self._batches = None


class _ConnectedNetwork(Cell):
    """A network that takes its inputs from a dataset when it is called without any."""

    def __init__(self, network: Cell, helper: DatasetHelper) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.__dict__["helper"] = helper

    def __call__(self, *inputs: Any) -> Any:
        return self.network(*(inputs or self.helper.next_batch()))


def connect_network_with_dataset(network: Cell, dataset_helper: DatasetHelper) -> Cell:
    """The network, which a call without inputs executes with the next batch of the helper."""
    if not dataset_helper.sinks:
        return network
    return _ConnectedNetwork(network, dataset_helper)
