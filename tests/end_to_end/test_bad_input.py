"""What real processes say and leave behind when something is wrong: exit codes, blocks on stderr, folders."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from patience import PATIENCE

from runner import register
from runner.dataset.catalog import AUGMENTABLE

ROOT = Path(__file__).parents[2]
LENET = ROOT / "models" / "lenet.py"
RESNET = ROOT / "models" / "resnet.py"
PROVIDERS = ort.get_available_providers()
TRACEBACK = re.compile(r"Traceback|\bFile \".*\", line \d|Warning:")

Prepare = Callable[[Path], None]


@dataclass(frozen=True)
class Row:
    """A command, what makes its folder ready, its exit code, and pieces that stand in its block in this order."""

    words: tuple[str, ...]
    code: int
    pieces: tuple[str, ...]
    prepare: Prepare = lambda folder: None
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Answer:
    """How a process ended."""

    code: int
    out: str
    err: str
    folder: Path


def write_idx(path: Path, values: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes())


def mnist(change: Callable[[bytes], bytes] = bytes, name: str = "train-images-idx3-ubyte", side: int = 28) -> Prepare:
    """Files of MNIST's format, one of them changed."""

    def prepare(folder: Path) -> None:
        data = folder / "data"
        data.mkdir()
        for prefix in ("train", "t10k"):
            write_idx(data / f"{prefix}-images-idx3-ubyte", np.zeros((40, side, side)))
            write_idx(data / f"{prefix}-labels-idx1-ubyte", np.arange(40) % 10)
        (data / name).write_bytes(change((data / name).read_bytes()))

    return prepare


def cifar10(change: Callable[[bytes], bytes] = bytes, name: str = "data_batch_1.bin") -> Prepare:
    """Files of CIFAR-10's format with 40 records each, one of them changed; .gz for a name that says so."""

    def prepare(folder: Path) -> None:
        data = folder / "data"
        data.mkdir()
        records = np.zeros((40, 3073), np.uint8)
        records[:, 0] = np.arange(40) % 10
        for stem in ("data_batch_1.bin", "test_batch.bin"):
            stored = name if name.startswith(stem) else stem
            content = gzip.compress(records.tobytes()) if stored.endswith(".gz") else records.tobytes()
            (data / stored).write_bytes(change(content) if stored == name else content)

    return prepare


def without(prepare: Prepare, name: str) -> Prepare:
    def less(folder: Path) -> None:
        prepare(folder)
        (folder / "data" / name).unlink()

    return less


def flipped(content: bytes, place: int, bits: int = 255) -> bytes:
    return content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]


def a_file(folder: Path) -> None:
    (folder / "file").write_text("x")


def a_used_folder(folder: Path) -> None:
    (folder / "used").mkdir()
    (folder / "used" / "precious").write_text("x")


def configs(text: str, name: str = "mine.yaml") -> Prepare:
    def prepare(folder: Path) -> None:
        (folder / "own" / "experiment").mkdir(parents=True)
        (folder / "own" / "experiment" / name).write_text(text)

    return prepare


CIFAR10 = ("dataset=cifar10", "dataset.data_dir=data", "dataset.augment=true")
MNIST = ("dataset=mnist", "dataset.data_dir=data")
TINY = ("+experiment=resnet50_tiny",)
OWN = ("--config-dir", "own", "+experiment=mine")
DAMAGED = "DataError: a data file is not as expected"

