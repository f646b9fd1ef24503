"""The worst predictions of a run, against numpy: the softmax of all outputs in Float64, sorted."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from tables import table

import runner
import runner.dataset as ds
from runner import Model, context, nn
from runner.dataset import open_dataset
from runner.dataset.column import Column
from runner.dataset.samples import RowSource
from runner.dataset.transforms.transform import Transform
from runner.errors import StorageError
from runner.experiment.results import Predictions, WorstPredictions, thumbnails
from runner.host import files, png
from runner.nn.loss.losses import LossInput
from runner.types import TensorType

MODES = pytest.mark.parametrize("mode", ["graph", "pynative"])
QUIET = ("callbacks=quiet", "device.threads=1")
RNG = np.random.default_rng(6)


class Scores(nn.Cell):
    """The input, flat, as the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = nn.Flatten()

    def construct(self, x):
        return self.flatten(x) * 1.0


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def observed(folder: Path, data, loss=None, mode: str = "pynative", step: int = 7) -> dict | None:
    """The file that an evaluation of `Scores` writes; None if it writes none."""
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean") if loss is None else loss
    kinds = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
    model = Model(Scores(), loss, None, {"loss"}, mode=kinds[mode])
    model.eval(data, [WorstPredictions(folder, step)])
    path = folder / "eval/worst.json"
    return json.loads(path.read_text()) if path.exists() else None


def read_png(content: bytes) -> np.ndarray:
    image = pytest.importorskip("PIL.Image", reason="the extra images")
    with image.open(io.BytesIO(content)) as opened:
        pixels = np.asarray(opened)
    return pixels.reshape(*pixels.shape[:2], -1)


@MODES
def test_the_worst_of_all_are_found(mode, tmp_path):
    """400 samples in batches of 32 and a remainder, with many equal probabilities."""
    scores = RNG.integers(-3, 4, (400, 6)).astype(np.float32)
    labels = RNG.integers(0, 6, 400).astype(np.int32)
    data = ds.NumpySlicesDataset({"x": scores, "y": labels}, shuffle=False).batch(32)
    found = observed(tmp_path, data, mode=mode)
    assert {name: found[name] for name in ("global_step", "samples", "classes")} == {
        "global_step": 7,
        "samples": 400,
        "classes": 6,
    }
    probabilities = softmax(scores)
    own = probabilities[np.arange(400), labels]
    order = sorted(range(400), key=lambda row: (own[row], row))[:16]
    assert len({own[row] for row in order}) < 16  # there are ties
    assert [one["row"] for one in found["predictions"]] == order
    for one in found["predictions"]:
        row = one["row"]
        assert (one["true"], one["predicted"]) == (labels[row], scores[row].argmax())
        np.testing.assert_allclose(one["probability"], own[row], rtol=1e-6)
        np.testing.assert_allclose(one["predicted_probability"], probabilities[row].max(), rtol=1e-6)
        assert set(one) == {"row", "true", "predicted", "probability", "predicted_probability"}
    assert not (tmp_path / "eval/worst").exists()


@table("batch", [1, 7, 16, 33, 400])
def test_batches_do_not_matter(batch, tmp_path_factory):
    scores = np.round(RNG.normal(size=(60, 3)), 1).astype(np.float32)
    columns = {"x": scores, "y": (np.arange(60) % 3).astype(np.int64)}
    contents = []
    for size in (batch, 60):
        data = ds.NumpySlicesDataset(columns, shuffle=False).batch(size)
        contents.append(observed(tmp_path_factory.mktemp("t"), data))
    assert contents[0] == contents[1]


def test_shuffled_samples_have_their_rows_and_files(tmp_path):
    scores = RNG.normal(size=(50, 4)).astype(np.float32)
    labels = (np.arange(50) % 4).astype(np.int32)
    data = ds.NumpySlicesDataset({"x": scores, "y": labels}, shuffle=True)
    data.row_names = [f"file {row}\udcff" for row in range(50)]
    found = observed(tmp_path, data.repeat(2).batch(8))["predictions"]
    own = softmax(scores)[np.arange(50), labels]
    assert [one["row"] for one in found] == np.repeat(np.argsort(own, kind="stable")[:8], 2).tolist()
    assert [one["file"] for one in found] == [f"file {one['row']}\\udcff" for one in found]


def test_few_samples_are_all_listed(tmp_path):
    data = ds.NumpySlicesDataset({"x": np.eye(3, dtype=np.float32), "y": np.int32([0, 0, 0])}, shuffle=False).batch(2)
    assert [one["row"] for one in observed(tmp_path, data)["predictions"]] == [1, 2, 0]


