"""The part of a run that ranks other than the first execute: training; they write only dumps and profiles."""

from contextlib import closing

from runner.config.groups.services import profiling_is_requested as is_profiled
from runner.config.schema import RunRequest
from runner.core.graph import NO_GRAPHS
from runner.experiment import profile, run
from runner.experiment.build import build
from runner.experiment.ranks import synchronize
from runner.host.process import Interruption
from runner.train.callback import LossMonitor


def follow(request: RunRequest) -> None:
    """Execute the training steps of a run; the first rank also evaluates. Raises the errors of training."""
    config, folder = request.config, request.folder
    if not config.session.graph_run_mode:
        return
    with run.run_environment(config), closing(run.value_observer(request)) as values:
        experiment = build(config, NO_GRAPHS, values, run.failure_observer(config, folder))
        if is_profiled(config.profiling, config.session):
            profile.attach(request, experiment)
        if config.checkpoint.load is not None and not request.resume:
            synchronize.read_on_first_rank(experiment.model.network)
        before = {}
        if request.resume:
            before = synchronize.read_on_first_rank(experiment.model.train_network)
            values.rewind(int(before.get("global_step", 0)))
        with Interruption() as interruption:
            flush = synchronize.FlushValues(values)  # before the reduction after which the first rank may save
            callbacks = [LossMonitor(0), flush, synchronize.SynchronizeSignals(interruption)]
            run.execute_steps(config, experiment, callbacks, before)
