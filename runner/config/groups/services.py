"""The groups of what observes a run or executes it: tracking, dump, session, profiling, parallel.

Their keys depend on the `name` of the chosen option. Each part has the records, the errors of values that do not fit
together, and, where there is one, the function that says whether anything is requested.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner.communication.settings import validate_indices
from runner.device import WINOGRAD
from runner.errors import ConfigError, collect_errors, masked
from runner.observe import dump
from runner.observe.dump.settings import FILE_FORMATS, MAX_QUEUE_MB, AsyncDump, DumpSettings, Iterations, SyncDump
from runner.observe.profile.settings import (
    UNNAMED,
    ProfileSettings,
    TraceProfiling,
    merged,
    operator,
    options,
    options_text,
    path_in_options,
    point as operator_point,
)
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import (
    FREE,
    LARGEST_FLOAT32,
    MAX_COUNT,
    Frozen,
    Invalid,
    Rule,
    as_path,
    existing_folder,
    invalid_value_error,
    key,
    switch,
    validate,
)

VARIABLE = "MLFLOW_TRACKING_URI"
FILE = "mlflow.db"
DATABASES = "postgresql", "mysql", "mssql"
ADDRESSES = "sqlite:///file.db, http://host:port, https://host, postgresql://host/name, mysql://..., mssql://..."
NAME_LENGTH = 250  # limit of names in MLflow


def address(value: object) -> str:
    """The checked URI of an MLflow store, with the absolute path of a database file. Raises Invalid."""
    text: str = validate(str, FREE, value)
    scheme, found, rest = text.partition("://")
    if masked(text) != text:
        what, allowed = "the address contains a password and would be written to files", "an address without a password"
        hint = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or PGPASSWORD, in the environment"
        raise Invalid(what, allowed, hint=hint)
    if scheme == "sqlite" and found:
        return _file(rest)
    if not found or scheme.split("+")[0] not in ("http", "https", *DATABASES):
        file = f"a file: sqlite:///{FILE}" if scheme in ("file", text) else None
        raise Invalid("not an address of MLflow", ADDRESSES, hint=file)
    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port != 0 else None
    except ValueError as reason:
        raise Invalid(f"not an address of MLflow: {reason}", ADDRESSES) from None
    if not host and scheme.startswith("http"):
        raise Invalid("an address without a host", ADDRESSES)
    return text


def _file(rest: str) -> str:
    path, _, query = rest.removeprefix("/").partition("?")
    if not rest.startswith("/") or path in ("", ":memory:"):
        raise Invalid("not a database file", ADDRESSES, hint=f"sqlite:///{FILE}, or sqlite:////tmp/{FILE}")
    if problem := path_problem(path):
        raise Invalid(problem, ALLOWED)
    path = os.path.abspath(path)
    existing_folder(os.path.dirname(path))
    if os.path.lexists(path) and not os.path.isfile(path):
        raise Invalid("not a regular file", "a database file, existing or new")
    return f"sqlite:///{path}{'?' if query else ''}{query}"


def database_file(uri: str | None, tracking: object = None) -> str | None:
    """The path of the file in which a checked address stores runs; None for a server."""
    scheme, found, rest = (uri or "").partition(":///")
    return rest.partition("?")[0] if scheme == "sqlite" and found else None


def _name(value: object) -> str:
    text: str = validate(str, FREE, value)
    if not 0 < len(text.strip()) <= NAME_LENGTH:
        raise Invalid("not a name", f"null, or text of 1 to {NAME_LENGTH} characters")
    return text


class NoTracking(Frozen):
    """No tracking: the run is recorded in its folder only."""

    name: str = key("none", choices=("none",))  # the kind of tracking


class TensorBoardTracking(Frozen):
    """Event files for TensorBoard in `tensorboard/` of the run directory."""

    name: str = key("tensorboard", choices=("tensorboard",))  # the kind of tracking
    every_seconds: float = key(2.0, above=0, high=MAX_COUNT)  # interval of updates in seconds


class MlflowTracking(Frozen):
    """A run of MLflow.

    `uri` null: MLFLOW_TRACKING_URI of the environment, or else `sqlite:///mlflow.db` in the working directory.
    `experiment` null: the name of the experiment, or of the network. `run_name` null: the last two folders of the run.
    """

    name: str = key("mlflow", choices=("mlflow",))  # the kind of tracking
    uri: str | None = key(None, validate=address, writes=database_file)  # a database file, a server or a database
    experiment: str | None = key(None, validate=_name)  # name of the experiment in MLflow
    run_name: str | None = key(None, validate=_name)  # name of the run in MLflow
    every_seconds: float = key(2.0, above=0, high=MAX_COUNT)  # interval of updates in seconds


Tracking = NoTracking | TensorBoardTracking | MlflowTracking


def tracking_is_requested(tracking: Tracking) -> bool:
    """Whether a run is tracked: only then `runner.experiment.tracking.tracking` is loaded."""
    return not isinstance(tracking, NoTracking)


def address_of(tracking: MlflowTracking) -> str:
    """The URI of the MLflow store. Raises Invalid for an invalid one in the environment."""
    return tracking.uri or address(os.environ.get(VARIABLE) or f"sqlite:///{FILE}")


def consistency_errors(tracking: Tracking) -> Iterator[ConfigError]:
    """Errors of a tracking: its library is not installed, or the address in the environment is invalid."""
    needed = {"tensorboard": ["tensorboardX"], "mlflow": ["mlflow"]}.get(tracking.name, [])
    if isinstance(tracking, MlflowTracking):
        try:
            uri = address_of(tracking)
        except Invalid as invalid:
            given = os.environ.get(VARIABLE)
            yield invalid_value_error(VARIABLE if given else "tracking.uri", given, invalid)
            return
        if not uri.startswith("http"):
            needed.append("sqlalchemy")  # not in mlflow-skinny, which supports servers only
    missing = [name for name in needed if not _is_installed(name)]
    if missing:
        rows = {"value": tracking.name, "missing": ", ".join(missing)}
        hint = f'pip install "runner-ml[{tracking.name}]"'
        yield ConfigError("the library of this tracking is not installed", key="tracking", **rows, hint=hint)


def _is_installed(name: str) -> bool:
    found = find_spec(name)
    return found is not None and found.origin is not None  # None: only a folder of this name


# Dump.
#
# Those of `sync` and `async` are in `runner.observe.dump.settings`; whatever writes a dump is only loaded if one is
# requested.

MAX_SETS = 100
STEPS = 'numbers and ascending ranges with "|" between them, at most 100, such as "0|3-5|10", or null for every step'


def _path_in_json(config: str | None, group: object) -> str | None:
    """The folder of the dump that a JSON file requests. Raises ConfigError or ConfigErrors."""
    return None if config is None else str(dump.settings.read(Path(config), "dump.config").path)


class NoDump(Frozen):
    """No dump, unless `config`, a JSON file, requests one; or, without it, MINDSPORE_DUMP_CONFIG."""

    name: str = key("none", choices=("none",))  # the kind of dump
    config: str | None = key(None, path=True, writes=_path_in_json)  # a JSON file, relative to the working directory


def _dump_step(value: object) -> str:
    ranges = Iterations.parse(value, STEPS).ranges
    if ranges is None:
        raise Invalid("not a choice of steps", STEPS, "null")
    if len(ranges) > MAX_SETS:
        raise Invalid(f"{len(ranges)} sets of steps", STEPS)
    for part in str(value).split("|"):
        first, _, last = part.partition("-")
        if last and int(first) == int(last):
            raise Invalid(f"a range of steps that does not ascend: {part}", STEPS, first)
    return str(value)


class GeDump(Frozen):
    """An asynchronous dump with the keys of GE, in a separate folder for each run."""

    name: str = key("ge", choices=("ge",))  # the kind of dump
    config: str | None = key(None, path=True)  # a JSON file of MindSpore
    enable_dump: bool = True  # false: no dump
    dump_path: str | None = key(None, path=True, writes=as_path)  # an existing folder, from the working directory
    dump_step: str | None = key(None, validate=_dump_step)  # steps; null: all
    dump_mode: str = key("output", choices=("input", "output", "all"))  # inputs, outputs or both
    file_format: str = key(FILE_FORMATS[0], choices=FILE_FORMATS)  # bin, or npy with statistic.csv
    queue_mb: int = key(256, low=1, high=MAX_QUEUE_MB)  # memory of the queue of files, in MiB

    def folder(self) -> Path:
        """The absolute `dump_path`. Raises ConfigError if it is null or not an existing folder."""
        try:
            if self.dump_path is None:
                raise Invalid("dump=ge needs a folder", "a folder that exists", hint="dump.dump_path=...")
            return Path(existing_folder(self.dump_path))
        except Invalid as invalid:
            raise invalid_value_error("dump.dump_path", self.dump_path, invalid) from None


Dump = NoDump | SyncDump | AsyncDump | GeDump


def dump_is_requested(group: Dump) -> bool:
    """Whether a run may dump something."""
    return not isinstance(group, NoDump) or group.config is not None or bool(os.environ.get(dump.VARIABLE))


def settings(group: Dump, defaults: Mapping[str, str]) -> DumpSettings | None:
    """The dump that a group requests by its keys or, without them, by its JSON file or the environment.

    `defaults` has the `path` and the `net_name` for a group without them. Raises ConfigError or ConfigErrors.
    """
    if isinstance(group, NoDump):
        if group.config is None:
            return dump.settings.from_environment(dump.VARIABLE) if dump_is_requested(group) else None
        return dump.settings.read(Path(group.config), "dump.config")
    if isinstance(group, GeDump):
        return _ge_settings(group, defaults["net_name"]) if group.enable_dump else None
    if not group.enable:
        return None
    values = {**vars(group), **{name: value for name, value in defaults.items() if getattr(group, name) is None}}
    return DumpSettings.from_values(values, "dump.", dump.settings.text(values))


def _ge_settings(group: GeDump, net_name: str) -> DumpSettings:
    return DumpSettings(
        "ge",
        group.folder(),
        net_name,
        Iterations.parse("all" if group.dump_step is None else group.dump_step),
        inputs=group.dump_mode != "output",
        outputs=group.dump_mode != "input",
        trans_flag=False,
        file_format=group.file_format,
        queue_mb=group.queue_mb,
        source=dump.settings.text(vars(group)),
    )


def dump_consistency_errors(group: Dump, sunk: bool) -> Iterator[ConfigError]:
    """Errors of a dump as a whole, its JSON file included; `sunk`: whether steps are sunk to the device."""
    if not isinstance(group, NoDump) and group.config is not None:
        hint = f"dump=none dump.config={group.config}, or the keys of dump={group.name} without dump.config"
        yield ConfigError("a dump is requested twice", key="dump.config", value=group.config, allowed="null", hint=hint)
    requested, errors = collect_errors(settings, group, {"path": "", "net_name": ""})
    yield from errors
    is_sync = isinstance(group, SyncDump) and group.enable
    if sunk and (is_sync or (requested is not None and requested.enabled and requested.kind == "sync")):
        source = dump.VARIABLE if group.config is None else f"dump.config={group.config}"
        yield ConfigError(
            "a synchronous dump writes after every step, which is not possible in a data sink",
            key="dataset_sink_mode",
            value="true",
            allowed="false",
            dump=source if isinstance(group, NoDump) else f"dump={group.name}",
            hint="dataset_sink_mode=false, or an asynchronous dump (dump=async)",
        )


# Session: how graphs are compiled and observed (the session options of GE).

PRECISION_MODES = ("allow_fp32_to_fp16", "force_fp16", "force_fp32", "must_keep_origin_dtype", "allow_mix_precision")
LOSS_SCALES = ("dynamic", "off")
# Options of GE that are keys of other groups, with hints.
MOVED_KEYS: Mapping[str, str] = {
    "enable_dump_debug": "dump=async dump.op_debug_mode=3 detects overflow",
    "dump_debug_mode": "dump=async dump.op_debug_mode=1, 2 or 3 detects overflow",
}


def _validate_precision(value: object) -> Any:
    return validate(str, Rule(choices=PRECISION_MODES), PRECISION_MODES[0] if value is None else value)


def _validate_loss_scale(value: object) -> Any:
    """`dynamic`, `off`, or a number of at least 1."""
    if isinstance(value, str):
        return validate(str, Rule(choices=LOSS_SCALES, fold=True), value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= LARGEST_FLOAT32:
        allowed = f"null (as precision_mode needs it), dynamic, off, or a number, 1 to {LARGEST_FLOAT32}"
        raise Invalid("not a loss scale", allowed)
    return float(value)


def _validate_tuning(value: object) -> str:
    """RL, GA or both, in any order, also as a list: on the command line, `RL,GA` without quotes is a sweep."""
    parts = value.split(",") if isinstance(value, str) else value
    names = [str(part).strip() for part in parts] if isinstance(parts, Sequence) else []
    known = [name for name in ("RL", "GA") if name in names]
    if len(known) != len(names) or not known:
        meant = [name for name in ("RL", "GA") if name in [one.upper() for one in names]]
        raise Invalid("not a tuning mode", _TUNING, ",".join(meant) or None)
    return ",".join(known)


def _validate_optypes(value: object) -> str:
    names = [value] if isinstance(value, str) else value
    if names == ["Pooling"] or names == ("Pooling",):
        return "Pooling"
    hint = "only pooling has two implementations"
    meant = "Pooling" if "pool" in str(value).lower() else None
    raise Invalid("not a type of operators with two implementations", "null or Pooling", meant, hint)


def _profile_path(text: str, session: "SessionSettings") -> str | None:
    return path_in_options(text) if session.profiling_mode else None


_TUNING = 'null, "RL" (vector operators), "GA" (convolutions and matrix products) or "RL,GA"'
_DEBUG = "0 off, 1 source maps, 2 also without optimisation, 3 the compiled model, 4 also the fused operators"


class SessionSettings(Frozen):
    """How a graph is compiled, and which files it leaves.

    `auto_tune_mode` searches for at most `auto_tune_seconds`, in the first start of a training.
    `enable_exception_dump` dumps the operator that failed, or whose results have the first NaN or Inf.
    `winograd` is whether 3x3 convolutions may multiply transformed tiles where that is faster (both modes on the CPU);
    rounding errors are then up to 5e-6 of the largest result instead of 2e-6.
    `op_select_implmode` selects how the operators of `optypelist_for_implmode` sum Float16 (null: in Float32).
    `profiling_mode` requests a profile with the words of `profiling_options`; the group `profiling` has more keys.
    `enable_dump` is `dump=ge` with the three keys after it.
    """

    enable_dump: bool = key(False, validate=switch)  # dump operators into dump_path, in a folder for each run
    dump_path: str | None = key(None, path=True, writes=as_path)  # an existing folder, from the working directory
    dump_step: str | None = key(None, validate=_dump_step)  # steps; null: all
    dump_mode: str = key("output", choices=("input", "output", "all"))  # inputs, outputs or both
    precision_mode: str = key(PRECISION_MODES[0], validate=_validate_precision)  # casts of operands
    loss_scale: float | str | None = key(None, validate=_validate_loss_scale)  # null: dynamic with allow_mix_precision
    auto_tune_mode: str | None = key(None, validate=_validate_tuning)  # "RL", "GA" or "RL,GA"; null: no tuning
    auto_tune_seconds: float = key(600.0, above=0, high=MAX_COUNT)  # time limit of the search
    winograd: str = key("auto", choices=WINOGRAD, fold=True)  # fewer multiplications in 3x3 convolutions
    graph_run_mode: int = key(1, low=0, high=1, hint="0: online inference, 1: training")  # 1: training, 0: evaluation
    op_debug_level: int = key(0, low=0, high=4, hint=_DEBUG)  # 0 to 4: the files in kernel_meta/
    enable_exception_dump: bool = key(False, validate=switch)  # dump the operands of a failing operator
    op_select_implmode: str = key("high_performance", choices=("high_precision", "high_performance"))  # for pooling
    optypelist_for_implmode: str | None = key(None, validate=_validate_optypes)  # null or Pooling
    profiling_mode: bool = False  # profile the run
    profiling_options: str = key("training_trace", validate=options_text, writes=_profile_path)  # words or JSON text
    fp_point: str | None = key(None, validate=operator_point)  # first operator of the forward pass
    bp_point: str | None = key(None, validate=operator_point)  # last operator of the backward pass
    op_trace: str | None = key(None, validate=operator)  # the operator of profiling_options=op_trace
    initialize_system: bool = False  # time the initialisation separately


def requested_dump(dump: Dump, session: SessionSettings) -> Dump:
    """The group `dump`, or what `session.enable_dump` requests."""
    if not session.enable_dump:
        return dump
    return GeDump(dump_path=session.dump_path, dump_step=session.dump_step, dump_mode=session.dump_mode)


def session_dump_errors(dump: Dump, session: SessionSettings) -> Iterator[ConfigError]:
    """Errors of a run with two dumps, or whose `session.enable_dump` has no folder."""
    if not session.enable_dump:
        return
    if dump != NoDump():
        hint = f"dump={dump.name} requests the other one"
        yield ConfigError("two dumps", key="session.enable_dump", value="true", allowed="false", hint=hint)
    try:
        if session.dump_path is None:
            raise Invalid("session.enable_dump needs a folder", "a folder that exists", hint="session.dump_path=...")
        existing_folder(session.dump_path)
    except Invalid as invalid:
        yield invalid_value_error("session.dump_path", session.dump_path, invalid)


def session_consistency_errors(
    session: SessionSettings, evaluated: bool, dumped: bool, profiled: bool
) -> Iterator[ConfigError]:
    """Errors of a run without training that also has no evaluation, or requests files about training steps."""
    if session.graph_run_mode == 1:
        return
    only = "session.graph_run_mode=0 only evaluates"
    if not evaluated:
        hint = f"{only}: eval.every=end, or session.graph_run_mode=1"
        yield ConfigError(
            "a run without training and evaluation", key="eval.every", value="never", allowed="end or epoch", hint=hint
        )
    tuned = session.auto_tune_mode is not None
    for name, requested in (("dump", dumped), ("profiling", profiled), ("session.auto_tune_mode", tuned)):
        if requested:
            yield ConfigError(f"{name} needs training steps", key="session.graph_run_mode", value=0, hint=only)


# Profiling.
#
# Those of `trace` are in `runner.observe.profile.settings`; whatever profiles is only loaded if a profile is requested.


class NoProfiling(Frozen):
    """No profile, unless `options` requests one: words, or the JSON text of the context's `profiling_options`."""

    name: str = key("none", choices=("none",))  # the kind of profile
    options: str | None = key(None, validate=options_text, writes=path_in_options)  # JSON with these keys, or words


