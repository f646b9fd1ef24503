"""Training and evaluation in the run of a script: the parts of `runner.experiment.run`, with a model of the script."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from runner import context
from runner.config.code import imported_files
from runner.config.schema import CheckpointSettings
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError, StorageError
from runner.experiment.build import Experiment
from runner.experiment.callbacks import MetricsJournal, Stopwatch
from runner.experiment.checkpointer import Checkpointer, restore
from runner.experiment.code import write_copies
from runner.experiment.manifest import ManifestWriter, RunDescription, Subject, config_hash
from runner.experiment.results import write_networks
from runner.experiment.run import MANIFEST_FILE, SUMMARY_FILE, Evaluation, RunMonitor, final_evaluation
from runner.experiment.script.command import ScriptCommand
from runner.experiment.status import Status
from runner.experiment.step_graph import StepGraphWriter
from runner.host.console import LOG
from runner.host.files import Journal, write_json
from runner.host.json import flat
from runner.host.process import Interruption
from runner.host.seed import get_seed
from runner.train.callback import Callback, CallbackList, CallbackParameters
from runner.train.model import Model, check_train_arguments, epoch_steps, total_steps

MODE_NAMES = {context.GRAPH_MODE: "graph", context.PYNATIVE_MODE: "pynative"}


class ScriptSubject(Subject):
    """What a script's run is about: its config and names, and in `training` what its steps depend on besides."""

    ranks = 1

    def __init__(self, folder: Path, command: ScriptCommand, config: dict[str, Any], names: dict[str, Any]) -> None:
        self._folder, self.command, self.config, self._names = folder, command, config, names
        self.training: dict[str, Any] = {}
        self._code: dict[str, Path] = {}

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def names(self) -> dict[str, Any]:
        return self._names

    @property
    def inputs(self) -> dict[str, Any]:
        script = {"script": self.command.script, "script_sha256": self.command.sha256}
        return {"seed": get_seed(), "config_sha256": config_hash(self.config), **script}

    @property
    def identity(self) -> dict[str, Any]:
        return flat({"config": self.config, **self.training})

    @property
    def code(self) -> dict[str, Path]:
        return self._code

    def begin(self, experiment: Experiment, **training: Any) -> None:
        """Take the names and settings of a model that is about to be trained or evaluated, and the imported code."""
        script = self.command.script
        self._code = imported_files([os.path.dirname(script)]) if script else {}  # a step may import more
        model, types = experiment.model, experiment.train_data.column_types()
        found = {"mode": MODE_NAMES[model.mode], "device": model.device.target}
        self._names |= found | {"network": self._names["network"] or type(model.network).__name__}
        self.training = {
            "seed": get_seed(),
            "mode": found["mode"],
            "device": {name: getattr(model.device, name) for name in ("target", "id", "threads")},
            "precision_mode": context.get_context("precision_mode"),
            "training": training | {"batch": ", ".join(map(str, types))},
        }


