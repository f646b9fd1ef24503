"""`predict.onnx`: raw rows in, the numbers of `Model.predict` on preprocessed rows out, in a stock onnxruntime."""

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings, strategies as st
from tables import table

from runner import Model, context, dtype, nn, ops, set_seed
from runner.core.values import Parameter, Tensor
from runner.dataset import NumpySlicesDataset
from runner.dataset.batches import open_dataset
from runner.dataset.column import Column
from runner.dataset.transforms import Affine, Transform
from runner.dataset.transforms.c_transforms import OneHot, TypeCast
from runner.dataset.vision import Inter
from runner.dataset.vision.c_transforms import (
    HWC2CHW,
    CenterCrop,
    Invert,
    Normalize,
    NormalizePad,
    Pad,
    RandomHorizontalFlip,
    Rescale,
    Resize,
)
from runner.dataset.vision.resize import resize
from runner.dataset.visits import Visits
from runner.device import Device
from runner.errors import ConfigError
from runner.train import onnx_export

MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
BOTH = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
NORMALIZE = Normalize([100.0, 90.0, 80.0], [50.0, 60.0, 70.0])


class Squared(Transform):
    """A user's transform, with its operators."""

    def infer(self, sample):
        return sample.with_dtype(dtype.float32)

    def __call__(self, batch):
        return batch.astype(np.float32) ** 2

    def lower(self, batch, ops):
        return ops.Square()(ops.Cast(dtype.float32)(batch))


class Unwritten(Squared):
    """A user's transform that replaces the numbers but not the operators."""

    def __call__(self, batch):
        return batch.astype(np.float32) ** 3


class Failing(Squared):
    def lower(self, batch, ops):
        raise ValueError("no such thing")


class Wrong(Squared):
    def lower(self, batch, ops):
        return ops.Cast(dtype.int32)(batch)


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def images(steps, size=(11, 9), channels=3) -> NumpySlicesDataset:
    data = NumpySlicesDataset({"image": pixels(12, *size, channels), "label": np.arange(12, dtype=np.int32) % 4})
    return data.map(steps, "image").batch(5)


def network(dataset) -> nn.Cell:
    set_seed(0)
    size = dataset.column_types()[0].size // 5
    return nn.SequentialCell(nn.Flatten(), nn.Dense(size, 4, nn_init(size)))


def nn_init(size: int) -> Tensor:
    return Tensor(np.random.default_rng(1).standard_normal((4, size)).astype(np.float32) / 100)


def model(dataset, mode=context.GRAPH_MODE, loss=None) -> Model:
    return Model(network(dataset), loss or nn.SoftmaxCrossEntropyWithLogits(True, "mean"), mode=mode)


def session(content: bytes) -> ort.InferenceSession:
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    return ort.InferenceSession(content, providers=["CPUExecutionProvider"])


