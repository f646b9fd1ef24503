"""What ranks other than the first do of a run: train, and write nothing but dumps and profiles."""

from contextlib import closing

from runner.config.groups.profiling import is_requested as is_profiled
from runner.config.schema import RunRequest
from runner.core.observers import NO_GRAPHS
from runner.experiment import profile, run
from runner.experiment.build import build
from runner.experiment.ranks import agreement
from runner.host.signals import Interruption
from runner.train.callback import LossMonitor


def follow(request: RunRequest) -> None:
    """Make the steps of a run together with the first rank, which evaluates alone. Raises what they raise, as there."""
    config, folder = request.config, request.folder
    if not config.session.graph_run_mode:
        return
    with run.settled(config), closing(run.value_observer(config, folder)) as shown:
        built = build(config, NO_GRAPHS, shown, run.failure_observer(config, folder))
        if is_profiled(config.profiling, config.session):
            profile.watch(config, built, folder)
        if config.checkpoint.load is not None and not request.resume:
            agreement.first_reads(built.model.network)
        before = agreement.first_reads(built.model.train_network) if request.resume else {}
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
