"""Settings of data pipelines for a whole script. Source: `mindspore.dataset.config` r1.2.

`set_seed` and `set_num_parallel_workers` have an effect. The others are kept and returned: queues and the intervals of
profiles adapt here (`runner/dataset/prefetch.py`).
"""

import json
from pathlib import Path

from runner.dataset.prefetch import MAX_WORKERS, default_workers, set_default_workers
from runner.errors import ConfigError, DataError, known_names
from runner.host import files, seed
from runner.validation.arguments import flag, whole_number

__all__ = [
    "get_auto_num_workers",
    "get_callback_timeout",
    "get_monitor_sampling_interval",
    "get_num_parallel_workers",
    "get_numa_enable",
    "get_prefetch_size",
    "get_seed",
    "load",
    "set_auto_num_workers",
    "set_callback_timeout",
    "set_monitor_sampling_interval",
    "set_num_parallel_workers",
    "set_numa_enable",
    "set_prefetch_size",
    "set_seed",
]

REFERENCE_WORKERS = 8
LARGEST = 2**31 - 1
MAX_FILE_BYTES = 1 << 20
WITHOUT_EFFECT = "logFilePath", "rowsPerBuffer", "workerConnectorSize", "opConnectorSize"  # keys of files
_settings: dict[str, int] = {"prefetch_size": 16, "monitor_sampling_interval": 10, "callback_timeout": 60}
_flags: dict[str, bool] = {"auto_num_workers": False, "numa_enable": False}


def set_seed(seed_value: int) -> None:
    """The seed of shuffles, samplers and random transforms, until the next `runner.set_seed`."""
    seed.set_data_seed(whole_number("seed", seed_value, 0, 2**32 - 1))


def get_seed() -> int:
    """The seed of data pipelines in force."""
    return seed.get_data_seed()


def set_num_parallel_workers(num: int) -> None:
    """The number of threads of pipelines that do not set `num_parallel_workers`; 1 to 64."""
    set_default_workers(whole_number("num", num, 1, MAX_WORKERS))


def get_num_parallel_workers() -> int:
    """The number set; 8, as in MindSpore, before."""
    return default_workers() or REFERENCE_WORKERS


def set_prefetch_size(size: int) -> None:
    """Kept without an effect: two batches for each thread are prepared ahead."""
    _settings["prefetch_size"] = whole_number("size", size, 1, LARGEST)


def get_prefetch_size() -> int:
    """The number set; 16 before."""
    return _settings["prefetch_size"]


def set_monitor_sampling_interval(interval: int) -> None:
    """Kept without an effect: profiles sample the queue whenever a batch is requested. Milliseconds."""
    _settings["monitor_sampling_interval"] = whole_number("interval", interval, 1, LARGEST)


def get_monitor_sampling_interval() -> int:
    """The number set, in milliseconds; 10 before."""
    return _settings["monitor_sampling_interval"]


def set_callback_timeout(timeout: int) -> None:
    """Kept without an effect. Seconds."""
    _settings["callback_timeout"] = whole_number("timeout", timeout, 1, LARGEST)


def get_callback_timeout() -> int:
    """The number set, in seconds; 60 before."""
    return _settings["callback_timeout"]


def set_auto_num_workers(enable: bool) -> None:
    """Kept without an effect: without `num_parallel_workers` the amount of work decides."""
    flag({}, enable=enable)
    _flags["auto_num_workers"] = enable


def get_auto_num_workers() -> bool:
    """The value set; False before."""
    return _flags["auto_num_workers"]


def set_numa_enable(numa_enable: bool) -> None:
    """Kept without an effect."""
    flag({}, numa_enable=numa_enable)
    _flags["numa_enable"] = numa_enable


def get_numa_enable() -> bool:
    """The value set; False before."""
    return _flags["numa_enable"]


def load(file: str) -> None:
    """Settings from a JSON file with MindSpore's keys: numParallelWorkers, seed, monitorSamplingInterval, ...

    Raises DataError for a file that is no object of numbers, ConfigError for an unknown key or a number out of range.
    """
    setters = {
        "numParallelWorkers": set_num_parallel_workers,
        "seed": set_seed,
        "monitorSamplingInterval": set_monitor_sampling_interval,
        "callbackTimeout": set_callback_timeout,
        "prefetchSize": set_prefetch_size,
    }
    path = Path(file)
    try:
        values = json.loads(files.read_bytes(path, MAX_FILE_BYTES))
    except ValueError as reason:
        raise DataError("not JSON", file=path, found=reason) from None
    if not isinstance(values, dict):
        raise DataError("not an object of JSON", file=path, found=type(values).__name__)
    for key, value in values.items():
        if key in WITHOUT_EFFECT:
            continue
        if key not in setters:
            raise ConfigError("an unknown setting", file=path, key=key, **known_names(key, list(setters)))
        setters[key](value)
