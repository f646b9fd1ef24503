"""Datasets with any columns: networks with one, two and three inputs, in both modes, sunk and unsunk."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import column_networks
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from column_networks import CASES, EPOCHS, MODES, RATE, bytes_of, dataset, model
from processes import ROOT
from tables import table

from runner import Model, dump, nn, ops, set_seed
from runner.cli import main
from runner.core.values import Parameter, Tensor
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError, ShapeError, TrainingError
from runner.train.callback import Callback, LambdaCallback

HERE = Path(__file__)
WAYS = {"sunk": ("graph", True), "graph": ("graph", False), "pynative": ("pynative", False)}
STEPS = EPOCHS * 5


class Losses(Callback):
    """The losses of all steps."""

    def __init__(self):
        self.all: list[float] = []

    def step_end(self, run_context):
        self.all += np.asarray(run_context.original_args().losses).tolist()


def trained(name: str, way: str, data=None) -> tuple[list[float], Model]:
    mode, sunk = WAYS[way]
    made, losses = model(name, mode), Losses()
    made.train(EPOCHS, dataset(name) if data is None else data, losses, sunk)
    return losses.all, made


def derivative(function, parameters: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The derivative with respect to one parameter, by differences in Float64."""
    slope = np.zeros_like(parameters[name])
    for place in np.ndindex(slope.shape):
        moved = parameters[name].copy()
        moved[place] += 1e-5
        above = function(parameters | {name: moved})
        moved[place] -= 2e-5
        slope[place] = (above - function(parameters | {name: moved})) / 2e-5
    return slope


def expected(name: str) -> tuple[list[float], dict[str, np.ndarray], float]:
    """Losses of all steps, the parameters after them, and the loss over all rows, in Float64."""
    set_seed(column_networks.SEED)
    case, data, losses = CASES[name], dataset(name), []
    parameters = {p.name: p.asnumpy().astype(np.float64) for p in case.network().trainable_params()}
    columns = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in case.columns.values()]
    for epoch in range(EPOCHS):
        for rows in data.batches(epoch):

            def loss(values, rows=rows):
                return case.oracle(values, *(column[rows] for column in columns))

            losses.append(loss(parameters))
            slopes = {key: derivative(loss, parameters, key) for key in parameters}
            parameters = {key: value - RATE * slopes[key] for key, value in parameters.items()}
    return losses, parameters, case.oracle(parameters, *columns)


@pytest.mark.parametrize("name", CASES)
def test_networks_with_any_inputs_train_as_in_float64_and_sinking_changes_no_bit(name):
    losses, parameters, final = expected(name)
    made = {way: trained(name, way) for way in WAYS}
    for seen, training in made.values():
        assert len(seen) == STEPS
        np.testing.assert_allclose(seen, losses, rtol=1e-5)
        for parameter in training.network.trainable_params():
            np.testing.assert_allclose(parameter.asnumpy(), parameters[parameter.name], rtol=1e-4, atol=1e-6)
        assert training.eval(dataset(name))["loss"] == pytest.approx(final, rel=1e-5)
    assert made["sunk"][0] == made["graph"][0]
    assert bytes_of(made["sunk"][1]) == bytes_of(made["graph"][1])


def inputs_of(training: Model) -> list[str]:
    return [value.name for value in training.programs[0].model.graph.input]


@table(
    ("names", "unsunk", "sunk"),
    [
        (["tokens", "mask", "labels"], ["tokens", "mask", "labels"], ["rows", "tokens", "mask", "labels"]),
        (["table", "head", "loss"], ["table_1", "head_1", "loss_1"], ["rows", "table_1", "head_1", "loss_1"]),
        (["rows", "losses", "b"], ["rows", "losses", "b"], ["rows", "rows_1", "losses_1", "b"]),
        (["a b", "a:b", "Größe (m)"], ["a_b", "a_b_1", "Größe__m_"], ["rows", "a_b", "a_b_1", "Größe__m_"]),
        (["table.updated", "a/b", "loss:"], ["table.updated_1", "a_b", "loss_"], ["rows"]),
    ],
)
def test_columns_may_have_the_names_of_other_values(names, unsunk, sunk):
    data = dataset("words").rename(list(CASES["words"].columns), names)
    usual = trained("words", "graph")
    for way, inputs in (("graph", unsunk), ("sunk", sunk)):
        losses, training = trained("words", way, data)
        assert losses == usual[0]
        assert bytes_of(training) == bytes_of(usual[1])
        assert inputs_of(training)[: len(inputs)] == inputs
    assert training.eval(data) == usual[1].eval(dataset("words"))


