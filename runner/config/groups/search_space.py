"""The dimensions of a search, and whether Optuna, which proposes its trials, is installed."""

import importlib.util
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from runner.errors import ConfigError

INSTALL = 'pip install "runner[optuna]"'
OLDEST = 4  # the major version since which its journal files are not experimental
SAMPLERS = ("tpe", "random", "grid")


@dataclass(frozen=True)
class Choice:
    """A key and the texts that it may have, which have no order."""

    key: str
    texts: tuple[str, ...]

    def text(self, value: Any) -> str:
        """A value of the study as it stands in an override."""
        return str(value)

    def points(self) -> list[str]:
        """All values of the study."""
        return list(self.texts)


@dataclass(frozen=True)
class Number:
    """A key and the numbers that it may have, `low` and `high` among them.

    `step` is None for all of them, or else `texts` are those of a range, upwards, as they stand in overrides.
    """

    key: str
    low: float
    high: float
    whole: bool = False
    log: bool = False
    step: float | None = None
    texts: tuple[str, ...] = ()

    def text(self, value: Any) -> str:
        """A value of the study as it stands in an override."""
        if self.step is not None:
            place: int = round((value - self.low) / self.step)
            return self.texts[place]
        return repr(int(value) if self.whole else float(value))

    def points(self) -> list[float]:
        """All values of the study, of a range."""
        kind = int if self.whole else float
        return [kind(self.low + place * (self.step or 1)) for place in range(len(self.texts))]


Dimension = Choice | Number


def missing() -> ConfigError | None:
    """What is to be installed before there can be a study, if anything."""
    if importlib.util.find_spec("optuna") is None:
        return ConfigError("the search needs Optuna", key="hydra/sweeper", value="optuna", repair=INSTALL)
    found = version()
    if int(found.partition(".")[0]) < OLDEST:
        rows = {"found": found, "allowed": f"at least {OLDEST}", "repair": INSTALL}
        return ConfigError("this Optuna is too old", key="hydra/sweeper", value="optuna", **rows)
    return None


def version() -> str:
    """The version of Optuna, on which proposals depend."""
    return metadata.version("optuna")
