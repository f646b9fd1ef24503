"""LSTM layers in both modes against a loop in Float64, their weights, gradients and what they refuse."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from runner import nn
from runner.core.gradients import gradients
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError

RNG = np.random.default_rng(6)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, h, c, weight, hidden, layers, directions, has_bias):
    """Every step of every sample: outputs (T, N, ...), and the last states."""
    weight, x = weight.astype(np.float64).reshape(-1), x.astype(np.float64)
    h, c, taken = h.astype(np.float64), c.astype(np.float64), 0
    matrices = []

    def take(*shape):
        nonlocal taken
        taken += int(np.prod(shape))
        return weight[taken - int(np.prod(shape)) : taken].reshape(shape)

    for layer in range(layers):
        for _ in range(directions):
            width = x.shape[2] if layer == 0 else hidden * directions
            matrices.append((take(4 * hidden, width), take(4 * hidden, hidden)))
    biases = [take(2, 4 * hidden).sum(0) if has_bias else 0 for _ in matrices]
    assert taken == len(weight)
    lasts = []
    for layer in range(layers):
        sides = []
        for direction in range(directions):
            k = layer * directions + direction
            state, memory, made = h[k], c[k], np.zeros((*x.shape[:2], hidden))
            for t in range(len(x))[:: 1 - 2 * direction]:
                gates = x[t] @ matrices[k][0].T + state @ matrices[k][1].T + biases[k]
                i, f, g, o = np.split(gates, 4, axis=1)
                memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
                state = made[t] = sigmoid(o) * np.tanh(memory)
            sides.append(made)
            lasts.append((state, memory))
        x = np.concatenate(sides, 2)
    return x, np.stack([a for a, _ in lasts]), np.stack([b for _, b in lasts])


@table("mode", MODES)
@table(
    ("layers", "bidirectional", "has_bias", "batch_first"),
    [(1, False, True, False), (1, False, False, True), (2, False, True, False), (2, True, True, True)],
)
def test_numbers(layers, bidirectional, has_bias, batch_first, mode):
    layer = nn.LSTM(3, 4, layers, has_bias, batch_first, bidirectional=bidirectional)
    layer.weight.set_data(normal(*layer.weight.shape) * 0.4)
    directions = 1 + bidirectional
    x, h, c = normal(5, 2, 3), normal(layers * directions, 2, 4), normal(layers * directions, 2, 4)

    def construct(x, h, c):
        y, (last, memory) = layer(x, (h, c))
        return y, last, memory

    made = step_of(construct, mode)(x.swapaxes(0, 1) if batch_first else x, h, c)
    expected = lstm(x, h, c, layer.weight.asnumpy(), 4, layers, directions, has_bias)
    assert relative(made[0].swapaxes(0, 1) if batch_first else made[0], expected[0]) < 1e-6
    assert all(relative(a, b) < 1e-6 for a, b in zip(made[1:], expected[1:], strict=True))


@table("mode", MODES)
def test_the_cell_with_weights_as_an_operand(mode):
    layer = nn.LSTMCell(10, 12, batch_first=True)
    x, h, c, w = normal(3, 5, 10), normal(1, 3, 12), normal(1, 3, 12), normal(1152, 1, 1) * 0.1
    made = step_of(layer.construct, mode)(x, h, c, w)
    expected = lstm(x.swapaxes(0, 1), h, c, w, 12, 1, 1, True)
    assert relative(made[0].swapaxes(0, 1), expected[0]) < 1e-6
    assert [a.shape for a in made] == [(3, 5, 12), (1, 3, 12), (1, 3, 12), (1,), (1,)]
    assert layer.get_parameters() == []


@table("mode", MODES)
def test_the_gradient_goes_through_all_steps(mode):
    layer = nn.LSTM(2, 3)
    x, h, c = normal(4, 2, 2), normal(1, 2, 3), normal(1, 2, 3)
    start = layer.weight.asnumpy()
    slope = step_of(lambda x, h, c: gradients(layer(x, (h, c))[0], [layer.weight])[0], mode)(x, h, c)[0]
    direction = normal(*start.shape)
    step = 1e-5 * direction.astype(np.float64)
    up, down = (lstm(x, h, c, start + s, 3, 1, 1, True)[0].sum() for s in (step, -step))
    assert abs((slope * direction).sum() / ((up - down) / 2e-5) - 1) < 1e-5


def test_parameters_are_the_references():
    layer = nn.LSTM(10, 16, 2, bidirectional=True)
    both = 2 * (64 * 10 + 64 * 16 + 64 * 32 + 64 * 16 + 2 * 128)
    assert [(p.name, p.shape) for p in layer.get_parameters()] == [("weight", (both, 1, 1))]
    assert 0.24 < np.abs(layer.weight.asnumpy()).max() <= 0.25


@table("mode", MODES)
def test_dropout_between_layers_and_only_in_training(mode):
    layer = nn.LSTM(2, 3, 2, dropout=1.0)
    x, h, c = normal(4, 2, 2), np.zeros((2, 2, 3), np.float32), np.zeros((2, 2, 3), np.float32)
    run = lambda: step_of(lambda x, h, c: layer(x, (h, c))[0], mode)(x, h, c)[0]  # noqa: E731
    plain = run()
    assert relative(plain, lstm(x, h, c, layer.weight.asnumpy(), 3, 2, 1, True)[0]) < 1e-6
    layer.set_train()
    assert not np.allclose(run(), plain)
    assert isinstance(nn.LSTM(2, 3, 2, dropout=0.25).between, nn.Dropout)
    assert nn.LSTM(2, 3, dropout=0.25).between is None


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.LSTM(2, 0), ConfigError, "hidden_size must be a whole number of at least 1"),
        (lambda: nn.LSTM(2, 3, dropout=1.5), ConfigError, "dropout must be at most 1"),
        (lambda: nn.LSTM(2, 3, bidirectional=2), ConfigError, "bidirectional must be True or False"),
        (
            lambda: nn.LSTM(2, 3).construct(Tensor(normal(4, 2, 5)), (Tensor(normal(1, 2, 3)),) * 2),
            ShapeError,
            "the operands of the LSTM do not match",
        ),
        (
            lambda: nn.LSTMCell(2, 3)(
                *map(Tensor, (normal(4, 2, 2), normal(1, 2, 3), normal(1, 2, 3), normal(7, 1, 1)))
            ),
            ShapeError,
            "another number of weights",
        ),
    ],
)
def test_what_they_refuse(make, error, text):
    with pytest.raises(error, match=text):
        make()