CONFIG = {
    "unknown key": Row(
        ("optimizer.learning_rat=0.1",),
        2,
        ("ConfigError: unknown key\n", "key      optimizer.learning_rat\n", "nearest  optimizer.learning_rate\n"),
    ),
    "wrong type": Row(
        ("dataset.batch_size=many",),
        2,
        ("ConfigError: not a whole number\n", "dataset.batch_size\n", '"many"\n', "whole number, 1 to 2147483647\n"),
    ),
    "device id": Row(
        ("device.id=4096",), 2, ("out of range\n", "device.id\n", "4096\n", "0 to 4095\n", "command line")
    ),
    "interval without a search": Row(
        ("-m", "optimizer.learning_rate=interval(0.1,1)"),
        2,
        (
            "an interval is not a list of values\n",
            "optimizer.learning_rate\n",
            "interval(0.1,1)\n",
            "hydra/sweeper=optuna",
        ),
    ),
    "sink size": Row(
        ("sink_size=0",), 2, ("out of range\n", "sink_size\n", "-1 or a whole number of 1 to 2147483647\n")
    ),
    "epochs": Row(("epochs=0",), 2, ("out of range\n", "epochs\n", "value    0\n", "whole number, 1 to 2147483647\n")),
    "learning rate": Row(("optimizer.learning_rate=nan",), 2, ("not a finite number\n", "optimizer.learning_rate\n")),
    "unknown option": Row(("dataset=mnits",), 2, ("unknown option\n", ", ".join(sorted(register.dataset)), "mnist")),
    "unknown experiment": Row(("+experiment=lenett",), 2, ("unknown option\n", "experiment\n", "nearest  lenet\n")),
    "several at once": Row(("epochs=0", "sink_size=0", "seed=-1"), 2, ("epochs\n", "sink_size\n", "seed\n")),
    "unknown network": Row(("network.name=resnet",), 2, ("not one of the choices\n", "network.name\n", "lenet5")),
    "a width of nothing": Row(
        (*TINY, "network.width=0"),
        2,
        ("ConfigError: out of range\n", "network.width\n", "value    0\n", "whole number, 1 to 65536\n"),
    ),
    "a stem that is none": Row(
        (*TINY, "network.stem=imagnet"),
        2,
        (
            "not one of the choices\n",
            "network.stem\n",
            '"imagnet"\n',
            "cifar, imagenet, torchvision\n",
            "nearest  imagenet",
        ),
    ),
    "weights drawn by nobody": Row(
        (*TINY, "network.weight_init=hee"),
        2,
        ("not one of the choices\n", "network.weight_init\n", '"hee"\n', "uniform, he\n", "nearest  he"),
    ),
    "unknown mode": Row(("mode=grahp",), 2, ("not one of the choices\n", "mode\n", "nearest  graph\n")),
    "not an override": Row(("=3",), 2, ("ConfigError: ", "=3")),
    "unknown command": Row(("trian",), 2, ("unknown command\n", "trian\n")),
    "unknown flag": Row(("--gpu",), 2, ("wrong usage\n", "--gpu\n")),
    "missing config folder": Row(("--config-dir", "nowhere"), 2, ("the config folder does not exist\n", "nowhere\n")),
    "key in a file": Row(
        OWN,
        2,
        ("unknown key\n", "optimizer.lr\n", "from     own/experiment/mine.yaml:3\n"),
        configs("# @package _global_\noptimizer:\n  lr: 1\n"),
    ),
    "a file that is no YAML": Row(OWN, 2, ("not YAML\n", "own/experiment/mine.yaml:2"), configs("a: [1\nb: 2\n")),
    "a file that is no JSON": Row(OWN, 2, ("not JSON\n", "own/experiment/mine.json"), configs("{", "mine.json")),
    "a file of bytes": Row(OWN, 2, ("ConfigError: ", "own/experiment/mine.yaml"), configs("\x00\x01")),
    "code in a file": Row(
        OWN,
        2,
        ("a config may not name code to run\n", "dataset._target_\n"),
        configs("# @package _global_\ndataset:\n  _target_: os.system\n"),
    ),
    "a secret of the environment": Row(
        ("dataset.data_dir=${oc.env:SECRET}",),
        2,
        ("may not read this environment variable\n", "dataset.data_dir\n"),
        env=(("SECRET", "hunter2"),),
    ),
    "augmented digits": Row(
        ("dataset.augment=true",),
        2,
        ("images of this dataset cannot be augmented\n", "dataset.augment\n", ", ".join(AUGMENTABLE)),
    ),
    "an expectation never evaluated": Row(
        ("expect.accuracy.min=0.9", "eval.every=never"), 2, ("an expectation that is never evaluated\n",)
    ),
}

