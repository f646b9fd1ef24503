"""Online inference (`session.graph_run_mode=0`): a run that evaluates a network with the weights of `checkpoint.load`.

Nothing is trained, and no gradients are built. Graph mode compiles the evaluation with the weights as constants, and
BatchNorm goes into the convolutions before it (`passes.INFERENCE`); PyNative mode evaluates as ever. The run directory
has `metrics.jsonl` with one `eval` event, the summary, the manifest and `model/network.onnx`.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import compile as compiler, context
from runner.config.schema import RunRequest
from runner.core.observers import GraphObserver
from runner.experiment import run as experiment
from runner.experiment.build import Experiment, build
from runner.experiment.callbacks import Clock, MetricsJournal
from runner.experiment.manifest import Facts, ManifestWriter
from runner.host.files import Journal, write_json
from runner.nn.cell import Cell
from runner.nn.steps import GraphStep
from runner.train.callback import CallbackParameters
from runner.train.checkpoint import initial_weights

_LOG = logging.getLogger("runner")
OUTPUTS = ("loss", "output", "label_out")


def run(request: RunRequest) -> dict[str, Any]:
    """Evaluate, write the run folder, and return the summary. Raises as `experiment.run`."""
    config, folder, clock = request.config, request.folder, Clock()
    write_json(folder / experiment.CONFIG_FILE, request.resolved)
    with experiment.settled(config):
        built = build(config, observer := experiment.graphs_of(config, folder))
        if config.checkpoint.load is None:
            _LOG.warning("the network is evaluated as it was initialised: checkpoint.load names its weights")
        else:
            initial_weights.load(built.model.network, config.checkpoint.load, config.checkpoint.prefix)
        step = _freeze(built, observer)
        facts = Facts(request, built, clock, {})
        manifest = ManifestWriter(folder / "manifest.json", facts.manifest)
        seen = CallbackParameters(cur_epoch_num=0, cur_step_num=0, net_outputs=np.float32(np.nan))
        with Journal(folder / "metrics.jsonl") as journal:
            values = experiment.evaluate(built, MetricsJournal(journal), seen, [clock, manifest])
        experiment.write_network(built, folder)
    return experiment.concluded(request, facts.summary(seen, values) | _differing(step, clock, values), values)


def _freeze(built: Experiment, observer: GraphObserver) -> GraphStep | None:
    model = built.model
    if model.eval_mode != context.GRAPH_MODE or model.eval_network is None:
        return None
    cell: Cell = model.eval_network
    step = GraphStep(cell, model.device, "eval_step", ("image", "label"), OUTPUTS, observer, compiler.INFERENCE)
    model.eval_step = step
    return step


def _differing(step: GraphStep | None, clock: Clock, values: dict[str, float]) -> dict[str, Any]:
    """What the summary of a training says of training, said of the evaluation."""
    programs: Sequence[compiler.Program] = [] if step is None else list(step.programs.values())
    compiling = sum(program.compile_seconds for program in programs)
    return {
        "providers": list(programs[0].session.providers) if programs else ["numpy"],
        "loss": values.get("loss"),
        "compile_seconds": compiling,
        "eval_seconds": clock.train_seconds - compiling,
        "train_seconds": 0.0,
    }
