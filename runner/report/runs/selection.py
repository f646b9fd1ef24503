"""Which runs `runner ls` shows, and in what order: `--status`, `--where`, `--sort`, `--best`, `--limit`."""

from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runner.errors import ConfigError, nearest
from runner.report.runs.figures import LARGER_IS_BETTER, TEST_LOSS, RunFigures
from runner.report.values import is_number
from runner.validation.rules import Frozen

NEWEST_FIRST = ("started", "finished")
_TRUTH = {"true": True, "false": False, "null": None}


class Selection(Frozen):
    """The flags of `runner ls` that select and sort runs. `where` has keys with the texts that they must equal."""

    states: tuple[str, ...] = ()
    where: tuple[tuple[str, str], ...] = ()
    sort: str | None = None
    limit: int | None = None
    best: bool = False

    @classmethod
    def of(cls, args: Namespace) -> "Selection":
        """From the parsed arguments. Raises ConfigError for a condition that is not KEY=VALUE."""
        pairs = [condition.partition("=") for condition in args.where]
        for (key, equals, _), text in zip(pairs, args.where, strict=True):
            if not key or not equals:
                raise ConfigError("not a condition", value=text, allowed="KEY=VALUE, such as optimizer.name=adam")
        where = tuple((key, value) for key, _, value in pairs)
        return cls(tuple(args.status), where, args.sort, args.limit, args.best)

    def apply(self, runs: Sequence[RunFigures]) -> list[RunFigures]:
        """The selected runs. `runs` are newest first, and stay so without another order.

        Raises ConfigError for a key that no run has.
        """
        key = self.sort or (_metric(runs) if self.best else None)
        _check_keys([*(name for name, _ in self.where), *filter(None, [key])], runs)
        found = [run for run in runs if self._accepts(run)]
        if key is not None:
            found = self._sorted(found, key, _maximized(runs))
        return found[: 1 if self.best else self.limit]

    def _accepts(self, run: RunFigures) -> bool:
        if self.states and run.run.state not in self.states:
            return False
        return all(is_equal(run.value(key), text) for key, text in self.where)

    def _sorted(self, runs: Sequence[RunFigures], key: str, maximized: Collection[str]) -> list[RunFigures]:
        """The runs by a value: the best metric first, the newest time first, others ascending; without a value last."""
        values = [(run.value(key), run) for run in runs]
        known = [(value, run) for value, run in values if value is not None]
        reverse = key in maximized or key in NEWEST_FIRST
        known.sort(key=lambda pair: (is_number(pair[0]), _order(pair[0])), reverse=reverse)
        without = [] if self.best else [run for value, run in values if value is None]
        return [run for _, run in known] + without


def is_equal(value: object, text: str) -> bool:
    """Whether a value of a config equals a text of the command line.

    >>> is_equal(0.1, "1e-1"), is_equal(True, "true"), is_equal(None, "null"), is_equal([1, 2], "[1,2]")
    (True, True, True, True)
    >>> is_equal("adam", "sgd"), is_equal(1, "true")
    (False, False)
    """
    if isinstance(value, bool) or value is None:
        return text.lower() in _TRUTH and _TRUTH[text.lower()] is value
    if isinstance(value, int | float):
        return _as_number(text) == value
    if isinstance(value, list):
        return ",".join(map(str, value)) == text.strip("[]").replace(", ", ",")
    return str(value) == text


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _order(value: Any) -> Any:
    return value if is_number(value) else str(value)


def _metric(runs: Sequence[RunFigures]) -> str:
    """The metric of `--best` without `--sort`: the accuracy if there is one, or else a loss."""
    names = {name for run in runs for name in run.metrics}
    return next((name for name in ("accuracy", TEST_LOSS) if name in names), "loss")


def _maximized(runs: Sequence[RunFigures]) -> frozenset[str]:
    """The names of the metrics for which larger is better."""
    said = [run.run.maximized for run in runs]
    return LARGER_IS_BETTER.union(*(names for names in said if names is not None))


def _check_keys(keys: Sequence[str], runs: Sequence[RunFigures]) -> None:
    """Raise ConfigError for a key that no run has; a group, such as `optimizer`, is one."""
    if not keys or not runs:
        return
    known: Mapping[str, None] = dict.fromkeys(name for run in runs for name in sorted(run.names))
    for key in keys:
        if key not in known and f"{key}.name" not in known:
            hint = "a column of `runner ls`, a metric, or a key of the config"
            raise ConfigError("no run has this key", key=key, nearest=nearest(key, known), hint=hint)
