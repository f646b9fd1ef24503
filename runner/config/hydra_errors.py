"""Exceptions of Hydra and OmegaConf as ConfigError."""

from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from runner.config.groups.parallel import HINT, UNSUPPORTED
from runner.config.overrides import COMMAND_LINE
from runner.errors import ConfigError, nearest
from runner.validation.validate import show


@contextmanager
def as_config_error() -> Iterator[None]:
    """Convert exceptions of Hydra and OmegaConf to ConfigError."""
    try:
        yield
    except MissingConfigException as reason:
        raise _missing(reason) from None
    except (HydraException, OmegaConfBaseException, ValueError, AssertionError, RecursionError) as reason:
        if isinstance(reason, ConfigError):
            raise
        key = getattr(reason, "full_key", None) or None
        raise ConfigError("the configuration cannot be composed", key=key, reason=_first_cause(reason)) from None


def not_an_option(group: str, option: object, options: list[str], origin: str = COMMAND_LINE) -> ConfigError:
    """The error for an unknown option of a group."""
    close = nearest(str(option), options)
    rows = {"key": group, "value": show(option), "allowed": ", ".join(options), "nearest": close}
    hint = HINT if group == "parallel" and option in UNSUPPORTED else None
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
