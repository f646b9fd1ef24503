"""`runner predict`: what it prints agrees with `runner eval`, for images, tables and arrays, in both modes."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from projects import project

import runner
from runner import cli
from runner.dataset.sources import DigitsDataset
from runner.errors import ConfigError, DataError, TrainingError
from runner.experiment.evaluate import evaluate
from runner.experiment.predict import Predictions, _numbers, predict
from runner.report import commands
from runner.train.checkpoint import state

Image = pytest.importorskip("PIL.Image")
MODES = ("graph", "pynative")
QUIET = ("callbacks=quiet", "device.threads=1")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The test split: bytes [N, 8, 8, 1] and labels."""
    images, labels = zip(*DigitsDataset(usage="test").create_tuple_iterator(output_numpy=True), strict=True)
    return np.stack(images), np.array(labels)


@pytest.fixture(scope="module", params=MODES)
def lenet(request, tmp_path_factory) -> dict:
    """The summary of a short training on digits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("lenet"))
        words = ["+experiment=lenet_seed", *QUIET, "max_steps=200", "optimizer=adam", f"mode={request.param}"]
        summary = runner.run([*words, "dataset.batch_size=50"])
        return summary | {"run_dir": Path(summary["run_dir"]).absolute()}


def printed(capsys, *words: object) -> str:
    assert cli.main(["predict", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_images_of_the_test_split_give_the_accuracy(lenet, place, capsys):
    images, labels = digits()
    files = [place / f"{k:03}.png" for k in range(len(images))]
    for image, file in zip(images, files, strict=True):
        Image.fromarray(image[:, :, 0]).save(file)
    np.save("all.npy", images)
    rows = [*csv.DictReader(io.StringIO(printed(capsys, lenet["run_dir"], *files, "all.npy", "--csv", "--top", 1)))]
    assert [row["file"] for row in rows] == [*map(str, files), *(f"all.npy[{k}]" for k in range(len(images)))]
    found = np.array([int(row["class"]) for row in rows]).reshape(2, -1)
    assert lenet["metrics"]["accuracy"] > 0.5
    assert [np.mean(one == labels) for one in found] == [lenet["metrics"]["accuracy"]] * 2
    assert evaluate(lenet["run_dir"])["metrics"]["accuracy"] == lenet["metrics"]["accuracy"]


def test_forms(lenet, place, capsys):
    np.save("one.npy", digits()[0][0])
    np.save("inputs.npy", np.zeros((2, 1, 32, 32)))
    (first, *_) = found = json.loads(printed(capsys, lenet["run_dir"], "one.npy", "inputs.npy", "--json", "--top", 3))
    assert [one["file"] for one in found] == ["one.npy", "inputs.npy[0]", "inputs.npy[1]"]
    probabilities = [one["probability"] for one in first["classes"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert len(probabilities) == 3
    whole = json.loads(printed(capsys, lenet["run_dir"], "one.npy", "--json", "--top", 99))[0]["classes"]
    assert sum(one["probability"] for one in whole) == pytest.approx(1.0)
    assert len(whole) == 10
    table = printed(capsys, lenet["run_dir"], "one.npy")
    assert table.split()[:3] == ["file", "class", "probability"]
    assert f"one.npy {first['classes'][0]['class']}" in " ".join(table.split())
    assert len(table.strip().splitlines()) == 2 + 5


def test_names_of_files_do_nothing_to_terminals_and_spreadsheets(lenet, place, capsys):
    (place / "a").mkdir()
    np.save("=1+1.npy", digits()[0][0])
    np.save("a/\x1b[2J.npy", digits()[0][0])
    for flags in ([], ["--csv"], ["--json"]):
        out = printed(capsys, lenet["run_dir"], "=1+1.npy", *flags)
        assert ("'=1+1.npy" in out) == ("--csv" in flags)
        if "--csv" not in flags:  # CSV is data, in which only the beginning of a cell is changed
            assert "\x1b" not in printed(capsys, lenet["run_dir"], "a/\x1b[2J.npy", *flags)
    assert cli.main(["predict", str(lenet["run_dir"]), "\x1b[2J.png"]) == 7
    assert "\x1b" not in capsys.readouterr().err


def test_nothing_is_written(lenet, place):
    np.save("one.npy", digits()[0][0])
    before = {path: path.stat().st_mtime_ns for folder in (place, lenet["run_dir"]) for path in folder.rglob("*")}
    predict(lenet["run_dir"], [Path("one.npy")])
    after = {path: path.stat().st_mtime_ns for folder in (place, lenet["run_dir"]) for path in folder.rglob("*")}
    assert after == before


def bad_files() -> dict[str, tuple[str, dict]]:
    np.save("shape.npy", np.zeros((3, 1, 28, 28), np.float32))
    np.save("pixels.npy", np.zeros((8, 8, 3), np.uint8))
    np.savez("names.npz", x=np.zeros((1, 1, 32, 32)))
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    Path("text.png").write_text("no image")
    Path("cut.npy").write_bytes(Path("shape.npy").read_bytes()[:500])
    return {
        "shape.npy": ("an array has another shape", {"found": "the shape (3, 1, 28, 28)"}),
        "pixels.npy": ("an array has another shape", {"expected": "bytes [H, W, 1], or a stack of these"}),
        "names.npz": ("a file lacks an input", {"array": "image", "found": "x"}),
        "objects.npy": ("", {}),
        "text.png": ("not an image", {}),
        "cut.npy": ("", {}),
        "missing.png": ("a file is missing", {}),
    }


def test_bad_files(lenet, place, capsys):
    for name, (what, known) in bad_files().items():
        with pytest.raises(DataError) as caught:
            predict(lenet["run_dir"], [Path(name)])
        assert caught.value.what.startswith(what)
        assert str(caught.value.rows["file"]) == name
        assert known.items() <= {key: str(value) for key, value in caught.value.rows.items()}.items()
    for words in ([], [lenet["run_dir"]], [lenet["run_dir"], "a.png", "--top", "0"], ["nothing", "a.png"]):
        assert cli.main(["predict", *map(str, words)]) == 2
        assert capsys.readouterr().out == ""


def test_a_run_without_checkpoints_or_with_damaged_inputs(lenet, place):
    np.save("one.npy", digits()[0][0])
    shutil.copytree(lenet["run_dir"], "copy")
    known = json.loads(Path("copy/inputs.json").read_text())
    wrong = ({"facts": {"num_classes": -1}}, {"inputs": 1}, {"class_names": [1]}, {"preprocessing": []})
    for damage in ("", "[]", "{}", *(json.dumps(known | one) for one in wrong)):
        Path("copy/inputs.json").write_text(damage)
        with pytest.raises(DataError):
            predict(Path("copy"), [Path("one.npy")])
    Path("copy/inputs.json").unlink()  # a run of an earlier version: the dataset is opened
    assert predict(Path("copy"), [Path("one.npy")]).values.shape == (1, 10)
    shutil.rmtree("copy/checkpoints")
    with pytest.raises(DataError, match="no good checkpoint"):
        predict(Path("copy"), [Path("one.npy")])


def linear_outputs(run: Path, features: np.ndarray) -> np.ndarray:
    """The only dense layer of a network, in Float64."""
    arrays = state.newest(run / "checkpoints", "CKP")[0].arrays
    return features.astype(np.float64) @ arrays["layer.weight"].astype(np.float64).T + arrays["layer.bias"]


LINEAR = '''
import numpy as np
import runner
from runner import nn
from runner.dataset import NumpySlicesDataset

@runner.register.network("linear")
class Linear(nn.Cell):
    """One dense layer."""

    def __init__(self, num_features: int, outputs: int = 1):
        super().__init__()
        self.layer = nn.Dense(num_features, outputs)

    def construct(self, x):
        return self.layer(x)

def points(split):
    rng = np.random.RandomState(3 if split == "train" else 4)
    return rng.normal(size=(40, 3)).astype(np.float32)

@runner.register.dataset("sides")
def sides(split):
    """The side of a plane: binary, Float32 [1]."""
    x = points(split)
    data = NumpySlicesDataset({"x": x, "side": (x.sum(axis=1, keepdims=True) > 0).astype(np.float32)}, shuffle=False)
    data.class_names = ("below", "above")
    return data

@runner.register.dataset("signs")
def signs(split):
    """The signs of the coordinates: labels, Float32 [3]."""
    x = points(split)
    return NumpySlicesDataset({"x": x, "signs": (x > 0).astype(np.float32)}, shuffle=False)

@runner.register.dataset("sums")
def sums(split):
    """The sum: a regression, Float32 [1]."""
    x = points(split)
    data = NumpySlicesDataset({"x": x, "total": x.sum(axis=1, keepdims=True)}, shuffle=False)
    data.preprocessing = Words()
    return data

class Words(runner.dataset.Preprocessing):
    """Reads three numbers from a text file."""

    def read(self, paths):
        x = np.array([path.read_text().split() for path in paths], np.float32)
        data = NumpySlicesDataset({"x": x}, shuffle=False)
        data.row_names = [path.name for path in paths]
        return data

    def as_json(self):
        return {"reader": "words"}
'''
TASKS = {
    "sides": ("loss=binary_cross_entropy", 1),
    "signs": ("loss=binary_cross_entropy", 3),
    "sums": ("loss=mse", 1),
}


@pytest.mark.parametrize("mode", MODES)
def test_tasks_of_own_datasets(place, mode):
    """Inputs as .npy; probabilities and numbers against Float64."""
    with project(place / "demo", name := f"predicted_in_{mode}") as folder:
        (folder / name / "more.py").write_text(LINEAR)
        x = np.random.RandomState(5).normal(size=(7, 3))
        np.save("x.npy", x)
        np.save("first.npy", x[0])
        np.savez("x.npz", x=x)
        for task, (loss, outputs) in TASKS.items():
            words = [f"dataset={task}", "network=linear", f"network.outputs={outputs}", loss, f"mode={mode}", *QUIET]
            runner.run([*words, "optimizer=adam", "eval.metrics=[loss]", f"hydra.run.dir=runs/{task}"])
            expected = linear_outputs(Path("runs") / task, x)
            if task != "sums":
                expected = 1.0 / (1.0 + np.exp(-expected))
            if task == "sides":
                expected = np.hstack([1.0 - expected, expected])
            found = predict(Path("runs") / task, [Path("x.npy"), Path("first.npy"), Path("x.npz")])
            np.testing.assert_allclose(found.values, np.vstack([expected, expected[:1], expected]), rtol=2e-5)
            assert found.rows == (
                *(f"x.npy[{k}]" for k in range(7)),
                "first.npy[0]",
                *(f"x.npz[{k}]" for k in range(7)),
            )
            assert found.has_classes == (task != "sums")
            names = {"sides": ("below", "above"), "signs": ("0", "1", "2"), "sums": ("total",)}
            assert found.names == names[task]
        with pytest.raises(DataError, match="the dataset of the run reads no files"):
            predict(Path("runs/signs"), [Path("x.png")])
        Path("x.txt").write_text(" ".join(map(str, x[0])))
        by_words = predict(Path("runs/sums"), [Path("x.txt")])
        assert by_words.rows == ("x.txt",)
        np.testing.assert_allclose(by_words.values, expected[:1], rtol=2e-5)
        np.save("nan.npy", np.full((2, 3), np.nan))
        with pytest.raises(TrainingError, match="not finite") as caught:
            predict(Path("runs/sums"), [Path("x.npy"), Path("nan.npy")])
        assert caught.value.rows["sample"] == "nan.npy[0]"


def houses(rows: int, seed: int) -> list[dict]:
    rng = np.random.RandomState(seed)
    made = []
    for area, rooms, city in zip(
        rng.uniform(30, 200, rows).round(1), rng.randint(1, 7, rows), rng.choice(["Rome", "Oslo"], rows), strict=True
    ):
        price = round(2.0 * area + 10.0 * rooms + (50.0 if city == "Oslo" else 0.0), 2)
        made.append(
            {"area": area, "rooms": rooms, "city": city, "price": price, "dear": "yes" if price > 250 else "no"}
        )
    return made


def write_table(path: str, rows: list[dict], without: tuple[str, ...] = ()) -> None:
    columns = [name for name in rows[0] if name not in without]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["dear", "price"])
def test_rows_of_a_table(place, mode, target, capsys):
    """Test rows in a file of their own: the accuracy, or the mean absolute error, of the run; without its data."""
    test = houses(60, 2)
    write_table("train.csv", houses(200, 1))
    write_table("test.csv", test)
    write_table("new.csv", test, without=("dear", "price"))
    write_table("lacking.csv", test, without=("area",))
    keys = [f"dataset.target={target}", "dataset.features=[area,rooms,city]", "dataset.data_file=train.csv"]
    of_task = ["eval.metrics=[accuracy]"] if target == "dear" else ["loss=l1", "eval.metrics=[mae]"]
    words = ["dataset=csv", *keys, "dataset.test_file=test.csv", "network=mlp", f"mode={mode}", *QUIET, *of_task]
    known = runner.run([*words, "optimizer=adam", "epochs=3", "hydra.run.dir=run"])["metrics"]
    Path("train.csv").unlink()
    Path("test.csv").unlink()
    rows = [*csv.DictReader(io.StringIO(printed(capsys, "run", "new.csv", "--csv", "--top", 1)))]
    assert [row["file"] for row in rows] == [f"new.csv:{line}" for line in range(2, 62)]
    if target == "dear":
        assert np.mean([row["class"] == one["dear"] for row, one in zip(rows, test, strict=True)]) == known["accuracy"]
    else:
        errors = [abs(float(row["price"]) - one["price"]) for row, one in zip(rows, test, strict=True)]
        assert np.mean(errors) == pytest.approx(known["mae"], rel=1e-5)
    with pytest.raises(DataError) as caught:
        predict(Path("run"), [Path("lacking.csv")])
    assert "area" in str(caught.value)
    assert "lacking.csv" in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_arrays_are_prepared_as_in_training(place, mode):
    """`dataset=npz` with a scale: raw values, the accuracy of the run."""
    rng = np.random.RandomState(1)
    x, y = rng.randint(0, 256, (90, 6)).astype(np.uint8), rng.randint(0, 3, 90)
    x[np.arange(90), y] = 255
    np.savez("data.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    words = ["dataset=npz", "dataset.data_file=data.npz", "dataset.scale=0.00392156862745098", "network=mlp", *QUIET]
    known = runner.run([*words, f"mode={mode}", "optimizer=adam", "epochs=4", "hydra.run.dir=run"])["metrics"]
    np.save("new.npy", x[60:])
    found = predict(Path("run"), [Path("new.npy")])
    assert np.mean(found.values.argmax(axis=1) == y[60:]) == known["accuracy"]


@pytest.mark.parametrize("mode", MODES)
def test_images_in_folders(place, mode):
    """`dataset=image_folder`: classes by name, the accuracy of the run, after its images are gone."""
    rng = np.random.RandomState(1)
    files, expected = [], []
    for split, count in (("train", 20), ("test", 6)):
        for name, brightest in (("night", 120), ("day", 255)):
            (place / "photos" / split / name).mkdir(parents=True)
            for k in range(count):
                file = place / "photos" / split / name / f"{k}.png"
                Image.fromarray(rng.randint(0, brightest, (12, 20, 3)).astype(np.uint8)).save(file)
                if split == "test":
                    files.append(place / f"{name}_{k}.png")
                    expected.append(name)
                    shutil.copy(file, files[-1])
    words = ["dataset=image_folder", "dataset.data_dir=photos", "dataset.image_size=8", "network=mlp", *QUIET]
    words += [f"mode={mode}", "dataset.batch_size=8", "optimizer=adam"]
    known = runner.run([*words, "epochs=2", "hydra.run.dir=run"])["metrics"]
    shutil.rmtree("photos")
    found = predict(Path("run"), files)
    assert set(found.names) == {"night", "day"}
    best = [found.names[k] for k in found.values.argmax(axis=1)]
    assert np.mean([a == b for a, b in zip(best, expected, strict=True)]) == known["accuracy"]
    np.save("small.npy", np.zeros((7, 8, 3), np.uint8))
    with pytest.raises(DataError, match="another shape") as caught:
        predict(Path("run"), [Path("small.npy")])
    assert caught.value.rows["expected"] == "bytes [8, 8, 3], or a stack of these"


def test_the_run_of_a_script(place):
    (place / "run").mkdir()
    (place / "run" / "script.json").write_text("{}")
    with pytest.raises(ConfigError, match="the run is that of a script"):
        predict(place / "run", [Path("a.npy")])


# Numbers without classes: how they are shown.


def shown(capsys, monkeypatch, outputs: dict[str, np.ndarray], *words: object, width: int = 80) -> str:
    """What the command prints for these outputs of a network, in a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    names, arrays = [*outputs], [*outputs.values()]
    values, numbers = _numbers(names, arrays)
    rows = tuple(f"a/rather/long/path/of/samples.npy[{k}]" for k in range(len(values)))
    monkeypatch.setattr(commands, "predict", lambda *_: Predictions(rows, values, numbers, outputs=outputs))
    return printed(capsys, "run", "x.npy", *words)


