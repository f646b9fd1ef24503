"""A training step is the same in PyNative and in graph mode: losses, parameters, state, masks; and runs repeat."""

import numpy as np
import pytest
from both_modes import MODES, digits, lenet_step, relative, step_of

from runner import context, nn
from runner.core.values import Parameter, Tensor
from runner.host import seed
from runner.nn.steps import EagerStep, GraphStep  # noqa: F401  fills in how cells run on their own

OPTIMIZERS = "momentum", "sgd", "adam"


def trained(make, mode: str, batches) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses and all parameters, state included, after a step per batch, from the weights of seed 1."""
    seed.set_seed(1)
    cell = make()
    run = step_of(cell.construct, mode)
    losses = [float(run(*batch)[0]) for batch in batches]
    return losses, {name: p.asnumpy() for name, p in cell.parameters_dict().items()}


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_lenet_steps_alike_in_both_modes(optimizer, steps):
    (losses, eager), (graph_losses, graph) = (
        trained(lambda: lenet_step(optimizer), mode, digits(steps)) for mode in MODES
    )
    assert max(abs(a - b) for a, b in zip(losses, graph_losses, strict=True)) <= 1e-6  # measured: 5e-7
    assert list(eager) == list(graph)
    differences = {name: relative(graph[name], value) for name, value in eager.items()}
    assert {name: d for name, d in differences.items() if d > 1e-5} == {}  # measured: 1e-6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_runs_give_the_same_bytes(optimizer, mode):
    first, second = (trained(lambda: lenet_step(optimizer), mode, digits(2)) for _ in range(2))
    assert first[0] == second[0]
    assert {k: v.tobytes() for k, v in first[1].items()} == {k: v.tobytes() for k, v in second[1].items()}


@pytest.mark.parametrize("mode", MODES)
def test_training_changes_every_trainable_parameter_and_lowers_the_loss(mode):
    batch = digits(1)
    before = {p.name: p.asnumpy().copy() for p in trained_network().get_parameters()}
    losses, after = trained(lenet_step, mode, batch * 5)
    assert losses[-1] < losses[0]
    assert all(not np.array_equal(after[name], value) for name, value in before.items())


def trained_network() -> nn.Cell:
    seed.set_seed(1)
    return lenet_step().network._backbone


class Dropping(nn.Cell):
    """A network whose two Dropout layers hide different elements."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(6, 50, "xavier_uniform"), nn.Dense(50, 3, "xavier_uniform")
        self.drop1, self.drop2 = nn.Dropout(0.7), nn.Dropout(0.7)
        self.set_train()

    def construct(self, x):
        hidden = self.drop1(self.fc1(x))
        return self.fc2(self.drop2(hidden)), hidden


def test_dropout_hides_the_same_elements_in_both_modes():
    x = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
    hidden = {}
    for mode in MODES:
        seed.set_seed(1)
        run = step_of(Dropping().construct, mode)
        hidden[mode] = [run(x)[1] for _ in range(3)]
    for eager, graph in zip(*hidden.values(), strict=True):
        assert np.array_equal(eager == 0, graph == 0)
        assert relative(graph, eager) < 1e-6
        assert 0.1 < (eager == 0).mean() < 0.5
    masks = {(a == 0).tobytes() for a in hidden["pynative"]}
    assert len(masks) == 3


def test_training_with_dropout_is_alike_in_both_modes():
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 3, 8).astype(np.int32)) for _ in range(5)]

    class Logits(Dropping):
        def construct(self, x):
            return super().construct(x)[0]

    def make():
        network = Logits()
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        return nn.TrainOneStepCell(nn.WithLossCell(network, loss), nn.SGD(network.trainable_params(), 0.1, 0.9))

    (losses, eager), (graph_losses, graph) = (trained(make, mode, batches) for mode in MODES)
    assert max(abs(a - b) for a, b in zip(losses, graph_losses, strict=True)) <= 1e-6
    assert max(relative(graph[name], value) for name, value in eager.items()) <= 1e-5


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("sparse", [False, True])
def test_each_form_of_the_loss_trains_alike_in_both_modes(sparse, reduction):
    rng = np.random.default_rng(2)
    numbers = rng.integers(0, 4, 6).astype(np.int32)
    labels = numbers if sparse else np.eye(4, dtype=np.float32)[numbers]
    batch = rng.normal(size=(6, 5)).astype(np.float32), labels

    def make():
        network = nn.Dense(5, 4, "xavier_uniform")
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse, reduction)
        step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), nn.Momentum(network.trainable_params(), 0.01, 0.9))
        return Summed(step) if reduction == "none" else step

    (losses, eager), (graph_losses, graph) = (trained(make, mode, [batch] * 3) for mode in MODES)
    assert max(abs(a - b) for a, b in zip(losses, graph_losses, strict=True)) <= 1e-5 * abs(losses[0])
    assert max(relative(graph[name], value) for name, value in eager.items()) <= 1e-5
    assert losses[-1] < losses[0]


class Summed(nn.Cell):
    """A step whose loss is one number."""

    def __init__(self, step):
        super().__init__(auto_prefix=False)
        self.step = step

    def construct(self, *batch):
        loss = self.step.construct(*batch)
        return nn.MSELoss("sum").reduce(loss)


def test_the_mode_of_the_context_can_change_between_two_calls_of_a_cell():
    network = lenet_step().network._backbone
    image = digits(1)[0][0]
    made = {}
    for mode in (context.PYNATIVE_MODE, context.GRAPH_MODE, context.PYNATIVE_MODE):
        context.set_context(mode=mode)
        made.setdefault(mode, []).append(network(Tensor(image)).asnumpy())
    (first, again), (graph,) = made[context.PYNATIVE_MODE], made[context.GRAPH_MODE]
    assert first.tobytes() == again.tobytes()
    assert relative(graph, first) < 1e-5


def test_training_can_go_on_in_the_other_mode():
    """Parameters and state are the same objects, wherever their newest values are."""
    batches = digits(4)
    seed.set_seed(1)
    cell = lenet_step()
    runs = {mode: step_of(cell.construct, mode) for mode in MODES}
    mixed = [float(runs[MODES[k % 2]](*batch)[0]) for k, batch in enumerate(batches)]
    straight, after = trained(lenet_step, "pynative", batches)
    assert max(abs(a - b) for a, b in zip(mixed, straight, strict=True)) <= 1e-6
    assert max(relative(p.asnumpy(), after[name]) for name, p in cell.parameters_dict().items()) <= 1e-5


@pytest.mark.parametrize("mode", MODES)
def test_frozen_parameters_stay(mode):
    seed.set_seed(1)
    cell = lenet_step()
    frozen: Parameter = cell.network._backbone.conv1.weight
    before = frozen.asnumpy().copy()
    trainable = [p for p in cell.optimizer.parameters if p is not frozen]
    step = nn.TrainOneStepCell(cell.network, nn.Momentum(trainable, 0.01, 0.9))
    step_of(step.construct, mode)(*digits(1)[0])
    assert np.array_equal(frozen.asnumpy(), before)
