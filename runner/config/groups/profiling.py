"""Keys of the group `profiling`, which depend on its `name`, and the profile that they request.

Those of `trace` are in `runner.observe.profile.settings`; whatever profiles is only loaded if a profile is requested.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.config.groups.session import SessionSettings
from runner.errors import ConfigError, collect_errors
from runner.observe.profile.settings import (
    UNNAMED,
    ProfileSettings,
    TraceProfiling,
    merged,
    options,
    options_text,
    path_in_options,
)
from runner.validation.rules import Frozen, key


class NoProfiling(Frozen):
    """No profile, unless `options` requests one: words, or the JSON text of the context's `profiling_options`."""

    name: str = key("none", choices=("none",))  # the kind of profile
    options: str | None = key(None, validate=options_text, writes=path_in_options)  # JSON with these keys, or words


Profiling = NoProfiling | TraceProfiling


def is_requested(profiling: Profiling, session: SessionSettings) -> bool:
    """Whether a run is profiled."""
    return not isinstance(profiling, NoProfiling) or profiling.options is not None or session.profiling_mode


def settings(profiling: Profiling, session: SessionSettings, folder: Path, device_id: int = 0) -> ProfileSettings:
    """The profile that the group or the session requests, in `folder` unless they name another one.

    Without options, `profiling=trace` traces everything. Raises ConfigError or ConfigErrors.
    """
    everything = isinstance(profiling, TraceProfiling) and profiling.options is None
    return ProfileSettings.from_values(_sources(profiling, session), folder, device_id, everything)


def consistency_errors(profiling: Profiling, session: SessionSettings, is_single: bool) -> Iterator[ConfigError]:
    """Errors of a profile as a whole, its texts included. `is_single`: whether one process trains."""
    if session.profiling_mode and is_requested(profiling, SessionSettings()):
        hint = "session.profiling_mode=false, or profiling=none without profiling.options"
        yield ConfigError("a profile is requested twice", key="session.profiling_mode", value="true", hint=hint)
        return
    if not session.profiling_mode and session.profiling_options != SessionSettings.profiling_options:
        yield from collect_errors(lambda: merged(_session_options(session)))[1]
    if not is_requested(profiling, session):
        return
    requested, errors = collect_errors(settings, profiling, session, Path())
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
