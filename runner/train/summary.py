"""`SummaryRecord`: values of a training in an event file, as TensorBoard reads them.

First how each plugin's values become fields of a message, then the record, which collects them and writes the files.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import numpy as np

from runner import dtype as dt
from runner.core.values import Tensor
from runner.errors import ConfigError, StorageError, known_names
from runner.host import files, png
from runner.host.console import LOG, note_once
from runner.host.event_files import EventLog
from runner.host.lazy import reference_attribute
from runner.nn.cell import Cell
from runner.ops.effects import NewestValues
from runner.validation.arguments import flag, one_of, whole

__getattr__ = partial(reference_attribute, __name__)
__path__: list[str] = []  # MindSpore has a module below it: runner/mindspore/addresses.py

# The values of summaries as fields of TensorBoard's message `Summary.Value`, by plugin.
#
# Sources: tensorflow/core/framework/summary.proto, tensor.proto and types.proto.

Fields = dict[str, Any]
CHANNELS = 1, 3
COLUMNS = 8  # images of a batch beside each other
FULL = 255  # the largest value of a pixel
# The numbers of types.proto.
_FLOATS = {dt.float32: 1, dt.float64: 2, dt.float16: 19}
_SIGNED = {dt.int32: 3, dt.int16: 5, dt.int8: 6, dt.int64: 9}
_UNSIGNED = {dt.uint8: 4, dt.bool_: 10, dt.uint16: 17, dt.uint32: 22, dt.uint64: 23}
DATA_TYPES = {**_FLOATS, **_SIGNED, **_UNSIGNED}


def scalar(value: np.ndarray) -> Fields:
    """A number, of an array with one element."""
    return {"simple_value": float(value.reshape(-1)[0])}


def tensor(value: np.ndarray) -> Fields:
    """All elements."""
    elements = np.asarray(value, value.dtype.newbyteorder("<"), order="C").tobytes()
    shape = {"dim": [{"size": length} for length in value.shape]}
    return {"tensor": {"dtype": DATA_TYPES[dt.of(value.dtype)], "tensor_shape": shape, "tensor_content": elements}}


def histogram(value: np.ndarray) -> Fields:
    """The numbers of finite elements between limits at equal distances: up to 90, 10 elements for each on average."""
    numbers = value.astype(np.float64).ravel()
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return {"histo": {"bucket_limit": [0.0], "bucket": [0.0]}}
    low, high = float(numbers.min()), float(numbers.max())
    # In units of the largest number: the distance of two finite numbers may be infinite.
    scale = max(abs(low), abs(high)) or 1.0
    buckets = min(90, max(2, numbers.size // 10 + 1))
    margin = 0.5 if low == high else 0.0
    limits = np.linspace(low / scale - margin, high / scale + margin, buckets + 1)
    counts, _ = np.histogram(numbers / scale, limits)
    with np.errstate(over="ignore"):
        moments = {"sum": float(numbers.sum()), "sum_squares": float(np.square(numbers).sum())}
        limits *= scale
    fields = {"min": low, "max": high, "num": float(numbers.size), **moments}
    return {"histo": {**fields, "bucket_limit": limits[1:].tolist(), "bucket": counts.astype(float).tolist()}}


def image(value: np.ndarray) -> Fields:
    """The images of a batch (N, C, H, W) beside each other, in rows of eight, as one PNG file."""
    number, channels, height, width = value.shape
    columns = min(number, COLUMNS)
    rows = -(-number // columns)
    canvas = np.zeros((rows * columns, channels, height, width), np.uint8)
    canvas[:number] = pixels(value)
    grid = canvas.reshape(rows, columns, channels, height, width).transpose(0, 3, 1, 4, 2)
    whole = grid.reshape(rows * height, columns * width, channels)
    fields = {"height": whole.shape[0], "width": whole.shape[1], "colorspace": channels}
    return {"image": {**fields, "encoded_image_string": png.encode(whole)}}


def pixels(value: np.ndarray) -> np.ndarray:
    """Numbers as uint8: bytes unchanged, numbers from 0 to 1 times 255, others from the least to the largest."""
    if value.dtype == np.uint8:
        return value
    numbers = np.nan_to_num(value.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(numbers.min(initial=0.0)), float(numbers.max(initial=0.0))
    if low < 0 or high > 1:
        low = float(numbers.min())
        numbers = (numbers / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
    pixels: np.ndarray = (numbers * FULL).astype(np.uint8)
    return pixels


def is_image(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape is a batch of images."""
    return len(shape) == 4 and shape[1] in CHANNELS and 0 not in shape


