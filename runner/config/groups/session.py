"""Keys of the group `session`: how graphs are compiled and observed (the session options of seed 004)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.device import WINOGRAD
from runner.errors import ConfigError
from runner.observe.profile.settings import operator, options_text, path_in_options, point
from runner.validation.rules import LARGEST_FLOAT32, MAX_COUNT, Frozen, Invalid, Rule, key, switch, validate

PRECISION_MODES = ("allow_fp32_to_fp16", "force_fp16", "force_fp32", "must_keep_origin_dtype", "allow_mix_precision")
LOSS_SCALES = ("dynamic", "off")
# Options of seed 004 that are keys of other groups, with hints.
MOVED_KEYS: Mapping[str, str] = {
    "enable_dump": "dump=ge dump.dump_path=...",
    **{name: f"dump=ge dump.{name}=..." for name in ("dump_path", "dump_step", "dump_mode")},
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
    """

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
    fp_point: str | None = key(None, validate=point)  # first operator of the forward pass
    bp_point: str | None = key(None, validate=point)  # last operator of the backward pass
    op_trace: str | None = key(None, validate=operator)  # the operator of profiling_options=op_trace
    initialize_system: bool = False  # time the initialisation separately


def consistency_errors(
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
