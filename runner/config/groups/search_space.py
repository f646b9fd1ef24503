"""The dimensions of a search space, and the check for Optuna, which proposes trials."""

import importlib.util
from typing import Any

from runner.errors import ConfigError
from runner.validation.rules import Frozen

INSTALL = 'pip install "runner-ml[optuna]"'
OLDEST = 4  # the first major version whose journal files are not experimental
SAMPLERS = ("tpe", "random", "grid")


class Choice(Frozen):
    """A key with unordered values, as text."""

    key: str
    texts: tuple[str, ...]

    def text(self, value: Any) -> str:
        """A value of the study in the syntax of overrides."""
        return str(value)

    def points(self) -> list[str]:
        """All values of the study."""
        return list(self.texts)


class Number(Frozen):
    """A key with numbers from `low` to `high`, both included.

    `step` is None for an interval. For a range, `texts` are its values in ascending order, as in overrides.
    """

    key: str
    low: float
    high: float
    integral: bool = False
    log: bool = False
    step: float | None = None
    texts: tuple[str, ...] = ()

    def text(self, value: Any) -> str:
        """A value of the study in the syntax of overrides."""
        if self.step is not None:
            index: int = round((value - self.low) / self.step)
            return self.texts[index]
        return repr(int(value) if self.integral else float(value))

    def points(self) -> list[float]:
        """All values of the study, of a range."""
        kind = int if self.integral else float
        return [kind(self.low + index * (self.step or 1)) for index in range(len(self.texts))]


Dimension = Choice | Number


def missing() -> ConfigError | None:
    """The error if Optuna is missing or too old; None otherwise."""
    if importlib.util.find_spec("optuna") is None:
        return ConfigError("the search needs Optuna", key="hydra/sweeper", value="optuna", repair=INSTALL)
    found = version()
    if int(found.partition(".")[0]) < OLDEST:
        rows = {"found": found, "allowed": f"at least {OLDEST}", "repair": INSTALL}
        return ConfigError("this Optuna is too old", key="hydra/sweeper", value="optuna", **rows)
    return None


def version() -> str:
    """The version of Optuna, on which proposals depend."""
    from importlib import metadata  # here: few starts search

    return metadata.version("optuna")
