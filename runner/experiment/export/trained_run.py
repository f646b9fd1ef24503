"""A finished run, built again with the parameters of its newest checkpoint, for the writers of `runner export`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from runner import nn
from runner.config import code
from runner.config.check import check
from runner.config.schema import RunConfig
from runner.core.values import Parameter
from runner.errors import ConfigError
from runner.experiment.build import Experiment, build
from runner.experiment.code import naming_code_of
from runner.experiment.evaluate_run import config_of, newest_checkpoint, without_training_settings
from runner.experiment.run import MANIFEST_FILE, initial_weights_of, run_environment
from runner.host.console import LOG
from runner.host.json import read_optional
from runner.train.checkpoint import load_param_into_net
from runner.validation.rules import Frozen

CPU = {"target": "CPU", "id": 0}


class TrainedRun(Frozen):
    """The experiment of a run as one process on the CPU, with the parameters of its newest checkpoint.

    `initial` and `state` have all parameters of the training step by name, before the first step of the run and after
    `step` steps.
    """

    folder: Path
    config: RunConfig
    experiment: Experiment
    initial: dict[str, np.ndarray]
    state: dict[str, np.ndarray]
    step: int

    def first_batch(self) -> tuple[np.ndarray, ...]:
        """The first batch of the training data."""
        data = self.experiment.train_data
        batches = data.prepared(data.visits_from(0))
        try:
            return next(batches)
        finally:
            batches.close()


@contextmanager
def opened(folder: Path, given_code: Sequence[str] = ()) -> Iterator[TrainedRun]:
    """The run in `folder`, which is only read; inside, seed and context are those of the run.

    Raises ConfigError when there is no run, or its code and its weights do not fit, DataError for its checkpoints and
    for data.
    """
    code.load(code.sources(given_code))
    manifest = read_optional(folder / MANIFEST_FILE)
    with naming_code_of(folder, manifest, "export"):
        values = config_of(folder)
        newest = newest_checkpoint(folder, values.get("checkpoint"))
        config = check(_of_one_process(values))
    with run_environment(config):
        experiment = build(config)
        if config.checkpoint.load is not None:
            initial_weights_of(config.checkpoint, experiment).load(experiment.model.network)
        cell = experiment.model.train_network
        _sum_gradients(cell, values, manifest)
        initial = arrays_of(cell)
        try:
            load_param_into_net(cell, {name: Parameter(x, name) for name, x in newest.arrays.items()}, True)
        except ConfigError as error:
            raise error.add(checkpoint=newest.folder) from None
        step = int(newest.progress.get("global_step", 0))
        yield TrainedRun(folder, config, experiment, initial, arrays_of(cell), step)


def arrays_of(cell: nn.Cell) -> dict[str, np.ndarray]:
    """Copies of the values of all parameters of a cell, by name."""
    return {parameter.name: np.array(parameter.array) for parameter in cell.get_parameters()}


def set_arrays(cell: nn.Cell, arrays: dict[str, np.ndarray]) -> None:
    """Set parameters of a cell by name."""
    for parameter in cell.get_parameters():
        if parameter.name in arrays:
            parameter.set_data(np.array(arrays[parameter.name]))


def _of_one_process(values: dict[str, Any]) -> dict[str, Any]:
    """The config of a run as a training on the CPU, without what a training writes or requires."""
    kept = without_training_settings(values)
    device = kept.get("device")
    kept["device"] = {**(device if isinstance(device, dict) else {}), **CPU}
    return kept | {"max_steps": values.get("max_steps")}


def _sum_gradients(cell: nn.Cell, values: dict[str, Any], manifest: dict[str, Any]) -> None:
    """The step of a run whose processes sum their gradients: that of one process, times their number."""
    parallel, ranks = values.get("parallel"), manifest.get("ranks", 1)
    if not isinstance(parallel, dict) or parallel.get("name") != "data_parallel" or ranks == 1:
        return
    LOG.warning("the run had %s processes; the exported step is that of one process with the whole batch", ranks)
    if parallel.get("gradients_mean"):
        return
    if not isinstance(cell, nn.TrainOneStepCell) or not isinstance(ranks, int):
        repair = "train with parallel.gradients_mean=true"
        raise ConfigError("the step of processes that sum scaled gradients cannot be exported", repair=repair)
    cell.sens *= ranks