RUNNING = {
    "no GPU": Row(
        ("device=gpu", "mode=graph"),
        3,
        (
            *("DeviceError: the device cannot be used\n", "device     GPU 0\n", "CUDAExecutionProvider\n", "reason "),
            *("installed  onnxruntime", "repair ", "onnxruntime-gpu"),
        ),
    ),
    "no NPU": Row(
        ("device=ascend",),
        3,
        (
            *(
                "DeviceError: the device cannot be used\n",
                "device     Ascend 0\n",
                "CANNExecutionProvider\n",
                "reason ",
            ),
            *("onnxruntime-cann", "also       PyNative mode computes in numpy, on the CPU\n"),
        ),
    ),
    "missing data": Row(MNIST, 7, ("DataError: a data file is missing\n", "data\n", "dataset.download=true")),
    "half of the data": Row(
        MNIST,
        7,
        ("DataError: a data file is missing\n", "t10k-labels-idx1-ubyte[.gz]"),
        without(mnist(), "t10k-labels-idx1-ubyte"),
    ),
    "cut file": Row(
        MNIST,
        7,
        (DAMAGED, "train-images-idx3-ubyte\n", "31360 bytes after the header", "31359 bytes\n"),
        mnist(lambda content: content[:-1]),
    ),
    "cut header": Row(MNIST, 7, (DAMAGED, "a header of 16 bytes\n", "7 bytes\n"), mnist(lambda content: content[:7])),
    "empty file": Row(
        MNIST, 7, (DAMAGED, "t10k-labels-idx1-ubyte\n"), mnist(lambda content: b"", "t10k-labels-idx1-ubyte")
    ),
    "longer file": Row(MNIST, 7, (DAMAGED, "additional data at the end\n"), mnist(lambda content: content + b"x")),
    "wrong magic": Row(
        MNIST, 7, (DAMAGED, "the magic bytes 00 00 08 03\n", "89 50 4e 47\n"), mnist(lambda c: b"\x89PNG" + c[4:])
    ),
    "flipped bit in the header": Row(
        MNIST, 7, (DAMAGED, "bytes after the header"), mnist(lambda c: c[:7] + bytes([c[7] ^ 64]) + c[8:])
    ),
    "flipped bit in a label": Row(
        MNIST,
        7,
        (DAMAGED, "labels from 0 to 9\n", "131 as label number 3\n"),
        mnist(lambda c: c[:11] + bytes([c[11] ^ 128]) + c[12:], "train-labels-idx1-ubyte"),
    ),
    "CIFAR-10: missing folder": Row(
        CIFAR10,
        7,
        (
            "DataError: a data file is missing\n",
            "folder    data\n",
            "below     /",
            "data_batch_1.bin[.gz]",
            "repair    unpack ",
        ),
    ),
    "CIFAR-10: no test data": Row(
        CIFAR10,
        7,
        ("a data file is missing\n", "expected  test_batch.bin[.gz]\n", "found     data_batch_1.bin\n"),
        without(cifar10(), "test_batch.bin"),
    ),
    "CIFAR-10: cut test data": Row(
        CIFAR10,
        7,
        (
            DAMAGED,
            "test_batch.bin\n",
            "122919 bytes, the last 3072 in an incomplete record\n",
            "repair    unpack the file",
        ),
        cifar10(lambda content: content[:-1], "test_batch.bin"),
    ),
    "CIFAR-10: empty file": Row(
        CIFAR10,
        7,
        (DAMAGED, "data_batch_1.bin\n", "found     0 bytes\n", "repair    unpack the file"),
        cifar10(lambda content: b""),
    ),
    "CIFAR-10: a label of 10": Row(
        CIFAR10,
        7,
        (
            DAMAGED,
            "data_batch_1.bin\n",
            "labels from 0 to 9\n",
            "10 as the label of record 2, at byte 6146\n",
            "unpack",
        ),
        cifar10(lambda content: flipped(content, 2 * 3073, 2 ^ 10)),
    ),
    "CIFAR-10: no gzip": Row(
        CIFAR10,
        7,
        (
            DAMAGED,
            "data_batch_1.bin.gz\n",
            "a complete gzip file\n",
            "a damaged one (",
            "incorrect header",
            "unpack the file",
        ),
        cifar10(gzip.decompress, "data_batch_1.bin.gz"),
    ),
    "CIFAR-10: cut gzip": Row(
        CIFAR10,
        7,
        (DAMAGED, "data_batch_1.bin.gz\n", "a complete gzip file\n", "a truncated one\n"),
        cifar10(lambda content: content[:-9], "data_batch_1.bin.gz"),
    ),
    "CIFAR-10: a flipped bit in the checksum": Row(
        CIFAR10,
        7,
        (DAMAGED, "test_batch.bin.gz\n", "a damaged one (", "incorrect data check", "unpack the file"),
        cifar10(lambda content: flipped(content, len(content) - 5, 1), "test_batch.bin.gz"),
    ),
    "shapes in PyNative mode": Row(
        ("dataset.image_size=28",),
        2,
        (
            *("ShapeError: MatMul: inner axes differ\n", "Float32[32, 256] has 256\n", "Float32[120, 400] has 400\n"),
            *("scope       Default/network-WithLossCell/_backbone-LeNet5/fc1-Dense/MatMul-op", f"line        {LENET}:"),
            "x = self.relu(self.fc1(x))\n",
        ),
    ),
    "shapes in graph mode": Row(
        ("dataset.image_size=28", "mode=graph"),
        2,
        (
            *("ShapeError: MatMul: inner axes differ\n", "Float32[32, 256] has 256\n", "Float32[120, 400] has 400\n"),
            *("_backbone-LeNet5/fc1-Dense/MatMul-op", f"line        {LENET}:", "x = self.relu(self.fc1(x))\n"),
        ),
    ),
    "images that are too small": Row(
        ("dataset.image_size=3",), 2, ("ShapeError: Conv2D: ", "conv1-Conv2d/Conv2D-op", f"{LENET}:", "self.conv1(x)")
    ),
    "images too small for ResNet": Row(
        (*TINY, "network.stem=cifar", "dataset.image_size=16", "mode=pynative"),
        2,
        (
            *(
                "ShapeError: AvgPool: the window is larger than the image\n",
                "image       (2, 2)\n",
                "window      (4, 4)\n",
            ),
            *("_backbone-ResNet/avgpool2d-AvgPool2d/AvgPool-op", f"line        {RESNET}:", "self.avgpool2d(out)\n"),
        ),
    ),
    "images too large for ResNet": Row(
        (*TINY, "network.stem=cifar", "dataset.image_size=64", "dataset.batch_size=8", "network.width=4"),
        2,
        (
            *(
                "ShapeError: Reshape: the elements do not fill the shape\n",
                "elements    4096\n",
                "shape       (8, 128)\n",
            ),
            *("_backbone-ResNet/Reshape-op", f"line        {RESNET}:", "out = self.reshape(out, (out.shape[0], "),
        ),
    ),
    "channels": Row(
        ("network.num_channels=3",), 2, ("ShapeError: Conv2D: ", "conv1-Conv2d/Conv2D-op", f"{LENET}:", "self.conv1(x)")
    ),
    "a batch that is too large": Row(
        ("dataset.batch_size=2000",), 2, ("the dataset is smaller than one batch\n", "2000\n", "1 to 1437")
    ),
    "NaN in PyNative mode": Row(
        ("optimizer.learning_rate=1e20", "epochs=2", "dataset_sink_mode=false"),
        1,
        ("TrainingError: the loss is not a finite number\n", "epoch        1\n", "step         ", "learning_rate"),
    ),
    "NaN in graph mode": Row(
        ("optimizer.learning_rate=1e20", "epochs=2", "mode=graph"),
        1,
        ("TrainingError: the loss is not a finite number\n", "epoch        1\n", "step         ", "learning_rate"),
    ),
}