def test_numbers_are_never_cut(capsys, monkeypatch):
    """Exponents became dots: five columns of eleven letters in a terminal of 60."""
    x = np.array([[-1.23456e-30, 9.87654e20, -4.4e-12, 1 / 3, 7e-7], [1e-5, 2e-6, 3e-7, -4.56789e-8, 5e-9]])
    for width in (60, 200):
        table = shown(capsys, monkeypatch, {"y": x}, width=width)
        assert [text for text in (f"{value:.6g}" for value in x.ravel()) if text not in table.split()] == []
        assert "…" not in table


def test_many_numbers_are_summarised(capsys, monkeypatch, place):
    rng = np.random.default_rng(0)
    outputs = {"mask.0": rng.normal(size=(2, 3, 32, 32)).astype(np.float32), "mask.1": np.arange(8.0).reshape(2, 4)}
    table = [line.split() for line in shown(capsys, monkeypatch, outputs, width=120).splitlines()]
    assert table[0] == ["file", "output", "shape", "min", "max", "mean"] or table[1][:2] == ["file", "output"]
    (row,) = [line for line in table if "mask.1" in line and "[1]" in line[0]]
    assert row[2:] == ["[4]", "4", "7", "5.5"]
    first = outputs["mask.0"][0].astype(np.float64)
    (row,) = [line for line in table if "mask.0" in line and "[0]" in line[0]]
    assert row[2:] == ["[3,", "32,", "32]", *(f"{n:.6g}" for n in (first.min(), first.max(), first.mean()))]
    assert table[-1] == ["all", "numbers:", "--npz", "FILE,", "--csv", "or", "--json"]


