"""`runner export`, used as another program would: onnxruntime, numpy and the files of the directory.

The oracle is the run itself: its losses in metrics.jsonl, its checkpoints, and for one step the rule of the optimizer
in Float64.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from jsonschema import Draft202012Validator
from ranks import mpirun, needs_mpi
from safetensors.numpy import load_file, save_file
from soak import thinned
from tables import table

import runner
from runner.cli import main
from runner.experiment import export as trained_run
from runner.host import files
from runner.ops.activation import ReLU, ReluGrad
from runner.ops.optimizer import ApplyMomentum

QUIET = ("callbacks=quiet", "device.threads=1", "dataset_sink_mode=false")
SMALL = ("dataset=synthetic", "dataset.num_samples=64", "dataset.batch_size=8")
SCHEMA = files.folder("experiment") / "signature.schema.json"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    """An empty directory; the module `own` of another test is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def export(*words: str, to: str = "e") -> dict:
    assert main(["export", "r", "--to", to, *words]) == 0
    return read_signature(Path(to))


def read_signature(folder: Path) -> dict:
    signature = json.loads((folder / "signature.json").read_text())
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(signature)
    return signature


def opened(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def losses_of(folder: str) -> list[float]:
    rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["event"] == "step"]


class Trainer:
    """What a program has to do with a directory: nothing that is not in `signature.json`."""

    def __init__(self, folder: Path, begin: str = "initial", model: str = "train_step") -> None:
        self.folder, self.signature = folder, read_signature(folder)
        self.model = self.signature["models"][model]
        self.session = opened(folder / self.model["file"])
        stored = load_file(folder / self.signature[begin]["file"])
        entries = self.signature[begin]["entries"]
        self.roles = {value["name"]: value["role"] for value in self.model["inputs"]}
        self.state = {name: stored[entries[name]] for name in self.roles if name in entries}

    def train(self, batch: tuple[np.ndarray, ...], number: int = 0, rate: float | None = None) -> dict[str, np.ndarray]:
        columns = [name for name, role in self.roles.items() if role in ("data", "target")]
        feeds = dict(zip(columns, batch, strict=True))
        for name, role in self.roles.items():
            if role == "learning_rate":
                feeds[name] = np.asarray(self.signature["learning_rate"] if rate is None else rate, np.float32)
            if role == "step":
                feeds[name] = np.asarray(number)
        names = [y["name"] for y in self.model["outputs"]]
        results = dict(zip(names, self.session.run(None, self.state | feeds), strict=True))
        self.state |= {y["feeds"]: results[y["name"]] for y in self.model["outputs"] if y["feeds"]}
        return results


def batches_of_run() -> list[tuple[np.ndarray, ...]]:
    """The batches of the run in `r`, in the order of its training."""
    with trained_run.opened(Path("r")) as run:
        data = run.experiment.train_data
        visits = data.visits_from(0)
        return [data.fetch(next(visits)) for _ in losses_of("r")]


OWN = """
from runner import nn, ops, register


@register.network("own")
class Own(nn.Cell):
    def __init__(self, num_classes: int, width: int = 12):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=2, pad_mode="pad", padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.drop = nn.Dropout(0.8)
        self.flat = nn.Flatten()
        self.one, self.two = nn.Dense(4 * 16 * 16, width), nn.Dense(width, num_classes)

    def construct(self, x):
        x = ops.GeLU()(self.norm(self.first(x)))
        return self.two(ops.Tanh()(self.one(self.drop(self.flat(x)))))
"""
RANDOM = OWN.replace("self.drop(self.flat(x))", "ops.Dropout(0.8)(self.flat(x))[0]")
RUNS = {
    "lenet": ("network=lenet5", "optimizer=momentum"),
    "sgd": ("network=lenet5", "optimizer=sgd", "optimizer.momentum=0.9"),
    "mlp and adam": ("network=mlp", "optimizer=adam"),
    "own network": ("network=own", "optimizer=adam", "code"),
    "random operators": ("network=own", "optimizer=momentum", "random"),
    # Exported steps have direct convolutions, and two steps of this network double every rounding error many times.
    "resnet18": ("network=resnet18", "network.width=16", "optimizer=momentum", "max_steps=2", "session.winograd=off"),
    "loss scale": ("network=lenet5", "session.loss_scale=dynamic"),
    "mixed precision": ("network=cnn", "session.precision_mode=allow_mix_precision"),
    "sum of losses": ("network=mlp", "loss.reduction=sum", "optimizer.learning_rate=0.001"),
}


