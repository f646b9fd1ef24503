"""An exported step is executed once in onnxruntime and compared with the step of the run, before anything is written.

What is compared is the change of each parameter, as a whole: an activation near a kink may be on its other side after
another rounding, which changes single elements. How far two correct steps may differ depends on the step as well: Adam
divides a gradient that is nothing but rounding errors by itself. So the step of the run is also executed with
parameters that differ by rounding errors, and the distance between its results is what these explain.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from runner import compile as compiler
from runner.core.precision import use_precision
from runner.device import Device
from runner.errors import MismatchError
from runner.experiment.export.trained_run import TrainedRun, arrays_of, set_arrays
from runner.nn.optim.optimizer import Optimizer
from runner.ops.random import COUNTER
from runner.train.onnx_export import LOSS, LOSSES, ExportedStep, export_steps

RELATIVE, RELATIVE_OF_HALVES = 2e-2, 5e-2  # of the change of a parameter, or of an output of the network
EXPLAINED = 10.0  # times the distance between two steps of the run
ROUNDING, ROUNDING_OF_HALVES = 5e-7, 1e-3  # relative changes of the parameters, and of a value that is stored
SAMPLES = 2
LEAST_RATE = 1e-3  # a schedule may have the rate 0, with which no step changes parameters
STEPS = 2  # of a model that makes several

Arrays = dict[str, np.ndarray]


class Verification:
    """Results of the step of a run, with its first batch and the parameters of its last checkpoint."""

    def __init__(self, run: TrainedRun, step: ExportedStep) -> None:
        self.run, self.step, self.batch = run, step, run.first_batch()
        self.halves = run.experiment.model.precision is not None
        self.start = {**run.state, **_rates(run)}
        before = {result: self.start[name] for name, result in step.carried.items()}
        rounding = ROUNDING_OF_HALVES if self.halves else ROUNDING
        changed = [_changed(self.start, rounding, seed) for seed in range(SAMPLES)]
        self.expected, *moved = self._original([self.start, *changed])
        self.allowed = {name: self._allowed(y, before.get(name)) for name, y in self.expected.items()}
        for name, limit in self.allowed.items():
            explained = max(_distance(other[name], self.expected[name]) for other in moved)
            self.allowed[name] = limit + EXPLAINED * explained

    def check_step(self, model: Any) -> None:
        """Compare one step. Raises MismatchError."""
        found = self._session(model).run(self._feeds(self.start, self.batch))
        self._compare(found, "train_step.onnx", self.expected)

    def check_steps(self) -> None:
        """Compare a model of several steps with as many of one step. Raises MismatchError."""
        several = export_steps(self.step, STEPS)
        batches = tuple([np.stack([column] * STEPS) for column in self.batch])
        found = self._session(several).run(self._feeds(self.start, batches))
        one, results, state, losses = self._session(self.step.model), {}, dict(self.start), []
        for number in range(STEPS):
            results = one.run(self._feeds(state, self.batch, number))
            state |= {name: results[result] for name, result in self.step.carried.items()}
            losses.append(results[LOSS])
        self._compare({**found, LOSS: found[LOSSES][-1]}, "train_steps.onnx", {**results, LOSS: losses[-1]})

    def check_network(self, model: Any, inference: Any) -> None:
        """Compare the outputs of the network, with constant weights and with those fed. Raises MismatchError."""
        network = self.run.experiment.model
        set_arrays(network.train_network, self.run.state)
        data = dict(zip(self.step.columns, self.batch[:-1], strict=False))
        COUNTER.begin_batch(0)
        returned = network.predict(*data.values())
        outputs = [y.array for y in (returned if isinstance(returned, tuple) else (returned,))]
        for name, proto in (("network.onnx", model), ("inference.onnx", inference)):
            session = self._session(proto)
            feeds = {x: data[x] if x in data else self.run.state[x] for x in session.inputs}
            found = dict(zip([f"output {k}" for k in range(len(outputs))], session.run(feeds).values(), strict=True))
            expected = dict(zip(found, outputs, strict=True))
            _compare(found, expected, {k: self._allowed(y, None) for k, y in expected.items()}, name)

    def distance_of(self, model: Any, reference: Any) -> float:
        """How far the outputs of two networks are from each other for the first batch, relative to their size.

        Raises MismatchError when outputs are not finite.
        """
        sessions = self._session(model), self._session(reference)
        data = dict(zip(self.step.columns, self.batch[:-1], strict=False))
        found, expected = ([*session.run({x: data[x] for x in session.inputs}).values()] for session in sessions)
        distance = max(_distance(x, y) / (_norm(y) or 1.0) for x, y in zip(found, expected, strict=True))
        if not np.isfinite(distance):
            raise MismatchError("outputs of the network in 8 bits are not finite", repair="leave --quantize out")
        return distance

    def _original(self, starts: list[Arrays]) -> list[Arrays]:
        """The results of the run's own step from these values of its parameters, by names of the exported outputs."""
        model, results = self.run.experiment.model, []
        model.network.set_train(True)
        for start in starts:
            set_arrays(model.train_network, start)
            COUNTER.begin_training(model, 0)
            COUNTER.begin_step(0)
            with use_precision(model.precision):
                loss = model.train_step(self.batch)[0]
            after = arrays_of(model.train_network)
            results.append({LOSS: loss} | {result: after[name] for name, result in self.step.carried.items()})
        set_arrays(model.train_network, self.run.state)
        return results

    def _feeds(self, state: Arrays, batch: tuple[np.ndarray, ...], number: int = 0) -> Arrays:
        feeds = dict(zip(self.step.columns, batch, strict=True))
        if self.step.counter:
            feeds[self.step.counter] = np.asarray(number, np.int64)
        return feeds | {p.name: state[p.name] for p in self.step.parameters}

    def _session(self, model: Any) -> Any:
        return compiler.Session(model.SerializeToString(), Device("CPU", threads=self.run.config.device.threads))

    def _allowed(self, expected: np.ndarray, before: np.ndarray | None) -> float:
        """The distance that is allowed for a value, which was `before` if it is that of a parameter."""
        relative = RELATIVE_OF_HALVES if self.halves else RELATIVE
        rounding = ROUNDING_OF_HALVES if self.halves else ROUNDING
        change = _norm(expected) if before is None else _distance(expected, before)
        return relative * change + rounding * _norm(expected)

    def _compare(self, found: Arrays, file: str, expected: Arrays) -> None:
        _compare(found, expected, self.allowed, file)


