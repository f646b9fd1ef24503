"""`runner export --format mindir`: the file of a run, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from mindir_schema import decoded
from safetensors.numpy import load_file
from tables import table

import runner
from runner.cli import main

QUIET = ("callbacks=quiet", "device.threads=1", "dataset_sink_mode=false")
SMALL = ("dataset=synthetic", "dataset.num_samples=32", "dataset.batch_size=8", "max_steps=2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mindir") / "r"
    runner.run(["+experiment=lenet_seed", *SMALL, *QUIET, f"hydra.run.dir={folder}"])
    return folder


def test_the_file_has_the_weights_of_the_last_checkpoint(trained, tmp_path, capsys):
    file = tmp_path / "new" / "lenet.mindir"
    assert main(["export", str(trained), "--format", "mindir", "--to", str(file)]) == 0
    assert capsys.readouterr().out == f"exported: {file} ({file.stat().st_size / 1e6:.1f} MB)\n"
    graph = decoded(file.read_bytes()).graph
    assert [(x.name, tuple(x.tensor[0].dims)) for x in graph.input] == [("network:image", (-1, 1, 32, 32))]
    checkpoint = max(trained.glob("checkpoints/*/*.safetensors"), key=lambda path: str(path))
    arrays = load_file(checkpoint)
    for parameter in graph.parameter:
        expected = arrays[parameter.name.removeprefix("network:")]
        assert np.array_equal(np.frombuffer(parameter.raw_data, np.float32).reshape(expected.shape), expected)
    assert main(["export", str(trained), "--format", "mindir", "--to", str(file)]) == 0  # replaces the file


@table(
    ("words", "code", "said"),
    [
        (["--to", "net.onnx"], 2, "a MindIR file has another suffix"),
        (["--to", "net.mindir", "--steps", "4"], 2, "--steps"),
        (["--to", "net.mindir", "--quantize", "--opset", "18"], 2, "--quantize, --opset"),
        (["--to", "folder.mindir"], 4, "this is a directory, not a file"),
    ],
)
def test_what_is_refused(words, code, said, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.mindir").mkdir(exist_ok=True)
    assert main(["export", str(trained), "--format", "mindir", *words]) == code
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["folder.mindir"]