def trained(*words: str, mode: str = "graph") -> dict:
    """A run in `r` of these words, among which `code` and `random` register networks."""
    code = {"code": OWN, "random": RANDOM}
    given = []
    for word in words:
        if word in code:
            Path("own.py").write_text(code[word])
            given = ["--code", "own.py"]
    rest = [word for word in words if word not in code]
    steps = [] if any(word.startswith("max_steps") for word in rest) else ["max_steps=12"]
    line = [*SMALL, *rest, *steps, *QUIET, f"mode={mode}", "epochs=2", "hydra.run.dir=r"]
    assert main([*given, *line]) == 0
    return json.loads(Path("r/summary.json").read_text())


# Relative differences of losses and of the last parameters, where rounding errors grow: halves, and a deep network.
TOLERANCES = {"resnet18": (2e-4, 0.02), "mixed precision": (2e-3, 0.1)}


PAIRS = [(key, mode) for key in RUNS for mode in thinned(["graph", "pynative"], 1 if key == "lenet" else 2)]


@pytest.mark.parametrize(("key", "mode"), PAIRS)
def test_an_exported_step_repeats_the_losses_of_its_run(key, mode, place):
    trained(*RUNS[key], mode=mode)
    code = ["--code", "own.py"] if (place / "own.py").exists() else []
    signature = export(*code)
    assert signature["batch"] == "any"
    trainer = Trainer(place / "e")
    with trained_run.opened(Path("r"), code[1:]) as run:
        data = run.experiment.train_data
        visits = data.visits_from(0)
        batches = [data.fetch(next(visits)) for _ in losses_of("r")]
    losses = [float(trainer.train(batch, number)["loss"]) for number, batch in enumerate(batches)]
    tolerance, far = TOLERANCES.get(key, (1e-5, 1e-3))
    np.testing.assert_allclose(losses, losses_of("r"), rtol=tolerance)
    for name, value in load_file(place / "e/state.safetensors").items():
        if name in trainer.state:
            distance = np.linalg.norm(trainer.state[name] - value) / max(np.linalg.norm(value), 1e-3)
            assert distance < far, (name, distance)


def test_a_signature_describes_its_models(place):
    trained("network=lenet5")
    signature = export("--steps", "3", "--quantize")
    assert set(signature["models"]) == {"train_step", "train_steps", "network", "network_int8", "inference"}
    assert signature["models"]["train_steps"]["steps"] == 3
    assert {file.name for file in (place / "e").iterdir()} == {
        *(model["file"] for model in signature["models"].values()),
        *("state.safetensors", "initial.safetensors", "signature.json", "README.md"),
    }
    for name, described in signature["models"].items():
        model = onnx.load(place / "e" / described["file"])
        onnx.checker.check_model(model, full_check=True)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
        session = opened(place / "e" / described["file"])
        kinds = {"float32": "tensor(float)", "int32": "tensor(int32)", "int64": "tensor(int64)"}
        for values, own in ((session.get_inputs(), described["inputs"]), (session.get_outputs(), described["outputs"])):
            found = [(value.name, value.type, list(value.shape)) for value in values]
            assert found == [(value["name"], kinds[value["type"]], value["shape"]) for value in own]
        if name.startswith("train"):
            inputs = {value["name"]: (value["type"], value["shape"]) for value in described["inputs"]}
            fed = {y["feeds"]: (y["type"], y["shape"]) for y in described["outputs"] if y["feeds"]}
            assert fed.items() <= inputs.items()
            roles = {value["role"] for value in described["inputs"]}
            assert roles == {"data", "target", "learning_rate", "parameter", "state"}
    for begin in ("state", "initial"):
        stored = load_file(place / "e" / signature[begin]["file"])
        inputs = {x["name"]: x for model in signature["models"].values() for x in model["inputs"]}
        for name, entry in signature[begin]["entries"].items():
            assert (stored[entry].dtype.name, list(stored[entry].shape)) == (
                inputs[name]["type"],
                inputs[name]["shape"],
            )
    assert [step["operation"] for step in signature["preprocessing"][0]["steps"]]
    assert (signature["schedule"], signature["learning_rate"]) == ("constant", pytest.approx(0.01))