def _compare(found: Arrays, expected: Arrays, allowed: Mapping[str, float], file: str) -> None:
    for name, limit in allowed.items():
        distance = _distance(found[name], expected[name])
        if not distance <= limit:
            rows = {"value": name, "distance": f"{distance:.3g}", "allowed": f"{limit:.3g}"}
            hint = "nothing is written; please report this with the config of the run"
            what = "an exported model does not compute what the run computes"
            raise MismatchError(what, file=file, **rows, hint=hint)


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64).ravel()))


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
    """The Euclidean distance of the finite elements; infinite if others are not finite."""
    if found.shape != expected.shape or not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return np.inf
    finite = np.isfinite(expected)
    return _norm(found[finite].astype(np.float64) - expected[finite].astype(np.float64))


def _changed(arrays: Arrays, relative: float, seed: int) -> Arrays:
    """The arrays, with floats that differ by at most this part of themselves."""
    random = np.random.default_rng(seed)
    changed = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            factor = 1.0 + relative * random.uniform(-1.0, 1.0, array.shape)
            changed[name] = np.asarray(array * factor, array.dtype)
    return {**arrays, **changed}


def _rates(run: TrainedRun) -> Arrays:
    """The learning rates of the comparison: those of the first step, unless they are too small to change anything."""
    optimizer = run.experiment.model.optimizer
    if not isinstance(optimizer, Optimizer):
        return {}
    least = np.float32(LEAST_RATE)
    return {p.name: np.asarray(np.maximum(run.initial[p.name], least)) for p in optimizer.rates}
