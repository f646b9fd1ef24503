"""Stands for the second-order optimizer THOR, which scripts of the ModelZoo import and few of their configs use."""

from typing import Any, NoReturn

from runner.errors import MissingName
from runner.mindspore.names import reason

__all__ = ["ConvertModelUtils", "ConvertNetUtils", "thor"]


def _missing(name: str) -> NoReturn:
    found = reason("nn", "thor")
    assert found is not None
    rows = {"name": f"mindspore.{name}", "why": found.why, "use": found.alternative}
    raise MissingName("a public name of MindSpore r1.2 that runner does not have", **rows)


def thor(*_: Any, **__: Any) -> NoReturn:
    """Raises MissingName."""
    _missing("nn.thor")


class ConvertModelUtils:
    """Raises MissingName when it is made."""

    def __init__(self) -> None:
        _missing("train.train_thor.ConvertModelUtils")


class ConvertNetUtils:
    """Raises MissingName when it is made."""

    def __init__(self) -> None:
        _missing("train.train_thor.ConvertNetUtils")
