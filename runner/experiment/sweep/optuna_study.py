"""An Optuna study that is asked for trials and told how they ended: the only file that speaks Optuna.

Everything it proposes follows from the seed and from what it was told, in the order of trials. So a study that is asked
and told the same again goes on as the first one would have.
"""

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.config.groups.search_space import Choice, Dimension
from runner.errors import ConfigError, DataError
from runner.host.files import storage_error


class Study:
    """Proposes trials of a space, numbered from 0, so that a value gets large (`maximize`) or small (`minimize`).

    `sampler` is one of SAMPLERS; `several` says that trials are asked for while others are not told yet.
    """

    def __init__(
        self, dimensions: Sequence[Dimension], direction: str, sampler: str, seed: int, several: bool = False
    ) -> None:
        self._dimensions = {one.key: one for one in dimensions}
        with _quiet() as optuna:
            self._distributions = {one.key: _distribution(optuna, one) for one in dimensions}
            chosen = _sampler(optuna, dimensions, sampler, seed, several)
            self._study = optuna.create_study(direction=direction, sampler=chosen)
        self._running: dict[int, Any] = {}
        self._copy: _Copy | None = None

    def ask(self, wanted: int) -> dict[int, dict[str, str]]:
        """So many trials: by number, the text of each key."""
        with _quiet():
            trials = [self._study.ask(self._distributions) for _ in range(wanted)]
        self._running |= {trial.number: trial for trial in trials}
        return {trial.number: self._texts(trial.params) for trial in trials}

    def tell(self, number: int, value: float | None) -> None:
        """How a trial ended: its value, or None when it failed. Raises StorageError when a copy cannot be written."""
        with _quiet() as optuna:
            state = optuna.trial.TrialState.FAIL if value is None else None
            told = self._study.tell(self._running.pop(number), value, state=state)
            if self._copy is not None:
                self._copy.keep(told)

    def copy_to(self, file: Path, name: str, told: int) -> None:
        """From now on also keep trials in a file in the format of Optuna's journals, which its tools show.

        The study of this name there may have as many as were `told` before. Raises ConfigError when it is another
        one, DataError, StorageError.
        """
        with _quiet() as optuna:
            self._copy = _Copy(optuna, file, name, self._study.direction)
        if self._copy.length > told:
            hint = "hydra.sweeper.study_name gives this study another name"
            raise ConfigError("a study of this name is there already", file=file, value=name, hint=hint)

    def _texts(self, params: Mapping[str, Any]) -> dict[str, str]:
        return {key: self._dimensions[key].text(value) for key, value in params.items()}


class _Copy:
    """A study in a file that grows with ours and is never asked."""

    def __init__(self, optuna: Any, file: Path, name: str, direction: Any) -> None:
        self._file = file
        with self._storing():
            file.parent.mkdir(parents=True, exist_ok=True)
            journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file)))
            made = optuna.create_study(storage=journal, study_name=name, direction=direction, load_if_exists=True)
            self._study, self.length = made, len(made.trials)

    def keep(self, told: Any) -> None:
        """Add a trial, unless it is there since before the search was resumed."""
        if told.number >= self.length:
            with self._storing():
                self._study.add_trial(told)

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as reason:
            raise storage_error("cannot keep the study", self._file, reason) from reason
        except (ValueError, KeyError) as reason:
            raise DataError("not a journal of Optuna", file=self._file, reason=reason) from None


def _distribution(optuna: Any, one: Dimension) -> Any:
    kinds = optuna.distributions
    if isinstance(one, Choice):
        return kinds.CategoricalDistribution(one.texts)
    if one.whole:
        return kinds.IntDistribution(int(one.low), int(one.high), log=one.log, step=int(one.step or 1))
    return kinds.FloatDistribution(one.low, one.high, log=one.log, step=one.step)


def _sampler(optuna: Any, dimensions: Sequence[Dimension], name: str, seed: int, several: bool) -> Any:
    kinds = optuna.samplers
    if name == "grid":
        made = kinds.GridSampler({one.key: one.points() for one in dimensions}, seed=seed)
        vars(made)["after_trial"] = lambda *_: None  # it would stop Optuna's own loop, which does not run here
        return made
    return kinds.RandomSampler(seed=seed) if name == "random" else kinds.TPESampler(seed=seed, constant_liar=several)


@contextmanager
def _quiet() -> Iterator[Any]:
    """Optuna's module; meanwhile it tells nothing: what it warns of are names that are new or on their way out."""
    optuna = importlib.import_module("optuna")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            yield optuna
        finally:
            optuna.logging.set_verbosity(before)