def table(values: Mapping[str, Any]) -> str:
    """Values by name as JSON in a code block of Markdown."""
    lines = json.dumps(dict(values), indent=2, default=str).splitlines()
    return "\n".join(f"    {line}" for line in lines)


PLUGINS: dict[str, Callable[[np.ndarray], Fields]] = {
    "scalar": scalar,
    "image": image,
    "tensor": tensor,
    "histogram": histogram,
}


# The record

TEXTS = ("train_lineage", "eval_lineage", "custom_lineage_data")
GRAPHS = ("graph", "dataset_graph")
MODES = ("train", "eval")
EXPORTS = {"tensor_format": ("npy",)}
RANKS = {"image": "a batch of images (N, C, H, W) with 1 or 3 channels", "scalar": "one element"}
WHERE = {"class": "SummaryRecord"}


class SummaryRecord:
    """Writes values into a new event file `{file_prefix}.out.tfevents.{seconds}.{host}{file_suffix}` in `log_dir`.

    `record(step)` writes the values of `add_value` and, in mode "train", the newest values of the summary operators
    (`ops.ScalarSummary` and others) since the last record. With `max_file_size` (bytes), recording ends with a warning
    before the file becomes larger. A file that cannot be written ends the recording with an error in the log; with
    `raise_exception` it is a StorageError. `export_options={"tensor_format": "npy"}` also writes tensors as
    `export_{seconds}/tensor/{name}_{step}.npy`. `network` has no effect: graphs are files of `save_graphs`.

    Raises ConfigError for invalid arguments and when tensorboardX is not installed, StorageError when the file cannot
    be created.
    """

    def __init__(
        self,
        log_dir: str | Path,
        file_prefix: str = "events",
        file_suffix: str = "_MS",
        network: Cell | None = None,
        max_file_size: int | None = None,
        raise_exception: bool = False,
        export_options: Mapping[str, str | None] | None = None,
    ) -> None:
        _check_names(log_dir, file_prefix=file_prefix, file_suffix=file_suffix)
        flag(WHERE, raise_exception=raise_exception)
        if max_file_size is not None:
            whole(WHERE, 1, max_file_size=max_file_size)
        if network is not None:
            _note_graph()
        self._exports = check_export_options(export_options)
        self._limit, self._raises = max_file_size, raise_exception
        self._log = _event_log(Path(log_dir).absolute(), file_prefix, file_suffix)
        self._pending: dict[tuple[str, str], Any] = {}
        self._mode, self._ended, self._newest = "train", False, NewestValues()
        self._newest.__enter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def log_dir(self) -> str:
        """The path of the event file."""
        return str(self._log.path)

    def set_mode(self, mode: str) -> None:
        """Record in mode "train" or "eval": in mode "eval", the values of summary operators are not recorded."""
        one_of(WHERE, MODES, mode=mode)
        if mode != self._mode:
            self._newest.take()
        self._mode = mode

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        """Add a value for the next `record`; one that has this plugin and name already is replaced.

        A tensor or an array is a `scalar` (one element), an `image` (N, C, H, W), a `tensor` or a `histogram` (at least
        one axis). A mapping is a `train_lineage`, an `eval_lineage` or `custom_lineage_data`, written as text. `graph`
        and `dataset_graph` have no effect. Raises ConfigError for other plugins, names and values.
        """
        one_of(WHERE, (*PLUGINS, *TEXTS, *GRAPHS), plugin=plugin)
        if not isinstance(name, str) or not name:
            raise ConfigError("a summary needs a name", **WHERE, given=repr(name), allowed="a str with characters")
        if plugin in GRAPHS:
            _note_graph()
        elif plugin in TEXTS:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{plugin} must be a mapping", **WHERE, name=name, given=type(value).__name__)
            self._pending[plugin, name] = dict(value)
        else:
            if not isinstance(value, Tensor | np.ndarray):
                raise ConfigError("the value of a summary must be a Tensor", name=name, given=type(value).__name__)
            array = np.array(value)  # a copy, since the next step may change it
            if not _fits(plugin, array):
                allowed = RANKS.get(plugin, "at least one axis")
                raise ConfigError(f"the tensor is no {plugin}", name=name, shape=array.shape, allowed=allowed)
            self._pending[plugin, name] = array

    def record(
        self, step: int, train_network: Cell | None = None, plugin_filter: Callable[[str], bool] | None = None
    ) -> bool:
        """Write the values with the number of a step; False when nothing is recorded any more.

        Values of plugins for which `plugin_filter` returns False are dropped. `train_network` has no effect. Raises
        ConfigError for a step that is no whole number, and StorageError with `raise_exception`.
        """
        whole(WHERE, 0, step=step)
        if self._mode == "train":
            emitted = self._newest.take().items()
            self._pending.update({key: value for key, value in emitted if self._is_valid(*key, value)})
        values, self._pending = self._pending, {}
        if self._ended:
            return False
        chosen = {key: value for key, value in values.items() if plugin_filter is None or plugin_filter(key[0])}
        return self._write(lambda: self._write_values(step, chosen))

    def restart(self, step: int) -> None:
        """Mark that the training continues with this step: viewers drop later steps of earlier files in the folder."""
        session = {"status": self._log.library.session.START}
        self._write(lambda: self._append(self._log.record(step=step, session_log=session)))

    def flush(self) -> None:
        """Return when all recorded values are on the disk."""
        if not self._ended:
            self._write(self._log.sync)

    def close(self) -> None:
        """Put all recorded values on the disk, and close the file; closing twice is allowed."""
        self._newest.__exit__()
        self._write(self._log.close)
        self._ended = True

    def _write_values(self, step: int, values: Mapping[tuple[str, str], Any]) -> None:
        fields = [one for key, value in values.items() for one in self._fields(*key, value)]
        if fields:
            self._append(self._log.record(step=step, summary=self._log.library.summary(value=fields)))
        if "tensor_format" in self._exports:
            folder = self._log.path.with_name(f"export_{self._log.seconds}") / "tensor"
            for (plugin, tag), value in values.items():
                if plugin == "tensor":
                    _export(files.make_directory(folder) / f"{quote(tag, safe='')}_{step}.npy", value)

    def _fields(self, plugin: str, tag: str, value: Any) -> Iterator[Any]:
        if plugin in PLUGINS:
            yield {"tag": tag, **PLUGINS[plugin](value)}
        else:
            yield from self._log.library.text(tag, table(value)).value

    def _append(self, record: bytes) -> None:
        if self._limit is not None and self._log.size + len(record) > self._limit:
            LOG.warning("%s has reached max_file_size=%d: nothing more is recorded", self._log.path, self._limit)
            self._ended = True
        else:
            self._log.append(record)

    def _write(self, write: Callable[[], None]) -> bool:
        """Whether the file took what `write` writes. Raises StorageError with `raise_exception`."""
        try:
            write()
        except StorageError as error:
            if self._raises:
                raise
            if not self._ended:
                LOG.error("summaries are no longer recorded, the training continues: %s", error)
            self._ended = True
        return not self._ended

    @staticmethod
    def _is_valid(plugin: str, tag: str, value: np.ndarray) -> bool:
        """Whether a value of an operator fits; MindSpore skips others, too."""
        if not _fits(plugin, value):
            note_once(f"the summary {tag!r} of shape {value.shape} is not recorded: {RANKS.get(plugin)}")
            return False
        return True


