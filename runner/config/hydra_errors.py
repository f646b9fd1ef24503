"""Exceptions of Hydra and OmegaConf as ConfigError."""

from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from runner.config.groups import REGISTERED
from runner.config.groups.parallel import HINT, UNSUPPORTED
from runner.config.overrides import COMMAND_LINE
from runner.config.project import project
from runner.errors import ConfigError, RunnerError, nearest
from runner.validation.rules import show


@contextmanager
def as_config_error(*more: type[Exception]) -> Iterator[None]:
    """Convert exceptions of Hydra and OmegaConf to ConfigError, and those of the types `more`, where only they run."""
    foreign: tuple[type[Exception], ...]
    foreign = (HydraException, OmegaConfBaseException, ValueError, AssertionError, RecursionError, *more)
    try:
        yield
    except MissingConfigException as reason:
        raise _missing(reason) from None
    except foreign as reason:
        if isinstance(reason, RunnerError):
            raise
        key = getattr(reason, "full_key", None) or None
        raise ConfigError("the configuration cannot be composed", key=key, reason=_first_cause(reason)) from None


def not_an_option(group: str, option: object, options: list[str], origin: str = COMMAND_LINE) -> ConfigError:
    """The error for an unknown option of a group."""
    close = nearest(str(option), options)
    rows = {"key": group, "value": show(option), "allowed": ", ".join(options), "nearest": close}
    hint = HINT if group == "parallel" and option in UNSUPPORTED else None
    if group in REGISTERED and close is None and project().file is None:
        hint = "the code of a project is loaded in the folder of its pyproject.toml, other code with --code FILE"
    return ConfigError("unknown option", **rows).add(**{"from": origin, "hint": hint})


def _missing(reason: MissingConfigException) -> ConfigError:
    group, _, option = str(reason.missing_cfg_file).rpartition("/")
    text = str(reason)
    origin = text[4 : text.index("':")] if text.startswith("In '") and "':" in text else None
    if reason.options:
        return not_an_option(group, option, list(reason.options), origin or COMMAND_LINE)
    return ConfigError("a config does not exist", value=reason.missing_cfg_file).add(**{"from": origin})


def _first_cause(reason: BaseException) -> str:
    while reason.__cause__ is not None:
        reason = reason.__cause__
    lines = [line.strip() for line in str(reason).splitlines() if line.strip() and "hydra.cc" not in line]
    if isinstance(reason, OmegaConfBaseException):
        lines = lines[:1]
    return "\n".join(lines[:3]) or type(reason).__name__