@table("kind", ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float16", "float32"])
def test_every_element_type_reaches_the_network(kind):
    """Sunk, unsunk and in PyNative mode; a column that the network does not use changes nothing."""

    class Weighted(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(Tensor(np.array([[0.5], [0.25]], np.float32)))

        def construct(self, x, unused):
            return ops.MatMul()(x.astype(self.weight.dtype), self.weight)

    x = np.array([[0, 1], [1, 1], [1, 0], [1, 1]]).astype(kind)
    columns = {"x": x, "unused": np.arange(4, dtype=np.int8), "y": np.array([[1.0], [2.0], [3.0], [4.0]])}
    results = {}
    for way, (mode, sunk) in WAYS.items():
        net = Weighted()
        training = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.5), mode=MODES[mode])
        training.train(2, NumpySlicesDataset(columns).batch(2), None, sunk)
        results[way] = net.weight.asnumpy()
    weight = np.array([[0.5], [0.25]])
    for k in (0, 1, 0, 1):
        part, target = x[2 * k : 2 * k + 2].astype(np.float64), columns["y"][2 * k : 2 * k + 2]
        weight -= 0.5 * part.T @ (part @ weight - target)
    for result in results.values():
        np.testing.assert_allclose(result, weight, rtol=1e-6)
    assert results["sunk"].tobytes() == results["graph"].tobytes()


@pytest.mark.parametrize("name", ["words", "parts"])
def test_dumps_of_both_modes_agree(name, tmp_path, capsys):
    for mode in MODES:
        with dump(tmp_path / mode, iteration="0|3"):
            model(name, mode).train(1, dataset(name), None, False)
    assert main(["compare", str(tmp_path / "graph"), str(tmp_path / "pynative"), "--rtol", "1e-4"]) == 0
    assert " of 2 iterations agree within rtol 0.0001" in capsys.readouterr().out


@pytest.mark.parametrize("name", CASES)
def test_an_export_has_an_input_for_each_column_but_the_last(name):
    training = model(name, "pynative")
    types = dataset(name).column_types()[:-1]
    exported = onnx.load_from_string(training.export(types))
    assert [value.name for value in exported.graph.input] == [f"input{k}" for k in range(len(types))]
    session = ort.InferenceSession(exported.SerializeToString())
    batch = next(dataset(name).read(0))[:-1]
    (made,) = session.run(None, {f"input{k}": column for k, column in enumerate(batch)})
    np.testing.assert_allclose(made, training.predict(*batch).asnumpy(), rtol=1e-5, atol=1e-6)


def test_parts_of_batches_have_all_columns():
    whole = dataset("parts")
    parts = [whole.divided(2, k) for k in range(2)]
    for batch, first, second in zip(whole.read(1), parts[0].read(1), parts[1].read(1), strict=True):
        for column, *halves in zip(batch, first, second, strict=True):
            assert sorted(map(bytes, column)) == sorted(map(bytes, np.concatenate(halves)))


@pytest.mark.parametrize(("way", "step"), [("sunk", 10), ("pynative", 7)])
def test_killed_and_resumed(way, step, tmp_path):
    """-9 after the checkpoint of a step; the resumed training ends with the bytes of a whole one."""
    mode, sunk = WAYS[way]
    command = [sys.executable, column_networks.__file__, str(tmp_path), "parts", mode, "sunk" if sunk else "unsunk"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE.parents[1] / 'support'}"}
    options = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    assert subprocess.run([*command, str(step)], **options).returncode == -signal.SIGKILL
    assert not (tmp_path / "weights.npz").exists()
    resumed = subprocess.run(command, check=True, **options)
    assert resumed.stdout == f"{step}\n"
    whole = bytes_of(trained("parts", way)[1])
    with np.load(tmp_path / "weights.npz") as saved:
        assert {key: saved[key].tobytes() for key in saved} == whole


class Failing(nn.Cell):
    """Two inputs, and several ways to be wrong."""

    def __init__(self, way: str):
        super().__init__()
        self.way, self.fc = way, nn.Dense(3, 2)

    def construct(self, x, mask):
        if self.way == "shape":
            return self.fc(x) + ops.ReduceSum()(x)[:3]  # subscript
        if self.way == "call":
            return self.fc(x) + x(0)  # called
        if self.way == "type":
            return self.fc(mask)  # type
        if self.way == "python":
            batch, channels, height = x.shape  # unpacked
            return batch + channels + height
        if self.way == "layer":
            return self.fc(x, mask)  # arguments
        return self.fc(x)