def test_outputs_that_are_not_finite_come_first():
    scores = np.array([[0, 5], [np.nan, 0], [-np.inf, 3], [np.inf, 0], [9, 0], [-np.inf, -np.inf]], np.float32)
    rows = np.arange(6)
    found = Predictions.of(scores, np.zeros(6, np.int32), rows, rows).worst(None)
    assert found.row.tolist() == [1, 3, 5, 2, 0, 4]
    np.testing.assert_array_equal(np.isnan(found.probability), [True] * 3 + [False] * 3)
    assert (found.probability[3], found.predicted.tolist()[3:]) == (0.0, [1, 1, 0])


@table(("takes", "form"), [("probabilities", np.array), ("log_probabilities", np.log), ("logits", np.log)])
def test_outputs_are_what_the_loss_takes(takes, form):
    shares = softmax(floats(6, 3).astype(np.float64))
    rows = np.arange(6)
    found = Predictions.of(form(shares), np.zeros(6, np.int32), rows, rows, LossInput("softmax", takes))
    np.testing.assert_allclose(found.probability, shares[:, 0], rtol=1e-12)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@table(
    ("output", "target"),
    [
        (floats(5, 1), np.zeros(5, np.int32)),
        (floats(5), np.zeros(5, np.int32)),
        (floats(5, 3), np.zeros(5, np.float32)),
        (floats(5, 3), np.zeros((5, 3), np.int32)),
        (floats(5, 2, 3), np.zeros((5, 2), np.int32)),
        (floats(5, 3), np.full(5, 3, np.int32)),
        (floats(5, 3), np.full(5, -1, np.int32)),
        (floats(5, 3), np.zeros(5, bool)),
        (floats(4, 3), np.zeros(4, np.int32)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_what_is_no_classification(output, target):
    assert Predictions.of(output, target, np.arange(5), np.arange(5)) is None


def test_targets_may_have_an_axis_of_length_1():
    found = Predictions.of(floats(5, 3), np.zeros((5, 1), np.uint8), np.arange(5), np.arange(5))
    assert found.true.tolist() == [0] * 5


def test_a_regression_removes_the_files_of_an_earlier_evaluation(tmp_path):
    images = {"x": np.zeros((4, 1, 2, 2), np.float32), "y": np.zeros(4, np.int32)}
    assert observed(tmp_path, ds.NumpySlicesDataset(images, shuffle=False).batch(2)) is not None
    assert len([*(tmp_path / "eval/worst").iterdir()]) == 4
    numbers = {"x": floats(4, 2), "y": floats(4, 2)}
    assert observed(tmp_path, ds.NumpySlicesDataset(numbers, shuffle=False).batch(2), nn.MSELoss()) is None
    assert not [*(tmp_path / "eval").iterdir()]


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "eval").write_text("mine")
    data = ds.NumpySlicesDataset({"x": np.eye(3, dtype=np.float32), "y": np.int32([0, 0, 0])}, shuffle=False).batch(3)
    with pytest.raises(StorageError):
        observed(tmp_path, data)
    assert (tmp_path / "eval").read_text() == "mine"


def test_the_file_describes_the_images_at_any_moment(tmp_path, monkeypatch):
    """A kill in between leaves no file, or one with its images."""
    folder, states = tmp_path / "r", []
    for values in (0, 1):
        images = RNG.normal(size=(3, 1, 4, 4)).astype(np.float32)
        if values:
            monkeypatch.setattr(files, "before_operation", lambda *_: states.append(tree(folder)))
        data = ds.NumpySlicesDataset({"x": images, "y": np.zeros(3, np.int32)}, shuffle=False).batch(3)
        observed(folder, data)
        states.append(tree(folder))
    whole = [state for state in states if "worst.json" in state]
    assert len(whole) < len(states)
    assert all(state in (states[0], states[-1]) for state in whole)


def tree(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".tmp"))
    return {path.name: path.read_bytes() for path in found}


@MODES
def test_a_run_writes_the_pixels_of_its_samples(mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("+experiment=lenet_seed", "dataset=digits", "max_steps=60", *QUIET, f"mode={mode}", "hydra.run.dir=r")
    summary = runner.run(words)
    found = json.loads(Path("r/eval/worst.json").read_text())
    assert (found["global_step"], found["samples"], found["classes"]) == (60, 360, 10)
    raw = open_dataset("digits", False).columns
    own = [one["probability"] for one in found["predictions"]]
    assert own == sorted(own)
    wrong = round(360 * (1 - summary["metrics"]["accuracy"]))
    assert wrong >= 16
    for number, one in enumerate(found["predictions"]):
        assert one["image"] == f"worst/{number:02d}.png"
        assert one["true"] == raw[1].source[one["row"]] != one["predicted"]
        pixels = read_png(Path("r/eval", one["image"]).read_bytes())
        np.testing.assert_array_equal(pixels, raw[0].source[one["row"]])


def test_evaluations_after_epochs_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = []
    monkeypatch.setattr(WorstPredictions, "begin", lambda self, context: steps.append(self.global_step))
    monkeypatch.setattr(WorstPredictions, "step_end", lambda self, context: None)
    words = ("dataset=synthetic", "dataset.num_samples=64", "epochs=3", "eval.every=epoch", *QUIET)
    runner.run([*words, "hydra.run.dir=r"])
    assert steps == [6]


def test_the_first_rank_writes_what_a_single_process_writes(tmp_path):
    pytest.importorskip("mpi4py")
    from processes import called
    from random_kills import MPIRUN

    words = ("dataset=synthetic", "dataset.num_samples=64", "max_steps=2", *QUIET)
    code, _, error = called((*words, "parallel=data_parallel", "hydra.run.dir=r"), tmp_path, MPIRUN)
    assert code == 0, error
    found = json.loads((tmp_path / "r/eval/worst.json").read_text())
    assert (found["samples"], len(found["predictions"])) == (64, 16)
    assert len([*(tmp_path / "r/eval/worst").iterdir()]) == 16


def reduced(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Means of blocks, one by one."""
    rows = [k * picture.shape[0] // height for k in range(height + 1)]
    columns = [k * picture.shape[1] // width for k in range(width + 1)]
    made = np.zeros((height, width, picture.shape[2]))
    for k in range(height):
        for m in range(width):
            made[k, m] = picture[rows[k] : rows[k + 1], columns[m] : columns[m + 1]].mean((0, 1))
    return made


@table("shape", [(1, 4, 4), (3, 5, 2), (4, 5, 3), (1, 64, 64), (1, 65, 3), (3, 200, 130), (1, 1, 300), (90, 128, 1)])
def test_values_are_rescaled_and_large_images_reduced(shape, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t")
    images = RNG.normal(size=(2, *shape)).astype(np.float32)
    data = ds.NumpySlicesDataset({"x": images, "y": np.zeros(2, np.int32)}, shuffle=False).batch(2)
    found = observed(folder, data)["predictions"]
    for one in found:
        values = images[one["row"]].astype(np.float64)
        values = np.moveaxis(values, 0, -1) if shape[0] in (1, 3) else values
        values = np.rint((values - values.min()) * (255 / (values.max() - values.min())))
        pixels = png.decode((folder / "eval" / one["image"]).read_bytes())
        longest = max(values.shape[:2])
        assert max(pixels.shape[:2]) == min(64, longest)
        expected = values if longest <= 64 else reduced(values, *pixels.shape[:2])
        np.testing.assert_allclose(pixels, expected, atol=0.5001)


@table(
    "values", [np.full((1, 2, 2), 3.0), np.full((1, 2, 2), np.nan), np.array([[[np.inf, 0], [1, -np.inf]]])], ids=str
)
def test_pictures_of_unusual_values(values, tmp_path_factory):
    columns = {"x": values[np.newaxis].astype(np.float32), "y": np.zeros(1, np.int32)}
    (picture,) = thumbnails(ds.NumpySlicesDataset(columns), np.zeros(1, np.int64))
    finite = np.isfinite(values[0]) & (values[0] == 1)
    np.testing.assert_array_equal(picture[..., 0], np.where(finite, 255, 0))


@table("shape", [(3,), (2, 3), (2, 3, 4), (1, 2, 3, 1)])
def test_other_inputs_have_no_pictures(shape, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t")
    data = ds.NumpySlicesDataset({"x": floats(4, *shape), "y": np.zeros(4, np.int32)}, shuffle=False).batch(2)
    assert all("image" not in one for one in observed(folder, data)["predictions"])


class Halved(Transform):
    """Bytes as Float32, divided by 2."""

    def infer(self, sample: TensorType) -> TensorType:
        return TensorType.of(np.zeros(sample.shape, np.float32))

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return batch.astype(np.float32) / 2


def test_one_sample_is_in_memory_at_a_time():
    lengths = []

    class Rows(RowSource):
        def take(self, rows, axis=0):
            lengths.append(len(rows))
            return np.zeros((len(rows), 300, 200, 3), np.uint8) + rows.astype(np.uint8)[:, None, None, None]

        def contents(self):
            yield b""

    source = Rows(TensorType.of(np.zeros((9, 300, 200, 3), np.uint8)))
    columns = [Column("x", source, (Halved(),)), Column("y", np.zeros(9, np.int32))]
    data = ds.NumpySlicesDataset({"x": np.zeros(9), "y": np.zeros(9)}, shuffle=False)
    pictures = thumbnails(ds.Dataset(columns, data._order), np.array([4, 2]))
    assert [(picture.shape, int(picture.max())) for picture in pictures] == [((64, 42, 3), 4), ((64, 42, 3), 2)]
    assert lengths == [1, 1]