PLACES = {
    "a folder below a file": Row(
        ("hydra.run.dir=file/run",), 5, ("StorageError: ", "path    file\n", "File exists"), a_file
    ),
    "a file in the place": Row(("hydra.run.dir=file",), 5, ("StorageError: ", "path  file\n"), a_file),
    "a folder in use": Row(
        ("hydra.run.dir=used",), 4, ("BusyError: the run directory is not empty\n", "precious"), a_used_folder
    ),
    "outputs is a file": Row(("--run",), 5, ("StorageError: ", "outputs"), lambda folder: (folder / "outputs").touch()),
}

STAYING = {  # what was there before, and stays
    "a folder in use": ("used/precious", "x"),
    "a folder below a file": ("file", "x"),
    "a file in the place": ("file", "x"),
}
ROWS = {**CONFIG, **RUNNING, **PLACES}


def call(folder: Path, words: tuple[str, ...], env: tuple[tuple[str, str], ...] = ()) -> Answer:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", **dict(env)}
    command = [sys.executable, "-m", "runner", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    return Answer(done.returncode, done.stdout, done.stderr, folder)


def in_order(pieces: tuple[str, ...], text: str) -> str | None:
    """The first piece that does not stand behind the ones before it."""
    for piece in pieces:
        before, found, text = text.partition(piece)
        if not found:
            return f"{piece!r} is not in {before!r}"
    return None


@pytest.mark.parametrize("name", ROWS)
def test_bad_input(tmp_path, name):
    """One process, one block on stderr, and a place without traces of it."""
    if ("GPU" in name and "CUDAExecutionProvider" in PROVIDERS) or (
        "NPU" in name and "CANNExecutionProvider" in PROVIDERS
    ):
        pytest.skip("this onnxruntime has the provider")
    row = ROWS[name]
    row.prepare(tmp_path)
    answer = call(tmp_path, row.words, row.env)
    assert answer.code == row.code, answer.err
    check_block(answer, row.pieces, count=3 if name == "several at once" else 1)
    if name in CONFIG:
        assert {path.name for path in tmp_path.iterdir()} <= {"own", "data"}
        assert answer.out == ""
    if name in RUNNING:
        check_run(answer)
    if name in STAYING:
        path, content = STAYING[name]
        assert (tmp_path / path).read_text() == content
        assert os.listdir((tmp_path / path).parent) == [(tmp_path / path).name]


def check_block(answer: Answer, pieces: tuple[str, ...], count: int) -> None:
    assert in_order(pieces, answer.err) is None
    for stream in (answer.out, answer.err):
        assert not TRACEBACK.search(stream), stream
    heads = [line for line in answer.err.splitlines() if line and not line.startswith(" ")]
    assert all(re.match(r"[A-Z]\w+Error: ", line) for line in heads), heads
    assert len(heads) == count
    assert "hunter2" not in answer.out + answer.err


def check_run(answer: Answer) -> None:
    """A run that fails says so in its folder."""
    (status,) = answer.folder.glob("outputs/*/*/status.json")
    found = json.loads(status.read_text())
    assert (found["status"], found["exit_code"]) == ("failed", answer.code)
    assert found["error"] in answer.err
    written = {str(path.relative_to(status.parent)) for path in status.parent.rglob("*") if path.is_file()}
    assert not [path for path in written if path.endswith(".tmp")]
    assert not written & {"summary.json", "model/network.onnx"}
    for line in (status.parent / "metrics.jsonl").read_text().splitlines() if "metrics.jsonl" in written else ():
        assert np.isfinite(json.loads(line)["loss"])
    assert "run directory" not in answer.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    answer = call(tmp_path, ("max_steps=1",))
    tmp_path.chmod(0o700)
    assert answer.code == 5
    assert in_order(("StorageError: ", "outputs", "Permission denied"), answer.err) is None


def test_runs_that_start_together_have_their_own_folders(tmp_path):
    words = ("dataset=synthetic", "dataset.num_samples=64", "max_steps=1", "dataset_sink_mode=false")
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: call(tmp_path, words), range(4)))
    assert [(answer.code, answer.err) for answer in made] == [(0, "")] * 4
    shown = {re.search(r"^run directory: (.+)$", answer.out, re.MULTILINE)[1] for answer in made}
    assert len(shown) == 4
    for folder in shown:
        assert json.loads((tmp_path / folder / "status.json").read_text())["status"] == "ok"
        assert json.loads((tmp_path / folder / "summary.json").read_text())["run_dir"] == folder
    assert len({(tmp_path / folder / "metrics.jsonl").read_bytes() for folder in shown}) == 1


def test_debug_shows_where_a_surprise_came_from(tmp_path):
    """An exception that nobody foresaw: a traceback is of use then, and shown when it is asked for."""
    code = (
        "import sys; from runner import cli; from runner.experiment import run as experiment\n"
        "def build(*given): raise KeyError('surprise')\n"
        "experiment.build = build; sys.exit(cli.main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for word, shown in (("--run", False), ("runner.debug=true", True)):
        command = [sys.executable, "-c", code, word]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 1
        assert ("Traceback" in done.stderr) == shown
        assert "InternalError: KeyError: 'surprise'\n" in done.stderr
