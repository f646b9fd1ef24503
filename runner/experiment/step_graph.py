"""The file of the training step that every run in graph mode writes."""

from pathlib import Path

from runner import compile as compiler
from runner.experiment.build import Experiment
from runner.host.files import make_directory, write_atomically
from runner.ops.random import COUNTER
from runner.train.callback import Callback, RunContext


class StepGraphWriter(Callback):
    """Writes the step graph with the initial values after the first step, behind the callbacks that report its loss."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment, self.path = experiment, folder / "model" / "train_step.onnx"
        self.start = {p.name: p.array for p in experiment.model.train_network.get_parameters()}

    def begin(self, run_context: RunContext) -> None:
        # No parameter of the network, but of a step that draws random numbers.
        step = run_context.original_args().cur_step_num
        self.start[COUNTER.parameter.name] = COUNTER.of_steps(step, 1).reshape(())

    def step_end(self, run_context: RunContext) -> None:
        if self.start and self.experiment.model.programs and not self.path.exists():
            columns = self.experiment.train_data.get_col_names()
            graph = self.experiment.model.programs[0].graph
            content = compiler.standalone_step(graph, columns, ("loss",), self.start)
            make_directory(self.path.parent)
            write_atomically(self.path, content)
        self.start = {}