class RecordedRun:
    """A run whose directory a script fills, made by `runner.record`.

    `folder` is its directory, `config` the values that the script gave, `resumed` whether it continues an earlier run.
    """

    def __init__(
        self,
        subject: ScriptSubject,
        settings: CheckpointSettings,
        journal: Journal,
        status: Status,
        *,
        resumed: bool,
        force: bool,
    ) -> None:
        self._subject, self._settings, self._status = subject, settings, status
        self._journal, self._metrics = journal, MetricsJournal(journal)
        self.folder, self.config = subject.folder, subject.config
        self.resumed, self._force = resumed, force
        self._stopwatch, self._values = Stopwatch(), dict[str, float]()
        self._description: RunDescription | None = None
        self._cb_params = CallbackParameters(cur_epoch_num=0, cur_step_num=0, net_outputs=np.float32(np.nan))

    def train(
        self,
        model: Model,
        epoch: int,
        train_dataset: Dataset,
        callbacks: Callback | Sequence[Callback] | None = None,
        dataset_sink_mode: bool = True,
        sink_size: int = -1,
        *,
        max_steps: int | None = None,
        test_dataset: Dataset | None = None,
    ) -> None:
        """Train as `model.train` does, with metrics, checkpoints and manifest in the run directory.

        A run that continues executes the steps after its newest checkpoint, with the same results as one that was not
        interrupted. `test_dataset` is evaluated after every epoch, with the metrics of the model. The first signal
        (SIGINT or SIGTERM) saves a checkpoint after the step and raises KeyboardInterrupt. Raises the errors of
        `model.train`, ConfigError for a second training and when something has changed that the results depend on,
        TrainingError when the loss is not finite.
        """
        check_train_arguments(epoch, train_dataset, dataset_sink_mode, sink_size, max_steps)
        steps = epoch_steps(train_dataset, dataset_sink_mode, sink_size)
        last, sunk = total_steps(epoch, steps, max_steps), dataset_sink_mode and model.mode == context.GRAPH_MODE
        splits = {"train": train_dataset} | ({} if test_dataset is None else {"test": test_dataset})
        experiment = Experiment(model, train_dataset, train_dataset if test_dataset is None else test_dataset, last)
        description, manifest = self._describe(experiment, splits, epoch_steps=steps, sunk=sunk)
        monitor, step_graph = RunMonitor(), StepGraphWriter(experiment, self.folder)
        self._restore(description)
        with Interruption() as interruption:
            observers = [self._stopwatch, monitor, self._metrics, manifest, *CallbackList(callbacks), step_graph]
            if test_dataset is not None:
                observers.append(Evaluation(experiment, self._metrics))
            observers.append(Checkpointer(description, self._settings, self._journal, interruption))
            first = int(description.before.get("global_step", 0))
            made = train_dataset, observers, dataset_sink_mode, sink_size
            model.train(epoch, *made, max_steps=max_steps, first_step=first)
        self._cb_params = monitor.ended(description.before)
        if test_dataset is not None:
            self._evaluate(experiment)

    def evaluate(self, model: Model, dataset: Dataset) -> dict[str, Any]:
        """The metrics of a model over a dataset, also written to `metrics.jsonl` and `summary.json`.

        Without a training before, the run is an evaluation. Raises the errors of `model.eval`, and TrainingError when a
        metric is not finite.
        """
        if not model.metrics:
            raise ConfigError("evaluation needs metrics", repair="Model(..., metrics={'accuracy'})")
        trained = self._description
        if trained is None:
            experiment = Experiment(model, dataset, dataset, 0)
            _, manifest = self._describe(experiment, {"test": dataset})
            self._journal.cut(0)
            self._evaluate(experiment, self._stopwatch, manifest)
            return dict(self._values)
        trained.experiment.test_data = dataset
        trained.metrics = model.metrics
        self._evaluate(replace(trained.experiment, model=model))
        if trained.add_data("test", dataset):
            self._manifest(trained).write()
        return dict(self._values)

    def conclude(self) -> dict[str, Any]:
        """Write network and summary, and return the summary. Raises ConfigError when nothing was recorded."""
        description = self._description
        if description is None:
            repair = "run.train(model, ...) in place of model.train(...), or run.evaluate(model, ...)"
            raise ConfigError("nothing was recorded", path=self.folder, repair=repair)
        try:
            write_networks(description.experiment, self.folder)
        except StorageError:
            raise
        except Exception as reason:  # tracing executes the user's code; the training is not lost for it
            LOG.warning("model/network.onnx is not written: %s", reason)
        summary = description.summary(self._cb_params, self._values)
        if not self._cb_params.cur_step_num:  # an evaluation
            seconds = {"eval_seconds": summary["train_seconds"], "train_seconds": 0.0}
            summary |= {"loss": self._values.get("loss"), **seconds}
        write_json(self.folder / SUMMARY_FILE, summary)
        return summary

    def _evaluate(self, experiment: Experiment, *callbacks: Callback) -> None:
        self._values = final_evaluation(experiment, self.folder, self._metrics, self._cb_params, callbacks)

    def _describe(
        self, experiment: Experiment, data: Mapping[str, Dataset], **training: Any
    ) -> tuple[RunDescription, ManifestWriter]:
        """The description of the run, with the writer of its manifest. Raises ConfigError for a second training."""
        if self._description is not None:
            repair = "one call of run.train, or another run directory for each; run.evaluate may follow"
            raise ConfigError("a run has one training", path=self.folder, repair=repair)
        self._subject.begin(experiment, **training)
        self._status.write(**self._subject.names)
        self._description = RunDescription(self._subject, experiment, data, self._stopwatch)
        return self._description, self._manifest(self._description)

    def _restore(self, description: RunDescription) -> None:
        if self.resumed:
            description.before = restore(description, self._settings.prefix, self._journal, self._force)
        write_copies(self.folder, self._subject.code)

    def _manifest(self, description: RunDescription) -> ManifestWriter:
        return ManifestWriter(self.folder / MANIFEST_FILE, description.manifest)