def test_one_step_is_the_rule_of_momentum_in_float64(place):
    """Softmax regression, whose gradient is x^T (p - y) / n, for a batch of another size than that of the run."""
    words = ("network=mlp", "network.hidden=[]", "optimizer=momentum", "optimizer.momentum=0.8", "max_steps=2")
    trained(*words, "optimizer.weight_decay=0.1")
    export()
    trainer = Trainer(place / "e", "state")
    weights = {name: value for name, value in trainer.state.items() if not name.startswith("moments.")}
    names = sorted(weights, key=lambda name: -weights[name].ndim)
    before = {name: np.array(value, np.float64) for name, value in trainer.state.items()}
    rng = np.random.default_rng(3)
    shape = next(x["shape"] for x in trainer.model["inputs"] if x["role"] == "data")
    rows = 5
    x = rng.standard_normal((rows, *shape[1:])).astype(np.float32)
    labels = rng.integers(0, 10, rows).astype(np.int32)
    results = trainer.train((x, labels), rate=0.3)
    flat = x.reshape(rows, -1).astype(np.float64)
    w, b = (before[name] for name in names)
    scores = flat @ w.T + b
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    assert float(results["loss"]) == pytest.approx(-np.log(p[range(rows), labels]).mean(), rel=1e-5)
    assert float(results["accuracy"]) == pytest.approx((scores.argmax(1) == labels).mean())
    p[range(rows), labels] -= 1
    for name, gradient in zip(names, (p.T @ flat / rows, p.sum(0) / rows), strict=True):
        moment = 0.8 * before[f"moments.{name}"] + gradient + 0.1 * before[name]
        np.testing.assert_allclose(trainer.state[f"moments.{name}"], moment, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(trainer.state[name], before[name] - 0.3 * moment, rtol=1e-4, atol=1e-6)


def test_several_steps_in_one_call_are_as_many_steps(place):
    trained("random", "network=own", "optimizer=adam")
    export("--steps", "4", "--code", "own.py")
    single, several = Trainer(place / "e"), Trainer(place / "e", model="train_steps")
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((5, *single.model["inputs"][0]["shape"][1:])).astype(np.float32) for _ in range(4)]
    labels = [rng.integers(0, 10, 5).astype(np.int32) for _ in range(4)]
    losses = [single.train(batch, 7 + k)["loss"] for k, batch in enumerate(zip(data, labels, strict=True))]
    found = several.train((np.stack(data), np.stack(labels)), 7)["losses"]
    np.testing.assert_allclose(found, losses, rtol=1e-6)
    for name, value in single.state.items():
        np.testing.assert_allclose(several.state[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_schedule_is_the_business_of_the_caller(place):
    trained("network=mlp", "optimizer.schedule.name=cosine")
    signature = export()
    assert signature["schedule"].startswith("CosineDecayLR")
    schedule = runner.nn.CosineDecayLR(0.0, signature["learning_rate"], 12)
    trainer = Trainer(place / "e")
    losses = [float(trainer.train(batch, k, schedule(k))["loss"]) for k, batch in enumerate(batches_of_run())]
    np.testing.assert_allclose(losses, losses_of("r"), rtol=1e-5)


@pytest.mark.parametrize("kept", ["all", "parameters"])
def test_weights_return(kept, place):
    """Another program trains on, and `runner eval` evaluates what it wrote; inference.onnx agrees."""
    trained("network=mlp", "optimizer.learning_rate=0.05")
    export()
    trainer = Trainer(place / "e", "state")
    for number, batch in enumerate(batches_of_run()):
        trainer.train(batch, number)
    names = {x["name"] for x in trainer.model["inputs"] if x["role"] == "parameter" or kept == "all"}
    save_file({name: value for name, value in trainer.state.items() if name in names}, "weights.safetensors")
    assert main(["eval", "r", "checkpoint.load=weights.safetensors", "hydra.run.dir=again"]) == 0
    accuracy = json.loads((place / "again/summary.json").read_text())["metrics"]["accuracy"]
    inference = opened(place / "e/inference.onnx")
    with trained_run.opened(Path("r")) as run:
        data = run.experiment.test_data
        images, labels = (np.concatenate(column) for column in zip(*data.read(0), strict=True))
    feeds = {x.name: trainer.state.get(x.name, images) for x in inference.get_inputs()}
    (scores,) = inference.run(None, feeds)
    assert (scores.argmax(1) == labels).mean() == pytest.approx(accuracy, abs=1e-9)
    loaded = runner.run([*SMALL, *QUIET, "network=mlp", "max_steps=1", "checkpoint.load=weights.safetensors"])
    assert loaded["status"] == "ok"


def test_the_networks_have_the_weights_of_the_last_checkpoint(place):
    summary = trained("network=lenet5", "dataset=digits", "optimizer=adam", "max_steps=60")
    signature = export("--quantize")
    with trained_run.opened(Path("r")) as run:
        images, labels = (np.concatenate(column) for column in zip(*run.experiment.test_data.read(0), strict=True))
    accuracies = {}
    for name in ("network", "network_int8"):
        network = opened(place / "e" / signature["models"][name]["file"])
        (scores,) = network.run(None, {network.get_inputs()[0].name: images})
        accuracies[name] = (scores.argmax(1) == labels).mean()
    assert accuracies["network"] == pytest.approx(summary["metrics"]["accuracy"], abs=1e-9)
    assert accuracies["network_int8"] == pytest.approx(accuracies["network"], abs=0.03)
    sizes = [(place / "e" / signature["models"][name]["file"]).stat().st_size for name in accuracies]
    assert sizes[1] < sizes[0] / 2
    checkpoint = next((place / "r/checkpoints").iterdir()) / "state.safetensors"
    assert (place / "e/state.safetensors").read_bytes() == checkpoint.read_bytes()


def test_a_network_for_one_batch_size_says_so(place):
    text = OWN.replace("self.flat(x)", "ops.Reshape()(x, (8, -1))")
    (place / "own.py").write_text(text)
    assert main(["--code", "own.py", *SMALL, "network=own", "max_steps=1", *QUIET, "hydra.run.dir=r"]) == 0
    signature = export("--code", "own.py")
    assert signature["batch"] == 8
    assert "batch_reason" in signature
    assert Trainer(place / "e").model["inputs"][0]["shape"][0] == 8


@table("opset", (15, 17, 19, 21), ids=str)
def test_other_versions_of_the_operators(opset):
    if not Path("r").exists():
        trained("network=lenet5", "max_steps=1")
    export("--opset", str(opset), "--steps", "2", to=f"e{opset}")
    for file in Path(f"e{opset}").glob("*.onnx"):
        model = onnx.load(file)
        onnx.checker.check_model(model, full_check=True)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]


REFUSED = {
    "12": "allowed  13 to ",
    "999": "allowed  13 to ",
    "17": "BitwiseAnd (opset 18) at ",
}


@table("opset", REFUSED, ids=str)
def test_versions_that_cannot_be_written(opset, capsys):
    if not Path("r").exists():
        trained("random", "network=own", "max_steps=1")
    assert main(["export", "r", "--to", "e", "--opset", opset, "--code", "own.py"]) == 2
    assert REFUSED[opset] in capsys.readouterr().err
    assert not Path("e").exists()


def refused(capsys, *words: str) -> str:
    assert main(["export", "r", "--to", "e", *words]) != 0
    return capsys.readouterr().err


def test_only_an_earlier_export_is_replaced(place, capsys):
    trained("network=mlp", "max_steps=1")
    (place / "e").mkdir()
    export("--steps", "2")
    assert "train_steps" not in export()["models"]
    assert not (place / "e/train_steps.onnx").exists()
    (place / "e/notes.txt").write_text("mine")
    assert main(["export", "r", "--to", "e"]) == 4
    block = capsys.readouterr().err
    assert "contains  notes.txt" in block
    assert "only an earlier export is replaced" in block
    (place / "e/notes.txt").unlink()
    (place / "e/signature.json").write_text('{"format": 7}')
    assert main(["export", "r", "--to", "e"]) == 4
    (place / "link").symlink_to(place / "e")
    (place / "e/signature.json").write_text("{}")
    assert main(["export", "r", "--to", "link"]) == 4
    for file in (place / "e").iterdir():
        file.unlink()
    export(to="link")
    assert (place / "link").is_symlink()
    assert main(["export", "r", "--to", "."]) == 2
    (place / "file").write_text("x")
    assert main(["export", "r", "--to", "file"]) == 2


WRONG = {
    "forward": (ReLU, lambda self, b, x: b.node("Abs", (x,))),
    "gradient": (ReluGrad, lambda self, b, dout, y: b.node("Identity", (dout,))),
    "optimizer": (
        ApplyMomentum,
        lambda self, b, w, v, lr, g, m: momentum(b, w, v, lr, b.node("Mul", (g, b.const(1.05, like=g))), m),
    ),
}


def momentum(b, w, v, lr, g, m) -> tuple[str, str]:
    moment = b.node("Add", (b.node("Mul", (m, v)), g))
    return b.node("Sub", (w, b.node("Mul", (lr, moment)))), moment


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_operator_is_found_before_anything_is_written(name, place, capsys, monkeypatch):
    operator, lower = WRONG[name]
    trained("network=lenet5", "optimizer=momentum", "max_steps=2", mode="pynative")
    monkeypatch.setattr(operator, "lower", lower)
    assert main(["export", "r", "--to", "e"]) == 6
    block = capsys.readouterr().err
    assert "an exported model does not compute what the run computes" in block
    assert "train_step.onnx" in block
    assert not (place / "e").exists()


def test_a_directory_appears_whole_or_not_at_all(place, monkeypatch):
    trained("network=mlp", "max_steps=1")
    export()
    before = {file.name: file.read_bytes() for file in (place / "e").iterdir()}
    count = operations(monkeypatch, lambda number, name: None, "--steps", "2")
    assert count > 10
    for stop in range(1, count, 3):

        def failing(number: int, name: str, stop: int = stop) -> None:
            if number == stop:
                raise OSError(28, "No space left on device")

        operations(monkeypatch, failing, "--steps", "3")
        names = {file.name for file in (place / "e").iterdir()}
        assert names in (set(before), {*before, "train_steps.onnx"})
        read_signature(place / "e")
    assert {file.name for file in place.iterdir()} <= {"r", "e", "outputs"} | {
        name for name in (file.name for file in place.iterdir()) if name.endswith(".old")
    }


def operations(monkeypatch, called, *words: str) -> int:
    """Export with this function called before every operation on files; the number of operations."""
    number = 0

    def before(name: str, path: Path) -> None:
        nonlocal number
        number += 1
        called(number, name)

    with monkeypatch.context() as patch:
        patch.setattr(files, "before_operation", before)
        main(["export", "r", "--to", "e", *words])
    return number


def test_what_is_no_run(place, capsys):
    assert main(["export", "r", "--to", "e"]) == 2
    assert "not a run directory" in capsys.readouterr().err
    trained("network=mlp", "max_steps=1")
    assert main(["export", "r", "--to", "e", "--format", "onyx"]) == 2
    assert "nearest  onnx" in capsys.readouterr().err
    for folder in (place / "r/checkpoints").iterdir():
        (folder / "state.safetensors").write_bytes(b"")
    assert main(["export", "r", "--to", "e"]) == 7
    assert main(["export", "r"]) == 2
    assert not (place / "e").exists()


@pytest.mark.parametrize("optimizer", [*thinned(["momentum", "adam"], every=2)])
def test_the_example_repeats_the_losses_of_the_run(optimizer, place):
    """200 steps with onnxruntime and numpy only, on the digits in their order."""
    words = ("dataset=digits", "dataset.shuffle=false", "dataset.batch_size=32", "max_steps=200", "epochs=5")
    rate = "0.01" if optimizer == "momentum" else "0.001"
    words = (*words, f"optimizer={optimizer}", f"optimizer.learning_rate={rate}")
    assert main(["+experiment=lenet_seed", *words, *QUIET, "mode=graph", "hydra.run.dir=r"]) == 0
    export()
    with trained_run.opened(Path("r")) as run:
        data = run.experiment.train_data
        arrays = [np.concatenate(column) for column in zip(*data.read(0), strict=True)]
        np.savez("batches.npz", **dict(zip(data.get_col_names(), arrays, strict=True)))
    example = Path(__file__).parents[2] / "examples/train_exported.py"
    assert len(example.read_text().splitlines()) < 60
    blocked = "import sys, runpy; sys.modules['runner'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    line = [sys.executable, "-c", blocked, str(example), "e", "batches.npz", "weights.safetensors"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    losses, expected = [float(row.split()[-1]) for row in done.stdout.splitlines()], losses_of("r")
    assert len(losses) == 200
    same = 200 if optimizer == "momentum" else 60  # rounding errors grow where a network learns fast
    np.testing.assert_allclose(losses[:same], expected[:same], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(losses, expected, atol=0.05)
    assert main(["eval", "r", "checkpoint.load=weights.safetensors", "hydra.run.dir=again"]) == 0
    found = [json.loads((place / run / "summary.json").read_text())["metrics"]["accuracy"] for run in ("r", "again")]
    assert found[0] == pytest.approx(found[1], abs=0.02)
    assert optimizer == "momentum" or found[1] > 0.8


@needs_mpi
@pytest.mark.parametrize("mean", ["true", "false"])
def test_the_step_of_a_data_parallel_run(mean, place):
    """One process with the whole batch makes the steps of two processes with half of it, also of summed gradients."""
    words = [*SMALL, *QUIET, "network=mlp", "mode=graph", "max_steps=6", "hydra.run.dir=r", "parallel=data_parallel"]
    code, _, errors = mpirun(2, "-m", "runner", *words, f"parallel.gradients_mean={mean}", cwd=place)
    assert code == 0, errors
    export()
    trainer = Trainer(place / "e")
    losses = [float(trainer.train(batch, number)["loss"]) for number, batch in enumerate(batches_of_run())]
    np.testing.assert_allclose(losses, losses_of("r"), rtol=1e-5)


def test_the_readme_trains(place):
    """Its lines of Python, in the exported directory, with a batch of the run."""
    trained("network=mlp")
    export("--steps", "2")
    text = (place / "e/README.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    batches = batches_of_run()
    names = [x["name"] for x in read_signature(place / "e")["models"]["train_step"]["inputs"]][:2]
    np.savez(
        place / "e/batches.npz",
        **{f"{k}.{name}": x for k, b in enumerate(batches) for name, x in zip(names, b, strict=True)},
    )
    calls = f"""
data = np.load("batches.npz")
for k in range({len(batches)}):
    print(train({{name: data[f"{{k}}.{{name}}"] for name in {names}}}, k))
"""
    done = subprocess.run(
        [sys.executable, "-c", code + calls], cwd=place / "e", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose([float(line) for line in done.stdout.split()], losses_of("r"), rtol=1e-5)
    assert (place / "e/weights.safetensors").exists()
    assert all(f"`{file.name}`" in text for file in (place / "e").glob("*.onnx"))


def test_an_imported_network_is_exported_again(place):
    trained("network=mlp", "max_steps=2")
    export()
    (place / "e").rename("first")
    (place / "r").rename("before")
    trained("network=onnx", "network.path=first/network.onnx")
    export()
    trainer = Trainer(place / "e")
    losses = [float(trainer.train(batch, number)["loss"]) for number, batch in enumerate(batches_of_run())]
    np.testing.assert_allclose(losses, losses_of("r"), rtol=1e-5)