def metadata(made: ort.InferenceSession) -> dict[str, str]:
    return made.get_modelmeta().custom_metadata_map


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def check(made: ort.InferenceSession, model: Model, raw: np.ndarray, preprocessed: np.ndarray) -> None:
    scores, probabilities, number = made.run(None, {"image": raw})
    expected = model.predict(preprocessed).asnumpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(probabilities, softmax(expected), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(number, scores.argmax(1))
    assert number.dtype == np.int64


CHAINS = {
    "none": [TypeCast("float32")],
    "as the built-in ones": [Resize((6, 8)), Rescale(1 / 255, 0.0), NORMALIZE, HWC2CHW()],
    "nearest": [Resize((6, 8), Inter.NEAREST), HWC2CHW(), Rescale(0.01, -1.0)],
    "larger": [Resize((23, 31)), NORMALIZE],
    "same size": [Resize((11, 9)), Rescale(0.01, 0.0)],
    "floats": [Rescale(0.01, 0.0), Resize((7, 5)), HWC2CHW()],
    "floats, no step between": [Rescale(0.01, 0.0), Resize((11, 18)), Resize((22, 9))],
    "floats, nearest": [Rescale(0.01, 0.0), Resize((30, 4), Inter.NEAREST)],
    "one side": [Resize(6), NORMALIZE, HWC2CHW()],
    "center crop": [CenterCrop((6, 5)), NORMALIZE, HWC2CHW()],
    "larger center crop": [CenterCrop((14, 6)), HWC2CHW(), Rescale(0.01, 0.0)],
    "one more channel": [NormalizePad([100.0, 90.0, 80.0], [50.0, 60.0, 70.0]), HWC2CHW()],
    "own": [Squared(), Rescale(0.001, 0.5)],
    "cast": [TypeCast("int32"), TypeCast("float32"), HWC2CHW()],
}


@BOTH
@table("name", CHAINS, ids=str)
def test_raw_pixels_give_the_predictions_of_preprocessed_ones(mode, name):
    data = images(CHAINS[name])
    trained = model(data, mode)
    made = session(onnx_export.predictor(trained, data, 5, {"runner": "1"}))
    raw = data.columns[0].source
    for rows in (1, 3, 5, 12):
        check(made, trained, raw[:rows], data.fetch(np.arange(rows))[0])
    free = ["height", "width"] if CHAINS[name][0].free_axes else [11, 9]
    assert made.get_inputs()[0].shape == ["batch", *free, 3]
    assert [y.name for y in made.get_outputs()] == ["logits", "probabilities", "class"]
    assert (metadata(made)["batch"], metadata(made)["runner"]) == ("any", "1")


@table("size", [(1, 1), (2, 3), (5, 7), (11, 9), (64, 13), (300, 41)], ids=str)
@pytest.mark.parametrize("interpolation", [Inter.LINEAR, Inter.NEAREST], ids=lambda x: x.name)
def test_images_of_any_size(interpolation, size):
    steps = [Resize((6, 8), interpolation), NORMALIZE, HWC2CHW()]
    data = images(steps)
    trained = model(data)
    made = session(onnx_export.predictor(trained, data, 5, {}))
    raw = pixels(2, *size, 3)
    preprocessed = Column("image", raw, tuple(steps)).fetch(Visits.of(np.arange(2), 2))
    check(made, trained, raw, preprocessed)


class Bytes(nn.Cell):
    """Passes preprocessed bytes on."""

    def construct(self, image):
        return ops.Cast(dtype.int32)(image)


SIDES = st.integers(1, 40)


@settings(max_examples=40, deadline=None)
@given(st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES), st.sampled_from([Inter.LINEAR, Inter.NEAREST]), st.booleans())
def test_resizing_is_exact_to_the_byte(old, new, interpolation, extreme):
    values = pixels(2, *old, 2)
    values = np.where(values > 127, 255, 0).astype(np.uint8) if extreme else values
    data = NumpySlicesDataset({"image": pixels(3, 4, 4, 2), "label": np.zeros(3, np.int32)})
    data = data.map(Resize(new, interpolation), "image").batch(3)
    made = session(onnx_export.predictor(Model(Bytes()), data, 3, {}))
    assert [y.name for y in made.get_outputs()] == ["output"]
    np.testing.assert_array_equal(made.run(None, {"image": values})[0], resize(values, *new, interpolation))


def test_large_images_are_resized_exactly():
    """Sums of weights beyond 2**24 and 2**32, which no Float32 and no Int32 has."""
    values = pixels(1, 3000, 5, 1)
    data = NumpySlicesDataset({"image": pixels(1, 4, 4, 1), "label": np.zeros(1, np.int32)})
    data = data.map(Resize((4093, 4091)), "image").batch(1)
    made = session(onnx_export.predictor(Model(Bytes()), data, 1, {}))
    np.testing.assert_array_equal(made.run(None, {"image": values})[0], resize(values, 4093, 4091, Inter.LINEAR))


@BOTH
@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_the_built_in_datasets(mode, name):
    data = open_dataset(name, train=False, num_samples=20, image_size=16, batch_size=5)
    trained = model(data, mode)
    made = session(onnx_export.predictor(trained, data, 5, {}))
    check(made, trained, data.columns[0].source, data.fetch(np.arange(20))[0])


class Sum(nn.Cell):
    """Several inputs; a parameter with the name of a column."""

    def __init__(self):
        super().__init__()
        self.rows = Parameter(Tensor(np.float32(2)), "rows")

    def construct(self, x, y, z):
        return ops.Flatten()(x) * self.rows + ops.Flatten()(y) + z


