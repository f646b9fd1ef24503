"""`runner.dump`: dumps of everything that runs inside a `with` block, in both modes."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import context
from runner.core.graph import ValueObserver
from runner.errors import raise_all
from runner.observe.dump.settings import DumpSettings, SyncDump
from runner.validation.rules import keys_of, validate_keys


@contextmanager
def dump(
    path: str | Path,
    kernels: Sequence[str] | None = None,
    *,
    net_name: str = "network",
    iteration: str | int = "all",
    input_output: int = 0,
    trans_flag: bool = True,
) -> Iterator[ValueObserver]:
    """Dump the cells called and the models trained or evaluated inside, in MindSpore's synchronous layout.

    Every call of a cell, step of a training and batch of an evaluation is an iteration, counted from 0. `path` is
    created if missing; `kernels` are full names, types or patterns with `*` (None: all); the rest are config keys.
    The folder belongs to this process: a later dump into it replaces this one, and other processes are refused. Read it
    with `numpy.fromfile`, or compare two dumps with `runner compare`. Raises ConfigError for invalid arguments,
    BusyError when the folder belongs to another run, StorageError when something cannot be written.
    """
    values: dict[str, Any] = {"iteration": iteration, "input_output": input_output, "trans_flag": trans_flag}
    if kernels is not None:
        values["kernels"] = kernels if isinstance(kernels, str) else tuple(kernels)
    valid, errors = validate_keys(values, keys_of(SyncDump))
    raise_all(errors)
    group = SyncDump(**valid, path=str(Path(path).absolute()), net_name=net_name)
    settings = replace(DumpSettings.from_values(vars(group)), kernels=valid.get("kernels"))
    with closing(context.dumper(settings, "path")) as dumper, context.observing(dumper):
        yield dumper
