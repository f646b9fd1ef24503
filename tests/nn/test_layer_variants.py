"""Layers over one and three axes, combinations, lookups and normalisation by groups, in both modes; printed forms."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from runner import dtype as dt, nn, ops
from runner.common.initializer import Initializer, initializer
from runner.core.gradients import gradients
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError, ShapeError

RNG = np.random.default_rng(9)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


# One axis


@table("mode", MODES)
@table(
    ("one", "two"),
    [
        (nn.Conv1d(2, 4, 3), nn.Conv2d(2, 4, (1, 3))),
        (
            nn.Conv1d(2, 4, 3, 2, "pad", 2, 2, 2, True, bias_init="normal"),
            nn.Conv2d(2, 4, (1, 3), (1, 2), "pad", (0, 0, 2, 2), (1, 2), 2, True),
        ),
        (nn.Conv1d(2, 4, 3, 2, "valid"), nn.Conv2d(2, 4, (1, 3), (1, 2), "valid")),
        (nn.Conv1dTranspose(2, 4, 3), nn.Conv2dTranspose(2, 4, (1, 3))),
        (
            nn.Conv1dTranspose(2, 4, 3, 2, "pad", 1, has_bias=True, bias_init="normal"),
            nn.Conv2dTranspose(2, 4, (1, 3), (1, 2), "pad", (0, 0, 1, 1), has_bias=True),
        ),
        (nn.MaxPool1d(3, 2), nn.MaxPool2d((1, 3), (1, 2))),
        (nn.MaxPool1d(3, 2, "same"), nn.MaxPool2d((1, 3), (1, 2), "same")),
        (nn.AvgPool1d(3, 1, "same"), nn.AvgPool2d((1, 3), 1, "same")),
        (nn.AvgPool1d(7), nn.AvgPool2d((1, 7))),
        (nn.MaxPool1d(3, 2, "pad", padding=1), nn.MaxPool2d((1, 3), (1, 2), "pad", padding=(0, 0, 1, 1))),
        (
            nn.MaxPool1d(2, 3, "pad", dilation=2, ceil_mode=True),
            nn.MaxPool2d((1, 2), (1, 3), "pad", dilation=(1, 2), ceil_mode=True),
        ),
        (nn.AvgPool1d(3, 2, "pad", padding=1), nn.AvgPool2d((1, 3), (1, 2), "pad", padding=(0, 0, 1, 1))),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_line_is_an_image_of_height_one(one, two, mode):
    x = normal(3, 2, 7)
    for mine, theirs in zip(one.get_parameters(), two.get_parameters(), strict=True):
        theirs.set_data(mine.asnumpy())
    expected = step_of(two.construct, mode)(x[:, :, None])[0][:, :, 0]
    assert np.array_equal(step_of(one.construct, mode)(x)[0], expected)


def test_weights_of_one_axis():
    weight = normal(4, 2, 3)
    layer = nn.Conv1d(2, 4, 3, weight_init=Tensor(weight))
    assert np.array_equal(layer.weight.asnumpy(), weight[:, :, None])
    made = layer(Tensor(normal(1, 2, 5)))
    assert made.shape == (1, 4, 5)
    assert nn.Conv1dTranspose(2, 4, 3).weight.shape == (2, 4, 1, 3)


@table("mode", MODES)
def test_batch_norm_of_three_axes(mode):
    layer = nn.BatchNorm3d(2, momentum=0.5).set_train()
    x = normal(3, 2, 4, 2, 3) * 2 + 1
    wide = x.astype(np.float64)
    mean, variance = (f(wide, axis=(0, 2, 3, 4), keepdims=True) for f in (np.mean, np.var))
    assert relative(step_of(layer.construct, mode)(x)[0], (wide - mean) / np.sqrt(variance + 1e-5)) < 2e-6
    assert relative(layer.bn2d.moving_mean.asnumpy(), 0.5 * mean.reshape(2)) < 1e-6
    assert [p.name for p in layer.trainable_params()] == ["bn2d.gamma", "bn2d.beta"]


# Normalisation by groups


@table("mode", MODES)
@table(
    ("layer", "groups"),
    [
        (nn.GroupNorm(2, 6, gamma_init="normal", beta_init="normal"), 2),
        (nn.GroupNorm(1, 6), 1),
        (nn.InstanceNorm2d(6, gamma_init="normal", beta_init="normal"), 6),
    ],
    ids=lambda v: type(v).__name__,
)
def test_normalisation_of_each_sample(layer, groups, mode):
    x = normal(2, 6, 3, 4) * 3 + 5
    rows = x.astype(np.float64).reshape(2, groups, -1)
    scaled = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    gamma, beta = (p.asnumpy()[:, None, None] for p in (layer.gamma, layer.beta))
    assert relative(step_of(layer.construct, mode)(x)[0], scaled.reshape(x.shape) * gamma + beta) < 2e-6


def test_parameters_of_instance_norm():
    layer = nn.InstanceNorm2d(3, affine=False)
    names = [(p.name, p.requires_grad, p.asnumpy()[0]) for p in layer.get_parameters()]
    assert names == [("mean", False, 0), ("variance", False, 1), ("gamma", False, 1), ("beta", False, 0)]


# Combinations, activations, sequences


@table("mode", MODES)
def test_layers_with_normalisation_and_activation(mode):
    x = normal(4, 3, 5, 5)
    layer = nn.Conv2dBnAct(3, 2, 3, has_bn=True, activation="leakyrelu", alpha=0.5).set_train()
    plain = [nn.Conv2d(3, 2, 3, weight_init=layer.conv.weight), nn.BatchNorm2d(2).set_train(), nn.LeakyReLU(0.5)]
    made = step_of(layer.construct, mode)(x)[0]
    assert np.array_equal(made, step_of(nn.SequentialCell(plain).construct, mode)(x)[0])
    names = ["conv.weight", "batchnorm.gamma", "batchnorm.beta"]
    assert [p.name for p in layer.trainable_params()] == names
    dense = nn.DenseBnAct(3, 2, activation=ops.Tanh())
    expected = np.tanh(x[:, :, 0, 0].astype(np.float64) @ dense.dense.weight.asnumpy().T)
    assert relative(step_of(dense.construct, mode)(x[:, :, 0, 0])[0], expected) < 1e-6
    assert nn.DenseBnAct(3, 2, has_bn=True).batchnorm.momentum == 1.0 - 0.9


@table("mode", MODES)
@table(
    ("layer", "expected"),
    [
        (nn.FastGelu(), lambda x: x / (1 + np.exp(-1.702 * x))),
        (nn.LogSigmoid(), lambda x: -np.log1p(np.exp(-x))),
        (nn.get_activation("fast_gelu"), lambda x: x / (1 + np.exp(-1.702 * x))),
        (nn.get_activation("LogSigmoid"), lambda x: -np.log1p(np.exp(-x))),
        (nn.Dense(3, 3, Tensor(np.eye(3, dtype=np.float32)), activation=ops.ReLU()), lambda x: np.maximum(x, 0)),
        (nn.OneHot(depth=3), lambda x: np.eye(3)[x.astype(int) % 3]),
        (nn.OneHot(1, 3, 2.0, -1.0), lambda x: np.moveaxis(np.eye(3)[x.astype(int) % 3], -1, 1) * 3 - 1),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Cell) else "",
)
def test_activations_and_one_hot_vectors(layer, expected, mode):
    x = RNG.integers(0, 3, (4, 2)).astype(np.int32) if isinstance(layer, nn.OneHot) else normal(4, 2, 3) * 4
    assert relative(step_of(layer.construct, mode)(x)[0], expected(x.astype(np.float64))) < 1e-6


@table("mode", MODES)
def test_a_layer_for_every_step_of_time(mode):
    x = normal(4, 5, 3)
    dense = nn.Dense(3, 2)
    expected = x.astype(np.float64) @ dense.weight.asnumpy().T + dense.bias.asnumpy()
    for axis in (0, None):
        made = step_of(nn.TimeDistributed(dense, 1, axis).construct, mode)(x)[0]
        assert made.shape == (4, 5, 2)
        assert relative(made, expected) < 1e-6
    images = normal(2, 3, 4, 4, 5)  # time is the last but one axis, and comes beside the batch
    made = step_of(nn.TimeDistributed(ops.Neg(), 3, 0).construct, mode)(images)[0]
    assert np.array_equal(made, -images.transpose(0, 3, 1, 2, 4))


# Lookups


@table("mode", MODES)
def test_lookup_shortens_long_rows(mode):
    layer = nn.EmbeddingLookup(4, 3, param_init="normal", max_norm=0.01)
    layer.embedding_table.set_data(np.float32([[3, 0, 4], [0, 0, 0], [0.003, 0, 0.004], [1, 1, 1]]))
    ids = np.array([[0, 1], [2, 0]], np.int32)
    made, slope = step_of(lambda ids: ((y := layer(ids)), *gradients(y, [layer.embedding_table])), mode)(ids)
    rows = layer.embedding_table.asnumpy().astype(np.float64)[ids]
    long = np.sqrt((rows**2).sum(2, keepdims=True))
    assert relative(made, rows * np.minimum(1, 0.01 / np.maximum(long, 1e-9))) < 1e-6
    assert np.isfinite(slope).all()


@table("mode", MODES)
@table("operator", ["SUM", "MEAN", "MAX"])
def test_fields_of_embeddings(operator, mode):
    layer = nn.MultiFieldEmbeddingLookup(10, 2, 3, operator=operator)
    ids = np.array([[2, 4, 6, 0, 0], [1, 3, 5, 0, 0]], np.int32)
    weights = np.float32([[1, 2, 0.5, 0, 0], [-1, 1, 1, 0, 0]])
    fields = np.array([[0, 1, 1, 0, 0], [0, 0, 1, 0, 0]], np.int32)
    table_of = layer.embedding_table.asnumpy().astype(np.float64)
    expected = np.zeros((2, 3, 2))
    for n, f in np.ndindex(2, 3):
        used = [(weights[n, k], table_of[ids[n, k]]) for k in range(5) if fields[n, k] == f and weights[n, k]]
        rows = [w * row for w, row in used]
        if used:
            total, best = np.sum(rows, 0), np.max(rows, 0)
            expected[n, f] = {"SUM": total, "MEAN": total / sum(abs(w) for w, _ in used), "MAX": best}[operator]
    assert relative(step_of(layer.construct, mode)(ids, weights, fields)[0], expected) < 1e-6


# Initial values of one's own


def test_own_initialisers_in_the_way_of_the_reference():
    class Steps(Initializer):
        def __init__(self, start=1):
            super().__init__(start=start)
            self.start = start

        def _initialize(self, arr):
            arr[:] = self.start + np.arange(arr.size).reshape(arr.shape)

    assert initializer(Steps(), [2, 2]).asnumpy().tolist() == [[1, 2], [3, 4]]
    assert nn.Dense(2, 1, weight_init=Steps(5)).weight.asnumpy().tolist() == [[5, 6]]
    assert initializer("zeros", 3, dt.float16).type == Tensor(np.zeros(3, np.float16)).type
    filled = np.zeros((2, 2), np.float32)
    Steps(3)(filled)
    assert filled.tolist() == [[3, 4], [5, 6]]
    with pytest.raises(NotImplementedError, match="must define fill"):
        initializer(Initializer(), (2,))


# Printed forms: those of MindSpore, from its documentation


@table(
    ("layer", "text"),
    [
        (
            nn.Conv2d(1, 6, 5, pad_mode="valid"),
            "Conv2d<input_channels=1, output_channels=6, kernel_size=(5, 5),stride=(1, 1),  pad_mode=valid, padding=0, "
            "dilation=(1, 1), group=1, has_bias=Falseweight_init=normal, bias_init=zeros, format=NCHW>",
        ),
        (
            nn.Conv1d(1, 6, 5, has_bias=True),
            "Conv1d<input_channels=1, output_channels=6, kernel_size=(1, 5),stride=(1, 1),  pad_mode=same, "
            "padding=(0, 0, 0, 0), dilation=(1, 1), group=1, has_bias=True,weight_init=normal, bias_init=zeros>",
        ),
        (nn.Dense(400, 120), "Dense<input_channels=400, output_channels=120, has_bias=True>"),
        (
            nn.Dense(4, 2, has_bias=False, activation="relu"),
            "Dense<\n  input_channels=4, output_channels=2, activation=ReLU<>\n  (activation): ReLU<>\n  >",
        ),
        (nn.Dropout(0.8), "Dropout<keep_prob=0.8>"),
        (nn.MaxPool2d(2, 2), "MaxPool2d<kernel_size=2, stride=2, pad_mode=VALID>"),
        (nn.AvgPool1d(3, 2, "same"), "AvgPool1d<kernel_size=(1, 3), stride=(1, 2), pad_mode=SAME>"),
        (nn.GroupNorm(2, 4), "GroupNorm<num_groups=2, num_channels=4>"),
        (nn.Norm(0), "Norm<axis=0, keep_dims=False>"),
        (nn.ReLU(), "ReLU<>"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Cell) else "",
)
def test_printed_forms(layer, text):
    assert repr(layer) == text


def test_printed_forms_with_parameters():
    layer = nn.BatchNorm2d(2)
    values = ", ".join(f"{p}={getattr(layer, p)}" for p in ("gamma", "beta", "moving_mean", "moving_variance"))
    assert repr(layer) == f"BatchNorm2d<num_features=2, eps=1e-05, momentum={1.0 - 0.9}, {values}>"
    table_of = nn.Embedding(3, 2)
    sizes = f"vocab_size=3, embedding_size=2, use_one_hot=False, embedding_table={table_of.embedding_table}"
    assert repr(table_of) == f"Embedding<{sizes}, dtype=Float32, padding_idx=None>"
    assert repr(nn.LayerNorm((3,))).startswith("LayerNorm<normalized_shape=(3,), begin_norm_axis=-1, ")


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.Conv2d(1, 1, 3, data_format="NHWC"), ConfigError, "data_format is not one of the choices"),
        (lambda: nn.BatchNorm2d(1, data_format="NHWC"), ConfigError, "data_format is not one of the choices"),
        (lambda: nn.Conv1d(2, 2, (1, 3)), ConfigError, "kernel_size must be a whole number"),
        (lambda: nn.Conv1d(2, 2, 3)(Tensor(normal(2, 2))), ShapeError, "Conv1d needs floats"),
        (lambda: nn.Conv1d(2, 2, 3, weight_init=Tensor(normal(2, 2, 1, 3))), ShapeError, "number of axes"),
        (lambda: nn.MaxPool1d(2)(Tensor(normal(2, 2))), ShapeError, "MaxPool1d needs floats"),
        (lambda: nn.AvgPool1d(0), ConfigError, "kernel_size must be a whole number of at least 1"),
        (lambda: nn.GroupNorm(2, 3), ConfigError, "num_groups must divide num_channels"),
        (lambda: nn.GroupNorm(2, 4)(Tensor(normal(2, 3, 1, 1))), ShapeError, "GroupNorm takes"),
        (lambda: nn.BatchNorm3d(2)(Tensor(normal(2, 2, 2))), ShapeError, "BatchNorm3d takes"),
        (lambda: nn.Dense(2, 2, activation=3), ConfigError, "not an activation"),
        (lambda: nn.TimeDistributed(3, 1), ConfigError, "takes a layer or an operator"),
        (lambda: nn.TimeDistributed(nn.ReLU(), 1)(Tensor(normal(2, 2))), ShapeError, "at least three axes"),
        (lambda: nn.EmbeddingLookup(2, 2, target="GPU"), ConfigError, "target is not one of the choices"),
        (lambda: nn.EmbeddingLookup(2, 2, slice_mode="rows"), ConfigError, "slice_mode is not one of the choices"),
        (lambda: nn.MultiFieldEmbeddingLookup(2, 2, 2, operator="MIN"), ConfigError, "operator is not one"),
    ],
)
def test_what_they_refuse(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_parameters_may_be_initial_values():
    first = nn.Dense(2, 2)
    assert isinstance(first.weight, Parameter)
    assert nn.Dense(2, 2, weight_init=first.weight).weight is not first.weight
    conv = nn.Conv2d(1, 1, 1, weight_init=nn.Conv2d(1, 1, 1).weight)
    assert [p.name for p in conv.get_parameters()] == ["weight"]
