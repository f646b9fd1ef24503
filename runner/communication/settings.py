"""`set_auto_parallel_context` and related functions, under MindSpore's names.

Of its five modes `stand_alone` and `data_parallel` are supported: every rank holds the whole network and trains it with
its part of each batch; gradients are summed over all ranks before the optimizer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from runner.communication.world import world
from runner.core.current import Current
from runner.errors import ConfigError, known_names
from runner.validation.rules import FREE, Invalid, Rule, invalid_value_error, validate

# Buckets of gradients: the rule of `all_reduce_fusion_config`.

ALLOWED = "whole numbers from 1, ascending, each once, such as [4, 8]"


def validate_indices(indices: object) -> tuple[int, ...]:
    """The indices of parameters at which a new bucket begins. Raises Invalid."""
    if not isinstance(indices, list | tuple):
        raise Invalid("indices must be a list", ALLOWED)
    if not indices:
        raise Invalid("indices must not be empty", f"{ALLOWED}, or nothing at all: one bucket")
    if not all(type(index) is int and index >= 1 for index in indices):
        raise Invalid("indices must be whole numbers of at least 1", ALLOWED)
    if len(set(indices)) != len(indices):
        raise Invalid("indices must differ", ALLOWED)
    if list(indices) != sorted(indices):
        raise Invalid("indices must ascend", ALLOWED)
    return tuple(indices)


def buckets(count: int, indices: tuple[int, ...] | None) -> list[range]:
    """The indices of the parameters in each bucket. Raises ConfigError when an index is not below `count`.

    >>> buckets(10, (4, 8))
    [range(0, 4), range(4, 8), range(8, 10)]
    """
    ends: Any = (0, *(indices or ()), count)
    if ends[-2] >= count:
        rows = {"all_reduce_fusion_config": list(ends[1:-1]), "parameters": count, "allowed": f"1 to {count - 1}"}
        raise ConfigError("a bucket begins behind the last parameter", **rows)
    return [range(first, end) for first, end in pairwise(ends)]


# The settings.


class ParallelMode:
    """MindSpore's modes; the last three are not supported here."""

    STAND_ALONE = "stand_alone"
    DATA_PARALLEL = "data_parallel"
    HYBRID_PARALLEL = "hybrid_parallel"
    SEMI_AUTO_PARALLEL = "semi_auto_parallel"
    AUTO_PARALLEL = "auto_parallel"
    MODE_LIST = (STAND_ALONE, DATA_PARALLEL, HYBRID_PARALLEL, SEMI_AUTO_PARALLEL, AUTO_PARALLEL)


SUPPORTED = ParallelMode.STAND_ALONE, ParallelMode.DATA_PARALLEL


class _Setting(NamedTuple):
    """Default, type and rule of a setting; the `supported` values, None for all that the rule allows."""

    default: Any
    kind: Any
    rule: Rule = FREE
    supported: tuple[Any, ...] | None = None


def _fixed(default: Any, **rule: Any) -> _Setting:
    """A setting of an unsupported mode, which must keep its default."""
    return _Setting(default, type(default), Rule(**rule), (default,))


_SETTINGS = {
    "device_num": _Setting(None, int, Rule(low=1, high=4096)),  # None: the number that mpirun launched
    "global_rank": _Setting(None, int, Rule(low=0, high=4095)),
    "gradients_mean": _Setting(False, bool),
    "gradient_fp32_sync": _fixed(True),
    "loss_repeated_mean": _fixed(True),
    "pipeline_stages": _fixed(1, low=1),
    "parallel_mode": _Setting(ParallelMode.STAND_ALONE, str, Rule(choices=ParallelMode.MODE_LIST), SUPPORTED),
    "auto_parallel_search_mode": _fixed(
        "dynamic_programming", choices=("dynamic_programming", "recursive_programming")
    ),
    "parameter_broadcast": _Setting(False, bool),
    "strategy_ckpt_load_file": _fixed(""),
    "strategy_ckpt_save_file": _fixed(""),
    "group_ckpt_save_file": _fixed(""),
    "full_batch": _fixed(False),
    "enable_parallel_optimizer": _fixed(False),
    "grad_accumulation_step": _fixed(1, low=1),
    "all_reduce_fusion_config": _Setting(None, tuple, Rule(validate=validate_indices)),
    "sync_batch_norm": _Setting(True, bool),  # not in MindSpore, which has a layer for it
    "communi_parallel_mode": _fixed(
        "all_group_parallel", choices=("all_group_parallel", "same_server_group_parallel", "no_group_parallel")
    ),
}
_DEFAULTS = {name: setting.default for name, setting in _SETTINGS.items()}

