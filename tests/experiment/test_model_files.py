"""The networks in a run directory, used as another program would: with onnxruntime and nothing of this package."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from sklearn.datasets import load_digits

import runner
from runner import Model, dtype, nn
from runner.dataset import NumpySlicesDataset, open_dataset
from runner.dataset.transforms import Transform
from runner.dataset.transforms.c_transforms import TypeCast
from runner.dataset.vision.c_transforms import Rescale
from runner.experiment.build import Experiment
from runner.experiment.results import write_networks

QUIET = ("callbacks=quiet", "device.threads=1")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(path: Path) -> ort.InferenceSession:
    onnx.checker.check_model(onnx.load(path), full_check=True)
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def metadata(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_raw_images_reproduce_the_accuracy(mode, place):
    """The images of the digits, as scikit-learn itself reads them, with labels from there."""
    words = ("+experiment=lenet_seed", "max_steps=100", "optimizer=adam", "optimizer.learning_rate=0.005", *QUIET)
    accuracy = runner.run([*words, f"mode={mode}", "hydra.run.dir=r"])["metrics"]["accuracy"]
    assert accuracy > 0.7
    network = opened(place / "r/model/predict.onnx")
    raw = open_dataset("digits", False).columns[0].source
    known, labels = load_digits(return_X_y=True)
    table = {image.astype(np.uint8).tobytes(): label for image, label in zip(known, labels, strict=True)}
    scale = raw.max() / known.max()
    expected = np.array([table[np.rint(image / scale).astype(np.uint8).tobytes()] for image in raw])
    scores, probabilities, number = network.run(["logits", "probabilities", "class"], {"image": raw})
    assert (number == expected).mean() == pytest.approx(accuracy, abs=1e-12)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    (one,) = network.run(["logits"], {"image": raw[5:6]})
    np.testing.assert_allclose(one, scores[5:6], rtol=1e-5, atol=1e-5)
    described = metadata(place / "r/model/predict.onnx")
    assert (described["batch"], described["runner"]) == ("any", runner.__version__)
    (preprocessing,) = json.loads(described["preprocessing"])
    assert [step["operation"] for step in preprocessing["steps"]] == ["Resize", "Rescale", "Rescale", "HWC2CHW"]
    assert metadata(place / "r/model/network.onnx")["preprocessing"] == described["preprocessing"]


def test_no_other_program_needs_this_package(place):
    runner.run(["dataset=synthetic", "dataset.num_samples=64", "max_steps=1", *QUIET, "hydra.run.dir=r"])
    script = """
import sys
sys.modules["runner"] = None
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("r/model/predict.onnx", providers=["CPUExecutionProvider"])
print(session.run(["class"], {"image": np.zeros((1, 17, 5, 1), np.uint8)})[0].shape)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "(1,)\n"), done.stderr


def test_equal_runs_write_equal_files(place):
    contents = []
    for name in ("a", "b"):
        runner.run(["dataset=synthetic", "dataset.num_samples=64", "max_steps=1", *QUIET, f"hydra.run.dir={name}"])
        contents.append([(place / name / "model" / file).read_bytes() for file in ("network.onnx", "predict.onnx")])
    assert contents[0] == contents[1]


class Tripled(Transform):
    """Without operators."""

    def infer(self, sample):
        return sample.with_dtype(dtype.float32)

    def __call__(self, batch):
        return batch * np.float32(3)


class Failing(Tripled):
    def lower(self, batch, ops):
        return ops.MatMul()(batch, batch)


def experiment(*steps: Transform) -> Experiment:
    values = np.arange(12, dtype=np.uint8).reshape(4, 3)
    data = NumpySlicesDataset({"pixels": values, "label": np.zeros(4, np.int32)})
    data = data.map([*steps, Rescale(1.0, 0.0)], "pixels").batch(2)
    model = Model(nn.Dense(3, 2), nn.SoftmaxCrossEntropyWithLogits(True, "mean"))
    return Experiment(model, data, data, 1)


def test_class_names_are_metadata(place):
    made = experiment(TypeCast("int32"))
    made.test_data.class_names = ("äpfel", "pears")
    write_networks(made, place)
    for name in ("network.onnx", "predict.onnx"):
        described = metadata(place / "model" / name)
        assert json.loads(described["class_names"]) == ["äpfel", "pears"]
        assert json.loads(described["preprocessing"])[0]["input"] == "pixels"
    assert "class_names" not in metadata_without_names(place)


def metadata_without_names(place: Path) -> dict[str, str]:
    write_networks(experiment(), place / "unnamed")
    return metadata(place / "unnamed/model/network.onnx")


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Tripled(), "repair     give Tripled a method lower(self, batch, ops)"),
        (Failing(), "MatMul: needs two matrices"),
    ],
    ids=["missing", "failing"],
)
def test_a_transform_without_operators_costs_only_one_file(step, text, place, caplog):
    write_networks(experiment(), place)
    assert {file.name for file in (place / "model").iterdir()} == {"network.onnx", "predict.onnx"}
    write_networks(experiment(step), place)
    assert {file.name for file in (place / "model").iterdir()} == {"network.onnx"}
    (record,) = caplog.records
    assert record.getMessage().startswith("model/predict.onnx is not written: ")
    assert text in record.getMessage()
    assert "Failing" in record.getMessage() or "Tripled" in record.getMessage()
    steps = json.loads(metadata(place / "model/network.onnx")["preprocessing"])[0]["steps"]
    assert [entry["operation"] for entry in steps] == [type(step).__name__, "Rescale"]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_rows_of_a_table(mode, place):
    """The metadata `reader` suffice to encode the numbers of a CSV file as the network takes them."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(5, 3, (40, 2))
    names = np.where(numbers[:, 0] > 5, "up", "down")
    lines = [f"{a!r},{b!r},{name}" for (a, b), name in zip(numbers.tolist(), names, strict=True)]
    (place / "t.csv").write_text("\n".join(["a,b,kind", *lines]))
    table = ("dataset=csv", "dataset.data_file=t.csv", "dataset.target=kind", "dataset.test_fraction=0.25")
    words = ("network=mlp", "optimizer=adam", "optimizer.learning_rate=0.02", "dataset.batch_size=5", "epochs=20")
    runner.run([*table, *words, *QUIET, f"mode={mode}", "hydra.run.dir=r"])
    described = metadata(place / "r/model/predict.onnx")
    assert json.loads(described["class_names"]) == ["down", "up"]
    encoders = json.loads(described["reader"])["features"]
    encoded = np.stack([(numbers[:, k] - e["mean"]) / e["deviation"] for k, e in enumerate(encoders)], 1)
    (number,) = opened(place / "r/model/predict.onnx").run(["class"], {"features": encoded.astype(np.float32)})
    assert (np.array(["down", "up"])[number] == names).mean() > 0.9