Profiling = NoProfiling | TraceProfiling


def profiling_is_requested(profiling: Profiling, session: SessionSettings) -> bool:
    """Whether a run is profiled."""
    return not isinstance(profiling, NoProfiling) or profiling.options is not None or session.profiling_mode


def profiling_settings(
    profiling: Profiling, session: SessionSettings, folder: Path, device_id: int = 0
) -> ProfileSettings:
    """The profile that the group or the session requests, in `folder` unless they name another one.

    Without options, `profiling=trace` traces everything. Raises ConfigError or ConfigErrors.
    """
    everything = isinstance(profiling, TraceProfiling) and profiling.options is None
    return ProfileSettings.from_values(_sources(profiling, session), folder, device_id, everything)


def profiling_consistency_errors(
    profiling: Profiling, session: SessionSettings, is_single: bool
) -> Iterator[ConfigError]:
    """Errors of a profile as a whole, its texts included. `is_single`: whether one process trains."""
    if session.profiling_mode and profiling_is_requested(profiling, SessionSettings()):
        hint = "session.profiling_mode=false, or profiling=none without profiling.options"
        yield ConfigError("a profile is requested twice", key="session.profiling_mode", value="true", hint=hint)
        return
    if not session.profiling_mode and session.profiling_options != SessionSettings.profiling_options:
        yield from collect_errors(lambda: merged(_session_options(session)))[1]
    if not profiling_is_requested(profiling, session):
        return
    requested, errors = collect_errors(profiling_settings, profiling, session, Path())
    yield from errors
    if requested is None:
        return
    if requested.op_trace and not is_single:
        reason = "they would slow down each other, and a collective needs all of them"
        rows = {"value": requested.op_trace, "reason": reason, "repair": "the same command with parallel=stand_alone"}
        key = "session.op_trace" if session.profiling_mode else "profiling.op_trace"
        yield ConfigError("several ranks cannot measure a single operator", key=key, **rows)
    has_words = session.profiling_mode and not session.profiling_options.lstrip().startswith("{")
    for name, point in (
        ("fp_point", "first operator of the forward pass"),
        ("bp_point", "last operator of the backward pass"),
    ):
        if has_words and not requested.op_trace and getattr(requested, name) is None:
            allowed = f"the full name of the {point}"
            hint = "profiling=trace detects it; save_graphs=true writes the names"
            what = "training_trace of a session needs this operator"
            yield ConfigError(what, key=f"session.{name}", allowed=allowed, hint=hint)