def check_export_options(options: Mapping[str, str | None] | None) -> dict[str, str]:
    """The chosen options. Raises ConfigError for unknown ones."""
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError("export_options must be a mapping", **WHERE, given=repr(options))
    for name, value in (options or {}).items():
        if name not in EXPORTS:
            raise ConfigError("no such export option", **WHERE, given=repr(name), **known_names(name, EXPORTS))
        if value is not None:
            one_of(WHERE, EXPORTS[name], **{name: value})
    return {name: value for name, value in (options or {}).items() if value is not None}


def _fits(plugin: str, value: np.ndarray) -> bool:
    if plugin == "scalar":
        return value.size == 1
    return is_image(value.shape) if plugin == "image" else value.ndim > 0


def _check_names(log_dir: object, **parts: object) -> None:
    if not isinstance(log_dir, str | Path) or not str(log_dir):
        raise ConfigError("log_dir must be the name of a directory", **WHERE, given=repr(log_dir))
    for name, part in parts.items():
        if not isinstance(part, str) or not part.isprintable() or "/" in part:
            raise ConfigError(f"{name} must be a part of a file name", **WHERE, given=repr(part))


def _event_log(folder: Path, prefix: str, suffix: str) -> EventLog:
    try:
        return EventLog(folder, prefix, suffix)
    except ImportError as reason:
        repair = 'pip install "runner-ml[tensorboard]"'
        raise ConfigError("summaries need tensorboardX", **WHERE, reason=reason, repair=repair) from reason


def _export(path: Path, value: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, value, allow_pickle=False)
    files.write_atomically(path, content.getvalue())


def _note_graph() -> None:
    note_once("summaries have no graphs: context.set_context(save_graphs=True) writes them")