def test_several_inputs_have_the_names_and_preprocessing_of_their_columns():
    first, second = pixels(6, 4, 5, 1), pixels(6, 3, 3, 1, seed=1)
    data = NumpySlicesDataset({"rows": first, "class": second, "other": pixels(6, 1), "target": np.ones(6, np.int32)})
    data = data.map([Resize((2, 2)), Rescale(0.1, 0.0)], "rows").map([Resize((2, 2)), Rescale(0.2, 1.0)], "class")
    data = data.map(TypeCast("float32"), "other").batch(3)
    trained = Model(Sum())
    made = session(onnx_export.predictor(trained, data, 3, {}))
    shapes = [(entry.name, entry.shape) for entry in made.get_inputs()]
    assert shapes == [
        ("rows_", ["batch", "rows__height", "rows__width", 1]),
        ("class_", ["batch", "class__height", "class__width", 1]),
        ("other", ["batch", 1]),
    ]
    given_rows = dict(zip(("rows_", "class_", "other"), (c.source[:4] for c in data.columns), strict=False))
    x, y, z, _ = data.fetch(np.arange(4))
    np.testing.assert_allclose(made.run(None, given_rows)[0], trained.predict(x, y, z).asnumpy(), rtol=1e-5)


class OwnLoss(nn.Cell):
    activation = "sigmoid"

    def construct(self, output, target):
        return ops.ReduceMean()(output)


OUTPUTS = [
    (OwnLoss(), None, ["logits", "probabilities"]),
    (nn.MSELoss(), None, ["output"]),
    (nn.MSELoss(), 3, ["output"]),
    (nn.MSELoss(), 4, ["logits", "class"]),
    (nn.SoftmaxCrossEntropyWithLogits(), None, ["logits", "probabilities", "class"]),
]


@table(("loss", "num_classes", "names"), OUTPUTS)
def test_the_loss_decides_which_outputs_there_are(loss, num_classes, names):
    data = images([NORMALIZE])
    trained = model(data, loss=loss)
    made = session(onnx_export.predictor(trained, data, 5, {}, num_classes))
    assert [y.name for y in made.get_outputs()] == names
    results = dict(zip(names, made.run(None, {"image": data.columns[0].source}), strict=True))
    expected = trained.predict(data.fetch(np.arange(12))[0]).asnumpy()
    np.testing.assert_allclose(results[names[0]], expected, rtol=1e-5, atol=1e-5)
    if names[1:] == ["probabilities"]:
        np.testing.assert_allclose(results["probabilities"], 1 / (1 + np.exp(-expected)), rtol=1e-5)


def test_rows_without_transforms():
    values = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    data = NumpySlicesDataset({"features": values, "target": values[:, :1]}).batch(4)
    trained = Model(nn.Dense(3, 1), nn.MSELoss())
    made = session(onnx_export.predictor(trained, data, 4, {}))
    np.testing.assert_allclose(
        made.run(["output"], {"features": values})[0], trained.predict(values).asnumpy(), rtol=1e-5
    )


def test_a_network_for_one_batch_size_keeps_it_here_too():
    class Rigid(nn.Cell):
        def construct(self, image):
            return ops.Reshape()(image, (5, 6 * 8 * 3))

    data = images([Resize((6, 8)), NORMALIZE])
    made = session(onnx_export.predictor(Model(Rigid()), data, 5, {}))
    assert made.get_inputs()[0].shape == [5, 11, 9, 3]
    assert metadata(made)["batch"] == "5"
    assert made.run(None, {"image": data.columns[0].source[:5]})[0].shape == (5, 144)


def test_float16_networks_have_float32_probabilities():
    data = images([NORMALIZE])
    trained = Model(
        network(data), nn.SoftmaxCrossEntropyWithLogits(), mode=context.GRAPH_MODE, precision_mode="force_fp16"
    )
    made = session(onnx_export.predictor(trained, data, 5, {}))
    scores, probabilities, _ = made.run(None, {"image": data.columns[0].source})
    assert probabilities.dtype == np.float32
    # onnxruntime may leave out that logits are rounded to Float16 in between.
    np.testing.assert_allclose(probabilities, softmax(scores.astype(np.float32)), rtol=1e-3)


