"""Keys of the group `profiling`, whose `name` decides which keys it has, and what does not fit together in them.

What the keys may be is said in `runner/profiling`, which is not imported before a profile is asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from runner.config.groups.session import Session, options_text
from runner.errors import ConfigError, attempted
from runner.observe import profile
from runner.validation.rules import key


def _key(name: str) -> Any:
    return key(None, validate=lambda value: profile.keys.validate_key(name, value))


@dataclass(frozen=True)
class NoProfiling:
    """No profile, unless `options` asks for one: words, or the JSON text of the context's `profiling_options`."""

    name: str = key("none", choices=("none",))  # which one
    options: str | None = key(None, validate=options_text)  # JSON text with these keys, or words


@dataclass(frozen=True)
class TraceProfiling:
    """Where the time of the run goes. null: traces are on (or as `options` says), points are found, and so on.

    `output`, `aicpu` and `aic_metrics` are other spellings of `result_path`, `aicpu_trace` and `ai_core_metrics`.
    """

    name: str = key("trace", choices=("trace",))  # which one
    options: str | None = key(None, validate=options_text)  # JSON text with these keys, or words
    result_path: str | None = _key("result_path")  # a folder that exists; null: profiling/ in the run directory
    output: str | None = _key("output")  # as result_path
    training_trace: bool | None = _key("training_trace")  # where the time of a step goes
    task_trace: bool | None = _key("task_trace")  # time of each operator
    aicpu_trace: bool | None = _key("aicpu_trace")  # waiting for data
    aicpu: bool | None = _key("aicpu")  # as aicpu_trace
    fp_point: str | None = _key("fp_point")  # operator with which the forward part begins; null: found
    bp_point: str | None = _key("bp_point")  # operator with which the backward part ends; null: found
    ai_core_metrics: str | None = _key("ai_core_metrics")  # null: PipeUtilization, if operators are traced
    aic_metrics: str | None = _key("aic_metrics")  # as ai_core_metrics
    op_trace: str | None = _key("op_trace")  # one operator alone, and no other trace


Profiling = NoProfiling | TraceProfiling
PROFILES: dict[str, type[Profiling]] = {"none": NoProfiling, "trace": TraceProfiling}


def is_asked(profiling: Profiling, session: Session) -> bool:
    """Whether a run is profiled: only then `runner.experiment.profile` is needed, which tells how."""
    return not isinstance(profiling, NoProfiling) or profiling.options is not None or session.profiling_mode


def wanted(profiling: Profiling, session: Session) -> dict[str, Any]:
    """The validated keys of the profile, by their usual names, from any source. Raises ConfigError or ConfigErrors."""
    if session.profiling_mode:
        return _of_session(session)
    options = {} if profiling.options is None else profile.keys.read(profiling.options, "profiling.options")
    own = {f.name: getattr(profiling, f.name) for f in fields(profiling) if f.name not in ("name", "options")}
    made: dict[str, Any] = profile.keys.combined(("profiling.options.", options), ("profiling.", own))
    return made


def disagreements(profiling: Profiling, session: Session, alone: bool) -> Iterator[ConfigError]:
    """What is wrong with a profile as a whole, its JSON text included. `alone`: whether one process trains."""
    if session.profiling_mode and is_asked(profiling, Session()):
        hint = "session.profiling_mode=false, or profiling=none without profiling.options"
        yield ConfigError("a profile is asked for twice", key="session.profiling_mode", value="true", hint=hint)
        return
    chosen, wrong = attempted(_validated, profiling, session)
    yield from wrong
    if chosen is None:
        return
    prefix = "session." if session.profiling_mode else "profiling."
    yield from profile.keys.contradictions(chosen, prefix)
    if chosen.get("op_trace") and not alone:
        reason = "they disturb each other, and an operator that exchanges needs all of them"
        rows = {"value": chosen["op_trace"], "reason": reason, "repair": "the same command with parallel=stand_alone"}
        yield ConfigError("several ranks cannot measure one operator alone", key=f"{prefix}op_trace", **rows)
    if session.profiling_mode and not session.profiling_options.lstrip().startswith("{"):
        yield from _missing_points(chosen)


def _validated(profiling: Profiling, session: Session) -> dict[str, Any] | None:
    """As `wanted`, with a look at the words of a session that asks for nothing; None when nobody asks."""
    if session.profiling_options != Session.profiling_options or session.profiling_mode:
        profile.keys.read(session.profiling_options, "session.profiling_options")
    return wanted(profiling, session) if is_asked(profiling, session) else None


def _of_session(session: Session) -> dict[str, Any]:
    options = dict(profile.keys.read(session.profiling_options, "session.profiling_options"))
    if options.get("op_trace") == "" and session.op_trace is not None:
        del options["op_trace"]  # the word asks for it, the key says for which operator
    own = {name: getattr(session, name) for name in ("fp_point", "bp_point", "op_trace")}
    made: dict[str, Any] = profile.keys.combined(("session.profiling_options.", options), ("session.", own))
    if made.get("task_trace"):
        made.setdefault("training_trace", True)
    return made


def _missing_points(chosen: Mapping[str, Any]) -> Iterator[ConfigError]:
    for name, what in (("fp_point", "forward part begins"), ("bp_point", "backward part ends")):
        if "op_trace" not in chosen and not chosen.get(name):
            rows = {
                "allowed": f"the full name of the operator with which the {what}",
                "hint": "profiling=trace finds it by itself; save_graphs=true shows the names",
            }
            yield ConfigError("training_trace of a session needs this operator", key=f"session.{name}", **rows)
