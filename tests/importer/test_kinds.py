"""Files of twenty kinds of networks, as PyTorch's two exporters, skl2onnx and tf2onnx write them.

`make_models.py` made them. Their outputs are compared with onnxruntime on the same file, their gradients with the
framework that made it, and each must learn a small batch, in both modes.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from both_modes import MODES, relative, step_of
from onnx_kinds import FILES, FOLDER, Sample, Step, sample
from soak import thinned

from runner import nn

STEPS = 50


def named(paths: list[Path]) -> dict[str, object]:
    return {"argvalues": paths, "ids": [path.stem for path in paths]}


def test_all_kinds_are_here() -> None:
    kinds: dict[str, set[str]] = {}
    for path in FILES:
        facts = sample(path).facts
        kinds.setdefault(facts["kind"], set()).add(facts["exporter"])
    of_torch = {kind for kind, exporters in kinds.items() if exporters == {"legacy", "dynamo"}}
    assert len(of_torch) == 19
    assert kinds["mlp"] == {"skl2onnx"}
    assert kinds["keras"] == {"tf2onnx"}
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert max(sizes) < 300_000
    assert sum(sizes) < 8_000_000


@pytest.mark.parametrize("path", **named(FILES))
def test_outputs_are_those_of_onnxruntime(path: Path) -> None:
    case = sample(path)
    for mode in MODES:
        network = case.network(logits=False)
        network.set_train(False)
        (made,) = step_of(network, mode)(*case.inputs)
        assert relative(made, stock(case)) < 1e-4, mode
        assert relative(made, case.outputs) < 1e-4, mode


def stock(case: Sample) -> np.ndarray:
    """What onnxruntime makes of the file; one exported in training mode is first set to inference."""
    model = onnx.load(case.path)
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            kept = [a for a in node.attribute if a.name != "training_mode"]
            del node.attribute[:], node.output[1:]
            node.attribute.extend(kept)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    outputs = session.run(None, dict(zip(names, case.inputs, strict=True)))
    dictionaries = [x for x in outputs if isinstance(x, list)]  # scikit-learn's, by class
    arrays = [np.array([[*row.values()] for row in x], np.float32) for x in dictionaries] or outputs
    return next(x for x in arrays if x.dtype == np.float32)


@pytest.mark.parametrize("path", **named([*thinned(FILES, every=2)]))
def test_a_batch_of_another_size(path: Path) -> None:
    """Also files with the shapes of one batch size are networks for every one."""
    case = sample(path)
    network = case.network(logits=False)
    network.set_train(False)
    rows = len(case.outputs) // 2
    (made,) = step_of(network, "pynative")(*(x[:rows] for x in case.inputs))
    assert relative(made, case.outputs[:rows]) < 1e-4


@pytest.mark.parametrize("path", **named(FILES))
def test_gradients_are_those_of_the_framework(path: Path) -> None:
    case = sample(path)
    assert case.gradients.keys() == case.facts["initializers"].keys()
    for mode in MODES:
        network = case.network(logits=True)
        network.set_train()
        step = Step(case.loss_cell(network), network.trainable_params())
        loss, *gradients = step_of(step, mode)(*case.inputs, case.targets)
        assert loss == pytest.approx(case.loss, rel=1e-4), mode
        mine = {p.name: g for p, g in zip(network.trainable_params(), gradients, strict=True)}
        distances = {name: distance(g, name, case) for name, g in case.of_parameters(mine).items()}
        assert {name: far for name, far in distances.items() if far > 1e-3} == {}, mode


def distance(gradient: np.ndarray, name: str, case: Sample) -> float:
    """The largest difference, relative to the largest element; of gradients that are 0 but for rounding, such as that
    of a bias before a normalization, relative to a hundredth of the largest gradient of the network."""
    wanted, largest = case.wanted(name, gradient.size), max(np.abs(g).max() for g in case.gradients.values())
    scale = np.abs(wanted).max()
    return float(np.abs(gradient - wanted).max() / (scale if scale > 1e-6 * largest else 1e-2 * largest))


@pytest.mark.parametrize("path", **named([*thinned(FILES, every=2)]))
def test_the_loss_halves_in_graph_mode(path: Path) -> None:
    learns(sample(path), "graph")


@pytest.mark.parametrize("path", **named([*thinned(FILES, every=4)]))
def test_the_loss_halves_in_pynative_mode(path: Path) -> None:
    learns(sample(path), "pynative")


def learns(case: Sample, mode: str) -> None:
    network = case.network(logits=True)
    optimizer = nn.Adam(network.trainable_params(), case.facts["rate"])
    step = nn.TrainOneStepCell(case.loss_cell(network), optimizer)
    step.set_train()
    run = step_of(step, mode)
    losses = []
    while not losses or losses[-1] > losses[0] / 2:
        assert len(losses) < STEPS, losses
        losses.append(float(run(*case.inputs, case.targets)[0]))