_PRESENT: Current[dict[str, Any]] = Current("settings of data parallelism", dict(_DEFAULTS))
_built_with: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()  # cell -> settings that it depends on


def set_auto_parallel_context(**settings: Any) -> None:
    """Change settings, before the training step is built; nothing is changed when one of them is wrong.

    `parallel_mode` "stand_alone" (default) or "data_parallel" · `device_num` 1 to 4096, `global_rank` 0 to 4095, both
    by default those of mpirun · `gradients_mean` bool, whether gradients are divided by the number of ranks (default
    False, as in MindSpore: gradients are sums, as if the learning rate were multiplied by the number of ranks) ·
    `parameter_broadcast` bool, whether all ranks start with the parameters of the first one ·
    `all_reduce_fusion_config` the indices of parameters at which a new bucket of gradients begins (default: one
    bucket) · `sync_batch_norm` bool, whether layers BatchNorm1d and BatchNorm2d train with the statistics of all ranks
    (default True). The other keys of MindSpore belong to unsupported modes: only their defaults are allowed.
    Raises ConfigError (a ValueError), also for a change of a setting that an existing cell was built with: the step
    cell of a training (`Model` with an optimizer, `nn.TrainOneStepCell`).
    """
    made = {name: _checked(name, value) for name, value in settings.items()}
    changed = {name for name, value in made.items() if value != _PRESENT.get()[name]}
    for cell, names in _built_with.items():
        if found := sorted(changed.intersection(names)):
            rows = {"setting": ", ".join(found), "built with it": type(cell).__name__}
            repair = "call it before, or context.reset_auto_parallel_context() for another training"
            raise ConfigError("set_auto_parallel_context must precede what it determines", **rows, repair=repair)
    _PRESENT.get().update(made)


def get_auto_parallel_context(attr_key: str) -> Any:
    """A setting; device_num and global_rank default to size and rank of the world.

    Raises ConfigError for an unknown name.
    """
    _check_name(attr_key)
    found = {"device_num": world().size, "global_rank": world().rank}
    return found.get(attr_key) if _PRESENT.get()[attr_key] is None else _PRESENT.get()[attr_key]


def reset_auto_parallel_context() -> None:
    """Restore all defaults. Existing cells keep the settings that they were built with, and no longer prevent new
    settings."""
    _PRESENT.get().update(_DEFAULTS)
    _built_with.clear()


def settings() -> dict[str, Any]:
    """All settings; None: as mpirun launched the process."""
    return dict(_PRESENT.get())


def is_data_parallel() -> bool:
    """Whether training steps built now sum their gradients over all ranks."""
    return bool(_PRESENT.get()["parallel_mode"] == ParallelMode.DATA_PARALLEL)


def reduces_gradients(step: Any) -> bool:
    """`is_data_parallel` for a step cell that is being built; its settings can no longer change."""
    _built_with[step] = tuple(_SETTINGS) if is_data_parallel() else ("parallel_mode",)
    return is_data_parallel()


def synchronizes_batch_norm() -> bool:
    """Whether batch normalisation layers train with the statistics of all ranks."""
    return bool(_PRESENT.get()["sync_batch_norm"]) and is_data_parallel()


@contextmanager
def applied(**settings: Any) -> Iterator[None]:
    """Inside, these validated settings hold for networks that are built."""
    before = dict(_PRESENT.get())
    _PRESENT.get().update(settings)
    try:
        yield
    finally:
        _PRESENT.get().update(before)


def _checked(name: str, value: Any) -> Any:
    _check_name(name)
    _, kind, rule, supported = _SETTINGS[name]
    try:
        made = validate(kind, rule, value)
    except Invalid as invalid:
        raise invalid_value_error(name, value, invalid) from None
    if supported is not None and made not in supported:
        rows = {"given": made, "supported": ", ".join(str(value) or '""' for value in supported)}
        raise ConfigError(f"this {name} is not supported", **rows)
    return made


def _check_name(name: str) -> None:
    if name not in _DEFAULTS:
        raise ConfigError("unknown setting of the parallel context", given=name, **known_names(name, _DEFAULTS))