def test_what_has_no_operators_is_named():
    data = images([Squared(), NORMALIZE])
    assert onnx_export.predictor(model(data), data, 5, {})
    refused = (Unwritten(), RandomHorizontalFlip(), Invert(), Pad(1), Resize((6, 8), Inter.CUBIC))
    for step in refused:
        with pytest.raises(ConfigError) as error:
            onnx_export.predictor(model(data), images([step, NORMALIZE]), 5, {})
        name = type(step).__name__
        assert error.value.rows == {
            "column": "image",
            "transform": name,
            "repair": f"give {name} a method lower(self, batch, ops)",
        }
    assert Rescale(1.0, 0.0).has_operators
    assert Affine(np.ones(()), np.ones(())).has_operators


@table(("step", "text"), [(Failing(), "ValueError: no such thing"), (Wrong(), "infer and lower have to agree")])
def test_operators_that_fail_name_their_transform(step, text):
    data = images([step])
    with pytest.raises(ConfigError) as error:
        onnx_export.predictor(model(data), data, 5, {})
    assert text in str(error.value)
    assert type(step).__name__ in str(error.value)


def test_the_description_has_every_number():
    data = images([Resize((6, 8)), Rescale(0.5, 1.0), NORMALIZE, HWC2CHW(), TypeCast("float32")])
    (described,) = json.loads(json.dumps(onnx_export.describe(data)))
    assert {name: described[name] for name in ("input", "dtype", "shape")} == {
        "input": "image",
        "dtype": "uint8",
        "shape": [11, 9, 3],
    }
    resized, rescaled, normalized, turned, cast = described["steps"]
    assert resized == {"operation": "Resize", "size": [6, 8], "interpolation": "LINEAR"}
    assert rescaled == {"operation": "Rescale", "scale": [0.5], "shift": [1.0]}
    np.testing.assert_allclose(normalized["scale"], [1 / 50, 1 / 60, 1 / 70])
    np.testing.assert_allclose(normalized["shift"], [-2.0, -1.5, -80 / 70])
    assert (turned, cast) == ({"operation": "HWC2CHW"}, {"operation": "TypeCast", "data_type": "float32"})


SUNK = {
    "layout after a cast": [TypeCast("float32"), HWC2CHW()],
    "floats are resized": [Rescale(0.01, 0.0), Resize((7, 5)), HWC2CHW()],
    "own": [Squared(), Rescale(0.001, 0.0)],
}


@table("name", SUNK, ids=str)
def test_sinks_transform_with_the_same_operators(name):
    """Sunk equals unsunk bit for bit, now on the device."""
    results = []
    for sunk in (True, False):
        data = images(SUNK[name])
        net = network(data)
        trained = Model(
            net,
            nn.SoftmaxCrossEntropyWithLogits(True, "mean"),
            nn.Momentum(net.trainable_params(), 0.01, 0.9),
            mode=context.GRAPH_MODE,
            device=Device(threads=1),
        )
        trained.train(2, data, dataset_sink_mode=sunk)
        results.append([p.asnumpy().tobytes() for p in net.get_parameters()])
    assert results[0] == results[1]


def test_one_hot_labels_of_shape_one():
    """Labels [B, 1] are [B, classes] in sinks too."""
    data = NumpySlicesDataset({"x": pixels(6, 3).astype(np.float32), "y": np.array([[0], [2], [1]] * 2, np.int32)})
    data = data.map([OneHot(3), TypeCast("float32")], "y").batch(3)
    losses = []
    for sunk in (True, False):
        net = nn.Dense(3, 3, Tensor(np.eye(3, dtype=np.float32)))
        loss, optimizer = (
            nn.SoftmaxCrossEntropyWithLogits(False, "mean"),
            nn.Momentum(net.trainable_params(), 0.01, 0.9),
        )
        trained = Model(net, loss, optimizer, mode=context.GRAPH_MODE)
        trained.train(1, data, dataset_sink_mode=sunk)
        losses.append(net.weight.asnumpy().tobytes())
    assert losses[0] == losses[1]
