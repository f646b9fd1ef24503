"""Online inference (`session.graph_run_mode=0`): a run that evaluates a network with the weights of `checkpoint.load`.

Nothing is trained, and no gradients are computed. Graph mode compiles the evaluation with the weights as constants, and
BatchNorm is folded into the preceding convolutions (`passes.INFERENCE`), unless `eval.freeze` is false; PyNative mode
evaluates as usual. The run directory has `metrics.jsonl` with one `eval` event, the summary, the manifest, which names
the weights, and `model/network.onnx`.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from runner import compile as compiler, context
from runner.config.schema import CheckpointSettings, RunRequest, names_of
from runner.core.graph import GraphObserver
from runner.experiment import run as training
from runner.experiment.build import Experiment, build
from runner.experiment.callbacks import MetricsJournal, Stopwatch
from runner.experiment.manifest import ManifestWriter, description_of
from runner.experiment.observers import graph_observer
from runner.experiment.results import write_networks
from runner.host import files
from runner.host.console import LOG
from runner.host.files import Journal, write_json
from runner.nn.steps import GraphStep
from runner.nn.wrap import WithEvalCell
from runner.train.callback import CallbackParameters
from runner.train.checkpoint.initial_weights import InitialWeights
from runner.train.checkpoint.state import state_file


def run(request: RunRequest) -> dict[str, Any]:
    """Evaluate, write the run folder, and return the summary. Raises the errors of `runner.experiment.run.run`."""
    config, folder, stopwatch = request.config, request.folder, Stopwatch()
    write_json(folder / training.CONFIG_FILE, request.resolved)
    with training.run_environment(config):
        experiment = build(config, observer := graph_observer(request))
        weights = _load_weights(config.checkpoint, experiment)
        if config.eval.freeze:
            _freeze(experiment, observer)
        description = description_of(request, experiment, stopwatch)
        path = folder / training.MANIFEST_FILE
        manifest = ManifestWriter(path, lambda: description.manifest() | {"weights": weights})
        cb_params = CallbackParameters(cur_epoch_num=0, cur_step_num=0, net_outputs=np.float32(np.nan))
        with closing(Journal(folder / training.METRICS_FILE)) as journal:
            journal.cut(0)  # of an evaluation that was killed
            metrics, observers = MetricsJournal(journal), [stopwatch, manifest]
            values = training.final_evaluation(experiment, folder, metrics, cb_params, observers)
        write_networks(experiment, folder)
    summary = description.summary(cb_params, values) | _evaluation_figures(experiment, stopwatch, values)
    return training.conclude(request, summary, values)


def _load_weights(settings: CheckpointSettings, experiment: Experiment) -> dict[str, str] | None:
    """Load the weights that the config names; their path and sha256 (hex)."""
    if settings.load is None:
        LOG.warning("the network is evaluated with its initial weights: set checkpoint.load to load others")
        return None
    names = None if settings.names is None else names_of(settings.names)
    source = InitialWeights(settings.load, settings.prefix, settings.strict is not False, names)
    found = source.load(experiment.model.network, experiment.model.loss_fn)
    return {"path": str(found.absolute()), "sha256": files.sha256(state_file(found))}


def _freeze(experiment: Experiment, observer: GraphObserver) -> None:
    """Make the weights constants of the evaluation, in graph mode."""
    model = experiment.model
    if model.eval_mode == context.GRAPH_MODE and model.eval_network is not None:
        names = experiment.eval_data.get_col_names(), WithEvalCell.outputs
        model.eval_step = GraphStep(model.eval_network, model.device, "eval_step", *names, observer, compiler.INFERENCE)


def _evaluation_figures(experiment: Experiment, stopwatch: Stopwatch, values: dict[str, Any]) -> dict[str, Any]:
    """The entries of a training summary that an evaluation computes differently."""
    step = experiment.model.eval_step
    programs: Sequence[compiler.Program] = list(step.programs.values()) if isinstance(step, GraphStep) else []
    compiling = sum(program.compile_seconds for program in programs)
    return {
        "providers": list(programs[0].session.providers) if programs else ["numpy"],
        "loss": values.get("loss"),
        "compile_seconds": compiling,
        "eval_seconds": stopwatch.train_seconds - compiling,
        "train_seconds": 0.0,
    }
