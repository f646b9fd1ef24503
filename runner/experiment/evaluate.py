"""Online inference (`session.graph_run_mode=0`): a run that evaluates a network with the weights of `checkpoint.load`.

Nothing is trained, and no gradients are computed. Graph mode compiles the evaluation with the weights as constants, and
BatchNorm is folded into the preceding convolutions (`passes.INFERENCE`); PyNative mode evaluates as usual. The run
directory has `metrics.jsonl` with one `eval` event, the summary, the manifest and `model/network.onnx`.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from runner import compile as compiler, context
from runner.config.schema import RunRequest
from runner.core.observers import GraphObserver
from runner.experiment import run as training
from runner.experiment.build import Experiment, build
from runner.experiment.callbacks import MetricsJournal, Stopwatch
from runner.experiment.graphs import graph_observer
from runner.experiment.manifest import ManifestWriter, description_of
from runner.experiment.model_files import write_networks
from runner.host.files import write_json
from runner.host.journal import Journal
from runner.host.log import LOG
from runner.nn.steps import GraphStep
from runner.nn.wrap import WithEvalCell
from runner.train.callback import CallbackParameters
from runner.train.checkpoint import initial_weights


def run(request: RunRequest) -> dict[str, Any]:
    """Evaluate, write the run folder, and return the summary. Raises the errors of `runner.experiment.run.run`."""
    config, folder, stopwatch = request.config, request.folder, Stopwatch()
    write_json(folder / training.CONFIG_FILE, request.resolved)
    with training.run_environment(config):
        experiment = build(config, observer := graph_observer(request))
        if config.checkpoint.load is None:
            LOG.warning("the network is evaluated with its initial weights: set checkpoint.load to load others")
        else:
            source = config.checkpoint.load, config.checkpoint.prefix, config.checkpoint.strict is not False
            initial_weights.load(experiment.model.network, *source)
        step = _freeze(experiment, observer)
        description = description_of(request, experiment, stopwatch)
        manifest = ManifestWriter(folder / training.MANIFEST_FILE, description.manifest)
        cb_params = CallbackParameters(cur_epoch_num=0, cur_step_num=0, net_outputs=np.float32(np.nan))
        with closing(Journal(folder / training.METRICS_FILE)) as journal:
            metrics, observers = MetricsJournal(journal), [stopwatch, manifest]
            values = training.final_evaluation(experiment, folder, metrics, cb_params, observers)
        write_networks(experiment, folder)
    summary = description.summary(cb_params, values) | _evaluation_figures(step, stopwatch, values)
    return training.conclude(request, summary, values)


def _freeze(experiment: Experiment, observer: GraphObserver) -> GraphStep | None:
    model = experiment.model
    if model.eval_mode != context.GRAPH_MODE or model.eval_network is None:
        return None
    names = experiment.test_data.get_col_names(), WithEvalCell.outputs
    step = GraphStep(model.eval_network, model.device, "eval_step", *names, observer, compiler.INFERENCE)
    model.eval_step = step
    return step


def _evaluation_figures(step: GraphStep | None, stopwatch: Stopwatch, values: dict[str, Any]) -> dict[str, Any]:
    """The entries of a training summary that an evaluation computes differently."""
    programs: Sequence[compiler.Program] = [] if step is None else list(step.programs.values())
    compiling = sum(program.compile_seconds for program in programs)
    return {
        "providers": list(programs[0].session.providers) if programs else ["numpy"],
        "loss": values.get("loss"),
        "compile_seconds": compiling,
        "eval_seconds": stopwatch.train_seconds - compiling,
        "train_seconds": 0.0,
    }