def _sources(profiling: Profiling, session: SessionSettings) -> dict[str, dict[str, Any]]:
    """The values of each source, by the prefix of its keys. Raises ConfigError for a text without values."""
    if session.profiling_mode:
        points = {name: getattr(session, name) for name in ("fp_point", "bp_point", "op_trace")}
        return {**_session_options(session), "session.": points}
    text = {} if profiling.options is None else options(profiling.options, "profiling.options")
    own = {name: value for name, value in vars(profiling).items() if name not in ("name", "options")}
    return {"profiling.options.": text, "profiling.": own}


def _session_options(session: SessionSettings) -> dict[str, dict[str, Any]]:
    values = options(session.profiling_options, "session.profiling_options")
    if session.op_trace is not None:  # the word op_trace requests it, the key names the operator
        values = {name: value for name, value in values.items() if value is not UNNAMED}
    return {"session.profiling_options.": values}


# Parallel.

# Modes of MindSpore that are not supported.
UNSUPPORTED = "hybrid_parallel", "semi_auto_parallel", "auto_parallel"
HINT = "this mode of MindSpore is not supported; stand_alone and data_parallel are"


class StandAlone(Frozen):
    """A single process."""

    name: str = key("stand_alone", choices=("stand_alone",))  # the parallel mode


class DataParallel(Frozen):
    """The processes of one `mpirun -n N runner ...`: each processes its part of every batch, gradients are reduced.

    `gradients_mean` false sums the gradients, as MindSpore does, which multiplies the learning rate by N.
    `device_num` and `global_rank`, if not null, must agree with mpirun.
    """

    name: str = key("data_parallel", choices=("data_parallel",))  # the parallel mode
    device_num: int | None = key(None, low=1, high=4096)  # number of processes; null: that of mpirun
    global_rank: int | None = key(None, low=0, high=4095)  # rank of this process; null: that of mpirun
    gradients_mean: bool = False  # mean of the gradients instead of their sum
    parameter_broadcast: bool = False  # initialise all ranks with the parameters of rank 0
    sync_batch_norm: bool = True  # batch normalization with the statistics of all ranks
    all_reduce_fusion_config: tuple[int, ...] | None = key(None, validate=validate_indices)  # null: one bucket
    timeout_seconds: float = key(300.0, above=0, high=MAX_COUNT)  # wait of processes for each other at start and end
    heartbeat_minutes: float = key(10.0, above=0, high=MAX_COUNT)  # silence of a process after which the run fails


Parallel = StandAlone | DataParallel
