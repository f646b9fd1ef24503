"""`runner.log`: the log functions of MindSpore, which write to the log of runner."""

import logging
import os
from typing import Any

from runner.errors import ConfigError
from runner.host.console import LOG

__all__ = ["debug", "error", "get_level", "get_log_config", "info", "warning"]

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)  # by the value of the variable GLOG_v
_VARIABLE, _DEFAULT = "GLOG_v", "2"


def debug(msg: str, *args: Any, **kwargs: Any) -> None:
    """Write a line if the level is 0."""
    _write(logging.DEBUG, msg, args, kwargs)


def info(msg: str, *args: Any, **kwargs: Any) -> None:
    """Write a line if the level is at most 1."""
    _write(logging.INFO, msg, args, kwargs)


def warning(msg: str, *args: Any, **kwargs: Any) -> None:
    """Write a line if the level is at most 2, which is the default."""
    _write(logging.WARNING, msg, args, kwargs)


def error(msg: str, *args: Any, **kwargs: Any) -> None:
    """Write a line."""
    _write(logging.ERROR, msg, args, kwargs)


def get_level() -> str:
    """The level: "0" debug, "1" info, "2" warning, "3" error. Raises ConfigError for another value of GLOG_v."""
    level = os.environ.get(_VARIABLE, _DEFAULT)
    if level not in ("0", "1", "2", "3"):
        raise ConfigError("not a log level", variable=_VARIABLE, value=level, allowed="0, 1, 2, 3")
    return level


def get_log_config() -> dict[str, str]:
    """The settings of the log, as in the environment: here only the level."""
    return {_VARIABLE: get_level()}


def _write(level: int, msg: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if level >= _LEVELS[int(get_level())]:
        _enable(level)
        LOG.log(level, msg, *args, **kwargs)


def _enable(level: int) -> None:
    """Let lines of this level pass, also where nothing has configured the log of the program."""
    if not LOG.isEnabledFor(level):
        LOG.setLevel(level)
    if not LOG.hasHandlers() and level < logging.WARNING:  # which Python's last resort leaves out
        LOG.addHandler(logging.StreamHandler())
