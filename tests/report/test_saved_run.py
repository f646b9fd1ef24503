"""`runner.load_run` and `runner.compare_runs`: arrays, config, network and HTML are those of the files."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from pages import page
from run_folders import NO_PROCESS, leave, varied
from tables import table

import runner
from runner import Tensor, cli, context
from runner.errors import ConfigError, DataError
from runner.rundir import OWNER

TINY = ("dataset=synthetic", "dataset.num_samples=64", "dataset_sink_mode=false", "max_steps=2", "callbacks=quiet")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_metrics_are_arrays(place):
    run = runner.load_run(leave(place / "r", [2.0, 1.5, 1.25]))
    assert [*run.metrics] == ["step", "loss"]
    np.testing.assert_array_equal(run.metrics["step"], [1, 2, 3])
    np.testing.assert_array_equal(run.metrics["loss"], [2.0, 1.5, 1.25])
    assert (run.metrics["step"].dtype, run.metrics["loss"].dtype, run.metrics.rows) == (np.int64, np.float64, 3)
    with pytest.raises(ValueError, match="read-only"):
        run.metrics["loss"][0] = 3.0
    with pytest.raises(KeyError, match="los: the columns are step, loss; nearest: loss"):
        run.metrics["los"]
    assert run.metrics.get("other") is None


def test_evaluations_are_arrays(place):
    matrix = [[3, 0], [1, 2]]
    evaluations = [
        (1, {"accuracy": 0.5, "loss": 1.5, "confusion_matrix": matrix, "ragged": [1]}),
        (2, {"accuracy": 0.75, "loss": 1.25, "confusion_matrix": matrix, "ragged": [1, 2], "text": "x"}),
        (3, {"loss": 1.0, "f1": 0.5}),
    ]
    found = runner.load_run(leave(place / "r", [2.0], evaluations)).evaluations
    assert [*found] == ["step", "accuracy", "eval.loss", "confusion_matrix", "f1"]
    np.testing.assert_array_equal(found["step"], [1, 2, 3])
    np.testing.assert_array_equal(found["accuracy"], [0.5, 0.75, np.nan])
    np.testing.assert_array_equal(found["eval.loss"], [1.5, 1.25, 1.0])
    np.testing.assert_array_equal(found["f1"], [np.nan, np.nan, 0.5])
    assert found["confusion_matrix"].shape == (3, 2, 2)
    np.testing.assert_array_equal(found["confusion_matrix"][1], matrix)
    assert np.isnan(found["confusion_matrix"][2]).all()


def test_what_else_a_run_has(place):
    folder = leave(place / "r", [2.0, 1.0], [(2, {"accuracy": 0.5, "loss": 1.5})], state="failed", error="broken")
    for name in ("CKP-2_1", "CKP-1_10", "CKP-1_9", ".CKP-1_1.0.tmp", "other"):
        (folder / "checkpoints" / name).mkdir(parents=True)
    run = runner.load_run("r")
    assert (run.folder, run.status, run.error, run.name, run.notes) == (Path("r"), "failed", "broken", "lenet", [])
    assert run.config["optimizer.learning_rate"] == 0.01
    assert run.manifest["packages.numpy"] == "2.0"
    assert run.summary["train_seconds"] == 2.5
    assert run.results == {"loss": 1.0, "accuracy": 0.5, "eval.loss": 1.5}
    assert [path.name for path in run.checkpoints] == ["CKP-1_9", "CKP-1_10", "CKP-2_1"]
    assert run.paths["metrics"] == Path("r/metrics.jsonl")
    assert {"status", "config", "manifest", "summary", "metrics", "checkpoints"} == {*run.paths}
    assert repr(run) == "<run r: failed, 2 steps, loss 1, accuracy 0.5, eval.loss 1.5>"
    (place / "dumps").mkdir()
    (folder / OWNER).write_text(json.dumps({"id": "1", "directories": {"/a/dumps": str(place / "dumps")}}))
    assert "dumps" not in runner.load_run("r").paths  # a place that its config cannot have named
    path = str(place / "dumps")
    (folder / OWNER).write_text(json.dumps({"id": "1", "directories": {path: path}}))
    assert runner.load_run("r").paths["dumps"] == place / "dumps"


def test_files_are_read_once_and_anew_by_another_load(place):
    folder = leave(place / "r", state="running", pid=NO_PROCESS)
    run = runner.load_run("r")
    assert (run.status, run.metrics.rows, len(run.notes)) == ("killed", 2, 1)
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"status": "ok"}))
    assert (run.status, runner.load_run(run).status) == ("killed", "ok")


@table("name", ["status.json", "config.json", "manifest.json", "metrics.jsonl", "summary.json"])
@table("content", ["", "{", "[1]", '{"a": NaN}', "\x00", "[" * 100_000])
def test_damaged_files_read_as_empty(tmp_path_factory, name, content):
    folder = leave(tmp_path_factory.mktemp("here") / "r", config=varied() | {"runner": {"debug": False}})
    (folder / name).write_text(content)
    run = runner.load_run(folder)
    values = {"config": run.config, "manifest": run.manifest, "summary": run.summary}
    stem = name.partition(".")[0]
    if stem in values:
        assert not values[stem] or stem == "config"  # that of the overrides
    assert (run.status == "broken") == (stem == "status")
    assert (run.metrics.rows == 0) == (stem == "metrics")
    assert page(run._repr_html_())


@table(
    ("name", "said"),
    [
        ("none", "the run does not exist"),
        ("folder", "not a run directory"),
        ("sweep", "a sweep has several runs"),
        ("file", "the run does not exist"),
    ],
)
def test_what_is_no_run(tmp_path_factory, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    Path("folder").mkdir()
    Path("file").touch()
    leave(Path("sweep/0"))
    Path("sweep/sweep.jsonl").touch()
    with pytest.raises(ConfigError, match=said):
        runner.load_run(name)
    if name != "sweep":
        with pytest.raises(ConfigError):
            runner.compare_runs(name, name)


def test_the_network_computes_what_its_file_does(place):
    assert cli.main([*TINY, "network=resnet18", "hydra.run.dir=r", "mode=graph", "eval.every=never"]) == 0
    run = runner.load_run("r")
    network = run.network()
    session = onnxruntime.InferenceSession(run.paths["network"], providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    x = np.random.default_rng(1).normal(size=(2, *given.shape[1:])).astype(np.float32)
    (expected,) = session.run(None, {given.name: x})
    for mode in (context.PYNATIVE_MODE, context.GRAPH_MODE):
        context.set_context(mode=mode)
        np.testing.assert_allclose(network(Tensor(x)).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_network_that_cannot_be_built(place):
    run = runner.load_run(leave(place / "r"))
    with pytest.raises(DataError, match="no good checkpoint"):
        run.network()
    (place / "r" / "script.json").write_text("{}")
    with pytest.raises(ConfigError, match="is that of a script"):
        run.network()


def test_nothing_is_executed(place):
    (place / "evil.py").write_text("open('MARKER', 'w')")
    (place / "runner.toml").write_text('code = ["evil.py"]\n')
    folder = leave(place / "r", [2.0, 1.0])
    (folder / "code").mkdir()
    (folder / "code" / "evil.py").write_text("open('MARKER', 'w')")
    run = runner.load_run("r")
    assert run._repr_html_()
    assert runner.compare_runs(run, run).same
    assert (run.metrics.rows, run.paths["code"]) == (2, Path("r/code"))
    assert not (place / "MARKER").exists()


def test_a_comparison_is_that_of_the_command(place, capsys):
    a = leave(place / "a", [2.0, 1.5], [(2, {"accuracy": 0.5})], config=varied(seed=2))
    b = leave(place / "b", [2.0, 1.0], [(2, {"accuracy": 0.75})])
    assert cli.main(["compare", "a", "b", "--metrics", "--json"]) == 6
    printed = json.loads(capsys.readouterr().out)
    found = runner.compare_runs("a", runner.load_run("b"))
    del printed["notes"]  # that there are no dumps
    assert {name: found.values[name] for name in printed} == printed
    assert not found.same
    assert found.verdict == "different: loss differs; accuracy differs; 1 of 2 losses differ, first at step 2"
    assert found.verdict in repr(found)
    assert "seed  2  1" in repr(found)
    text = found._repr_html_()
    assert "1 of 2 losses differ" in text
    assert "seed" in text
    assert runner.compare_runs(a, b, atol=0.5).same
    assert "badge same" in runner.compare_runs(a, b, atol=0.5)._repr_html_()
    assert runner.compare_runs("a", "a").verdict == "same: 2 losses and 2 metrics agree within rtol 0.0001"


def test_html_shows_the_figures_and_nothing_can_be_injected(place):
    hostile = "<script>alert(1)</script>"
    losses = [2.0 - k / 1000 for k in range(500)]
    config = varied(network__name=hostile)
    evaluations = [(250, {hostile: 0.5}), (500, {hostile: 0.625})]
    leave(place / "r", losses, evaluations, config=config, experiment=hostile, error=hostile, state="failed")
    run = runner.load_run("r")
    for text in (run._repr_html_(), run.evaluations._repr_html_(), runner.compare_runs(run, run)._repr_html_()):
        assert "<script" not in text
        assert text.count("<style>") == 1
        assert not re.findall(r"<(?:input|link|img|iframe)\b|\bhref=|\bsrc=| on\w+=", text)
        root = page(text)
        assert root is not None
    text = run._repr_html_()
    assert "&lt;script&gt;" in text
    assert "0.625" in text
    assert 'data-name="loss"' in text
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)[1]
    assert style.startswith(".runner-output.runner-output.runner-output{")
    assert ":root" not in style
    blocks = re.sub(r"\{[^{}]*\}", "", re.sub(r"\{[^{}]*\}", "", re.sub(r"\{[^{}]*\}", "", style)))
    assert {*blocks.split()} == {3 * ".runner-output"}  # everything else is inside of these rules


def test_a_long_table_shows_its_ends(place):
    run = runner.load_run(leave(place / "r", [2.0 - k / 1000 for k in range(500)]))
    text = run.metrics._repr_html_()
    assert [f">{value}</td>" in text for value in (1, 5, 6, 495, 496, 500)] == [True, True, False, False, True, True]


def test_pandas(place, monkeypatch):
    run = runner.load_run(leave(place / "r", [2.0, 1.5], [(1, {"accuracy": 0.5, "matrix": [[1, 2]]})]))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pandas is not installed\n  repair  pip install pandas"):
        run.metrics.to_pandas()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    assert {name: [*x] for name, x in run.metrics.to_pandas().items()} == {"step": [1, 2], "loss": [2.0, 1.5]}
    assert run.evaluations.to_pandas()["matrix"] == [[[1.0, 2.0]]]


def test_a_data_frame(place):
    pandas = pytest.importorskip("pandas")
    run = runner.load_run(leave(place / "r", [2.0, 1.5], [(1, {"accuracy": 0.5, "matrix": [[1, 2]]})]))
    frame = run.metrics.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loss.tolist() == [2.0, 1.5]
    assert str(frame.dtypes["step"]) == "int64"
    assert run.evaluations.to_pandas().matrix[0] == [[1.0, 2.0]]
