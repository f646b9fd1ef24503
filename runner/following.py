"""What ranks other than the first do of a run: train, and write nothing but dumps and profiles."""

from contextlib import closing

from runner import agreement, experiment
from runner.build import build
from runner.config.profiling import is_asked as is_profiled
from runner.config.schema import RunRequest
from runner.core.observer import SILENT
from runner.interrupt import Interruption
from runner.startup import lazy_import
from runner.train.callback import LossMonitor

profiled = lazy_import("runner.profiled")  # few runs are


def follow(request: RunRequest) -> None:
    """Make the steps of a run together with the first rank. Raises what they raise, as there."""
    config = request.config
    with experiment.settled(config), closing(experiment.value_observer(config, request.folder)) as shown:
        built = build(config, SILENT, shown)
        if is_profiled(config.profiling, config.session):
            profiled.watch(config, built, request.folder)
        before = agreement.shared(built.model.train_network, {}) if request.resume else {}
        with Interruption() as interruption:
            built.model.train(
                config.epochs,
                built.train_data,
                [LossMonitor(0), agreement.Agreement(interruption)],
                config.dataset_sink_mode,
                config.sink_size,
                max_steps=config.max_steps,
                first_step=int(before.get("global_step", 0)),
            )