def line_of(comment: str) -> str:
    """`file:number  text` of the line of this file that ends with the comment."""
    number, text = next((k, t) for k, t in enumerate(HERE.read_text().splitlines(), 1) if t.endswith(f"  # {comment}"))
    return f"{HERE}:{number}  {text.strip()}"


SMALL = {"x": np.ones((8, 3)), "mask": np.ones((8, 3), bool), "y": np.ones((8, 5))}


def failure(network: nn.Cell, data, way: str, evaluates: bool = False) -> Exception:
    mode, sunk = WAYS[way]
    training = Model(network, nn.MSELoss(), nn.SGD(nn.Dense(1, 1).trainable_params(), 0.1), {"loss"}, mode=MODES[mode])
    with pytest.raises((ConfigError, TrainingError)) as caught:
        training.eval(data) if evaluates else training.train(1, data, None, sunk)
    return caught.value


@table("way", WAYS)
@table("evaluates", [False, True])
@table(
    ("how", "kind", "what", "comment"),
    [
        ("type", ShapeError, "MatMul: needs two matrices of floats, of one element type", "type"),
        ("python", TrainingError, "ValueError: not enough values to unpack (expected 3, got 2)", "unpacked"),
        ("layer", TrainingError, "takes 2 positional arguments but 3 were given", "arguments"),
        ("shape", ShapeError, "too many indices", "subscript"),
        ("call", TrainingError, "TypeError: 'Symbol' object is not callable", "called"),
        ("loss", ShapeError, "output and target of a loss have different shapes", None),
    ],
)
def test_an_error_inside_the_network_has_the_users_line_and_the_columns(way, evaluates, how, kind, what, comment):
    error = failure(Failing(how), NumpySlicesDataset(SMALL).batch(4), way, evaluates)
    assert type(error) is kind
    assert what in str(error) or what.replace("Symbol", "Tensor") in str(error)
    assert error.rows["columns"] == "x Float32[4, 3], mask Bool[4, 3], y Float32[4, 5]"
    assert error.rows["line"] == line_of(comment) if comment else str(HERE) in error.rows["line"]


class One(nn.Cell):
    def construct(self, x):  # one
        return x


@table(
    ("network", "columns", "what", "rows"),
    [
        (
            One,
            ["x", "mask", "y"],
            "One does not take the columns of the dataset as its inputs",
            {
                "inputs": "x, mask",
                "construct": "(x)",
                "columns": "x Float32[4, 3], mask Bool[4, 3], y Float32[4, 5]",
                "line": line_of("one"),
            },
        ),
        (
            lambda: nn.SequentialCell(nn.ReLU()),
            ["x", "mask", "y"],
            "SequentialCell does not take the columns of the dataset as its inputs",
            {"inputs": "x, mask"},
        ),
        (
            lambda: Failing("none"),
            ["x", "y"],
            "Failing does not take the columns of the dataset as its inputs",
            {"reason": "missing a required argument: 'mask'"},
        ),
        (One, ["y"], "no column is left for the network", {"columns": "y Float32[4, 5]"}),
    ],
)
def test_a_network_that_takes_another_number_of_inputs(network, columns, what, rows):
    for evaluates in (False, True):
        error = failure(network(), NumpySlicesDataset(SMALL).project(columns).batch(4), "pynative", evaluates)
        assert error.what == what
        assert rows.items() <= error.rows.items()


def test_what_a_callback_raises_remains_what_it_is():
    def fail(run_context):
        raise KeyError("mine")

    class Observer(Callback):
        def step_gradients(self, run_context, *values):
            raise KeyError("mine")

    callbacks = [Observer(), *(LambdaCallback(**{event: fail}) for event in ("step_begin", "step_end"))]
    for mode, sunk in WAYS.values():
        for callback in callbacks:
            with pytest.raises(KeyError, match="mine"):
                model("line", mode).train(1, dataset("line"), callback, sunk)


def test_a_parameter_may_not_have_the_name_of_a_result():
    class Named(nn.Cell):
        def __init__(self):
            super().__init__()
            self.loss = Parameter(Tensor(np.ones((3, 5), np.float32)))

        def construct(self, x):
            return ops.MatMul()(x, self.loss)

    data = NumpySlicesDataset(SMALL).project(["x", "y"]).batch(4)
    for way in ("graph", "sunk"):
        net = Named()
        training = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1), mode=MODES[WAYS[way][0]])
        with pytest.raises(ConfigError, match=re.escape("two values have the same name")):
            training.train(1, data, None, WAYS[way][1])
