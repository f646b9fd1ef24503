"""What scripts do with networks outside of `Model`: compile them, export them, feed them from a dataset.

`_executor` is that of `common.api`, which tests and benchmarks of r1.2 use; `export` writes a network as a file for
other programs; `DatasetHelper` has the batches of a dataset for training loops that scripts write themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from runner import compile as compiler, context
from runner.core.values import Tensor
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError, known_names
from runner.host.console import note_once
from runner.host.files import write_atomically
from runner.nn.cell import Cell
from runner.nn.steps import FunctionCell
from runner.train.model import epoch_steps, inference
from runner.types import TensorType
from runner.validation.arguments import flag, whole
from runner.validation.rules import KeywordNames


class Executor:
    """Compiles networks in graph mode, whatever mode the context has."""

    def __init__(self) -> None:
        self._phases: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def compile(
        self,
        obj: Cell | Callable[..., Any],
        *args: Any,
        phase: str = "predict",
        do_convert: bool = True,
        auto_parallel_mode: bool = False,
    ) -> tuple[str, bool]:
        """Trace a network or function with these arguments, optimize its graph and load it into a session.

        Returns the phase, and whether this is the first time for this network and phase. `do_convert` and
        `auto_parallel_mode` have no effect. Raises what tracing and lowering raise.
        """
        cell = obj if isinstance(obj, Cell) else FunctionCell(obj, obj)
        cell.compile(*args)
        phases = self._phases.setdefault(obj, set())
        is_first = phase not in phases
        phases.add(phase)
        return phase, is_first

    def __call__(self, obj: Cell | Callable[..., Any], *args: Any, phase: str = "predict") -> Any:
        """The outputs of a network or function in graph mode. `phase` has no effect. Raises as `compile`."""
        cell = obj if isinstance(obj, Cell) else FunctionCell(obj, obj)
        return cell.compile_and_run(*args)


_executor = Executor()


SUFFIXES = {"ONNX": ".onnx", "AIR": ".onnx", "MINDIR": ".mindir"}  # by format


def export(net: Cell, *inputs: Any, file_name: str, file_format: str = "AIR", **kwargs: Any) -> None:
    """Write a network in inference mode to `file_name`.onnx or .mindir, for inputs of the types of `inputs`.

    The file accepts any batch size if the network allows that. For the format AIR a line says that the file is ONNX.
    Raises ConfigError for invalid arguments and for operators that MindIR does not have, StorageError when the file
    cannot be written.
    """
    if not isinstance(net, Cell):
        raise ConfigError("export needs a cell", given=type(net).__name__)
    if file_format not in SUFFIXES:
        raise ConfigError("unknown format", file_format=repr(file_format), **known_names(file_format, SUFFIXES))
    if kwargs:
        name = next(iter(kwargs))
        raise ConfigError("runner exports networks in Float32 or Float16 only", argument=name, value=repr(kwargs[name]))
    suffix = SUFFIXES[file_format]
    path = Path(file_name if str(file_name).endswith(suffix) else f"{file_name}{suffix}")
    if file_format == "AIR":
        note_once(f"export writes ONNX, which Ascend's ATC reads too, not AIR: {path}")
    types = [(x if isinstance(x, Tensor) else Tensor(x)).type for x in inputs]
    with inference(net, context.precision()):
        writer = compiler.export_mindir if file_format == "MINDIR" else compiler.export_onnx
        content = writer(net.construct, types, type(net).__name__)
    write_atomically(path, content)


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
