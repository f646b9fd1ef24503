"""`runner eval RUN_DIR`: the numbers of the run's own evaluation, other splits, datasets and modes."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from projects import forget, project
from ranks import mpirun, needs_mpi
from sweep_runs import swept

import runner
from runner import cli
from runner.errors import ConfigError, ConfigErrors, DataError, MismatchError
from runner.experiment.evaluate import evaluate
from runner.experiment.resume import resume
from runner.train.checkpoint import state

LENET = ("+experiment=lenet_seed", "callbacks=quiet", "device.threads=1", "max_steps=60", "optimizer=adam")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module", params=["graph", "pynative"])
def trained(request, tmp_path_factory) -> dict:
    """The summary of a short training in each mode."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("trained"))
        metrics = "eval.metrics=[accuracy,loss,f1,confusion_matrix]"
        summary = runner.run([*LENET, f"mode={request.param}", metrics, "expect.accuracy.min=0.2"])
        return summary | {"run_dir": str(Path(summary["run_dir"]).absolute())}


def content(folder: Path) -> dict[str, str]:
    """Every file of a folder with its time and hash."""
    return {
        str(file): f"{file.stat().st_mtime_ns} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_numbers_of_the_run(trained, place, capsys):
    run = Path(trained["run_dir"])
    before = content(run)
    assert cli.main(["eval", str(run), "hydra.run.dir=again"]) == 0
    assert "on the test split\n" in capsys.readouterr().out
    found = json.loads((place / "again" / "summary.json").read_text())
    assert found["metrics"] == trained["metrics"]  # bit for bit, with the confusion matrix
    assert (found["split"], found["steps"], found["mode"]) == ("test", 0, trained["mode"])
    assert rows(place / "again") == [{"event": "eval", "epoch": 0, "global_step": 0, **trained["metrics"]}]
    assert content(run) == before
    assert json.loads((place / "again" / "status.json").read_text())["status"] == "ok"
    newest = state.newest(run / "checkpoints", "CKP")[0].folder
    digest = hashlib.sha256((newest / "state.safetensors").read_bytes()).hexdigest()
    manifest = json.loads((place / "again" / "manifest.json").read_text())
    assert manifest["weights"] == {"path": str(newest), "sha256": digest}


def test_the_other_mode_and_faster_graphs(trained):
    mode = {"graph": "pynative", "pynative": "graph"}[trained["mode"]]
    for words in ([f"mode={mode}"], ["mode=graph", "eval.freeze=true"]):
        metrics = evaluate(trained["run_dir"], words)["metrics"]
        assert metrics["accuracy"] == trained["metrics"]["accuracy"]
        assert metrics["loss"] == pytest.approx(trained["metrics"]["loss"], rel=1e-5)


def test_the_default_directory_is_new_each_time(trained, place):
    folders = {evaluate(trained["run_dir"])["run_dir"] for _ in range(2)}
    assert len(folders) == 2
    assert all(Path(folder).parent.parent == Path("outputs") for folder in folders)


def test_overrides(trained):
    run = trained["run_dir"]
    assert set(evaluate(run, ["eval.metrics=[loss]"])["metrics"]) == {"loss"}
    other = evaluate(run, ["dataset=synthetic", "dataset.num_samples=64", "eval.metrics=[accuracy]"])
    assert (other["dataset"], other["metrics"]["accuracy"] * 64 % 1) == ("synthetic", 0.0)
    with pytest.raises(MismatchError):
        evaluate(run, ["expect.accuracy.min=1.0"])
    assert evaluate(run)["status"] == "ok"  # expectations of the training are not those of an evaluation


REFUSED = [
    (["eval.split=validation"], ConfigError, "not one of the choices"),
    (["dataset=digit"], ConfigError, "not one of the choices"),
    (["network.num_classes=7"], ConfigError, "the checkpoint is of another network"),
    (["eval.metrics=[]"], ConfigError, "nothing to evaluate"),
    (["expect.mae.min=1"], ConfigError, "an expectation that is never evaluated"),
    (["seed=1,2"], ConfigError, "several values for one run"),
    (["dump=async"], ConfigError, "dump needs training steps"),
    (["epochs=0", "nothing=1"], ConfigErrors, "out of range"),
    (["hydra.run.dir=${now:%H}"], ConfigError, "interpolations are not resolved here"),
]


def test_what_is_refused(trained, place):
    for words, kind, text in REFUSED:
        with pytest.raises(kind, match=text):
            evaluate(trained["run_dir"], words)
    assert not [path for path in place.rglob("*") if path.name == "metrics.jsonl"]


def test_directories_without_a_trained_run(trained, place):
    with pytest.raises(ConfigError, match="not a run directory"):
        evaluate(place / "nothing")
    done = evaluate(trained["run_dir"])["run_dir"]
    with pytest.raises(ConfigError, match="the run is an evaluation") as caught:
        evaluate(done)
    assert caught.value.rows["evaluates"].startswith(trained["run_dir"])
    (place / "empty").mkdir()
    (place / "empty" / "config.json").write_text((Path(trained["run_dir"]) / "config.json").read_text())
    with pytest.raises(DataError, match="no good checkpoint") as caught:
        evaluate(place / "empty")
    assert caught.value.rows["hint"] == f"runner resume {place / 'empty'} trains it"


def test_an_evaluation_that_was_killed_runs_again(trained, place):
    """A resume of the evaluation's directory repeats it."""
    done = Path(evaluate(trained["run_dir"], ["hydra.run.dir=mine"])["run_dir"])
    status = json.loads((done / "status.json").read_text())
    (done / "status.json").write_text(json.dumps(status | {"status": "running", "pid": 2**31 - 2}))
    (done / "summary.json").unlink()
    assert resume(done)["metrics"] == trained["metrics"]
    assert len(rows(done)) == 1


def test_a_job_of_a_sweep(place):
    lines = ("dataset=synthetic", "dataset.num_samples=64", "max_steps=2", "callbacks=quiet", "seed=1,2")
    swept(place / "sweep", *lines)
    with pytest.raises(ConfigError, match="a sweep has several runs") as caught:
        evaluate(place / "sweep")
    assert caught.value.rows["hint"] == f"the directory of a job, such as {place / 'sweep' / '0'}"
    for job in "01":
        known = json.loads((place / "sweep" / job / "summary.json").read_text())
        assert evaluate(place / "sweep" / job)["metrics"] == known["metrics"]


@needs_mpi
def test_a_data_parallel_run(place):
    words = (*LENET, "mode=pynative", "parallel=data_parallel", "parallel.gradients_mean=true", "hydra.run.dir=ranks")
    code_, _, err = mpirun(2, "-m", "runner", *words, "dataset_sink_mode=false", cwd=place)
    assert code_ == 0, err
    known = json.loads((place / "ranks" / "summary.json").read_text())
    assert evaluate(place / "ranks")["metrics"] == known["metrics"]


CLASSES_AND_LOSS = '''
import numpy as np
import runner
from runner import nn
from runner.core.values import Parameter

@runner.register.loss("scaled")
class Scaled(nn.Cell):
    """Cross entropy of outputs that are divided by a trained temperature."""

    def __init__(self):
        super().__init__()
        self.entropy = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        self.temperature = Parameter(np.array([3.0], np.float32), "temperature")

    def construct(self, output, target):
        return self.entropy(output / self.temperature, target)

@runner.register.metric("highest")
class Highest(nn.Metric):
    """The highest output."""

    def clear(self):
        self.found = -1e30

    def update(self, output, target):
        self.found = max(self.found, float(output.max()))

    def eval(self):
        return self.found
'''


def float64_outputs(folder: Path, points: np.ndarray) -> np.ndarray:
    """The network of the project, written out in Float64, with the weights of its newest checkpoint."""
    arrays = state.newest(folder / "checkpoints", "CKP")[0].arrays
    names = sorted({name.rpartition(".")[0] for name in arrays if name.startswith("layers.") and name.endswith("bias")})
    values = points.astype(np.float64)
    for name in names:
        values = values @ arrays[f"{name}.weight"].astype(np.float64).T + arrays[f"{name}.bias"]
        values = values if name == names[-1] else np.maximum(values, 0.0)
    return values


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_the_code_of_a_project(place, mode, caplog):
    """Own network, dataset, loss with a parameter, and metric; another split; changed code."""
    with project(place / "demo", name := f"evaluated_in_{mode}") as folder:
        (folder / name / "more.py").write_text(CLASSES_AND_LOSS)
        words = ["+experiment=first", f"mode={mode}", "max_steps=60", "~expect", "callbacks=quiet"]
        known = runner.run([*words, "loss=scaled", "eval.metrics=[accuracy,loss,highest]", "hydra.run.dir=run"])
        assert evaluate("run")["metrics"] == known["metrics"]
        train = evaluate("run", ["eval.split=train"])
        data = runner.register.dataset["spirals"].source("train")
        points, arms = (np.stack(column) for column in zip(*data.create_tuple_iterator(output_numpy=True), strict=True))
        outputs = float64_outputs(folder / "run", points)
        assert train["metrics"]["accuracy"] == pytest.approx(np.mean(outputs.argmax(axis=1) == arms), abs=1e-6)
        assert train["metrics"]["highest"] == pytest.approx(outputs.max(), rel=1e-4)
        assert "the code has changed" not in caplog.text

        forget(name)
        source = folder / name / "networks.py"
        source.write_text(source.read_text() + "\n# a comment\n")
        assert evaluate("run")["metrics"] == known["metrics"]
        assert f"the code has changed since the run: {name}/networks.py" in caplog.text