def test_arrays_are_written(capsys, monkeypatch, place, lenet):
    outputs = {"mask.0": np.ones((2, 3, 4), np.float32), "mask.1": np.arange(8.0).reshape(2, 4)}
    assert shown(capsys, monkeypatch, outputs, "--npz", "out.npz") == ""
    with np.load("out.npz") as written:
        assert {name: array.tolist() for name, array in written.items()} == {
            "file": [f"a/rather/long/path/of/samples.npy[{k}]" for k in range(2)],
            **{name: array.tolist() for name, array in outputs.items()},
        }
    assert cli.main(["predict", "run", "x.npy", "--npy", "out.npy"]) == 2
    assert "--npz, which writes all of them" in capsys.readouterr().err
    assert not Path("out.npy").exists()
    shown(capsys, monkeypatch, {"mask": outputs["mask.0"]}, "--npy", "out.npy")
    np.testing.assert_array_equal(np.load("out.npy"), outputs["mask.0"])
    monkeypatch.undo()
    monkeypatch.chdir(place)
    np.save("one.npy", digits()[0][:3])
    printed(capsys, lenet["run_dir"], "one.npy", "--npz", "classes.npz")
    with np.load("classes.npz") as written:
        assert written["class"].tolist() == [str(k) for k in range(10)]
        np.testing.assert_array_equal(written["probability"], predict(lenet["run_dir"], [Path("one.npy")]).values)
