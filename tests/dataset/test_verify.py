"""`dataset.verify`: other images with the names and the shape of MNIST are read, with a warning or without."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import runner
from runner.config.compose import CommandLine, compose
from runner.config.groups.entries import DATASETS
from runner.dataset import MnistDataset, open_dataset
from runner.dataset.readers import mnist_cifar
from runner.errors import DataError
from runner.experiment.resume import resume

SMALL = ("dataset.batch_size=4", "mode=pynative", "epochs=2", "callbacks=quiet", "device.threads=1")


@pytest.fixture(params=["plain", "gzip"])
def other_images(request, write_mnist, idx_bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files have MNIST's names and published shapes, with other images in them."""
    for prefix, count in (("train", 12), ("t10k", 8)):
        folder: Path = write_mnist(prefix, count, side=8, zipped=request.param == "gzip")
        for name, shape in ((f"{prefix}-images-idx3-ubyte", (count, 8, 8)), (f"{prefix}-labels-idx1-ubyte", (count,))):
            published = hashlib.sha256(idx_bytes(np.zeros(shape))).hexdigest()
            monkeypatch.setitem(mnist_cifar.PUBLISHED, name, mnist_cifar.PublishedFile(shape, published))
    return folder


@pytest.mark.parametrize(("verify", "noted"), [({}, 4), ({"verify": True}, 4), ({"verify": False}, 0)])
def test_other_images_are_read_and_named(other_images: Path, caplog, verify: dict[str, bool], noted: int) -> None:
    assert DATASETS["mnist"]().verify is True
    settings = {"data_dir": str(other_images), "batch_size": 4, "image_size": 8, "shuffle": False, **verify}
    for train, split, count in ((True, "train", 12), (False, "test", 8)):
        caplog.clear()
        data = open_dataset("mnist", **settings, train=train)
        assert np.concatenate([label for _, label in data]).tolist() == [k % 10 for k in range(count)]
        lines = [line for line in caplog.messages if "is not MNIST's: other data, such as Fashion-MNIST" in line]
        assert len(lines) == len(caplog.messages) == noted / 2
        assert data.fingerprint() == MnistDataset(other_images, split, verify=False).fingerprint()


def test_it_leaves_all_other_checks(other_images: Path) -> None:
    for file in other_images.glob("train-images*"):
        file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(DataError):
        open_dataset("mnist", data_dir=str(other_images), batch_size=4, verify=False, train=True)


@pytest.mark.parametrize("verify", [True, False])
def test_files_of_other_formats_have_no_published_sums(write_cifar, verify: bool) -> None:
    folder = write_cifar("data_batch_1.bin", 4)
    data = open_dataset("cifar10", data_dir=str(folder), batch_size=4, verify=verify, train=True)
    assert data.get_dataset_size() == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("mine.yaml", "# @package _global_\ndataset:\n  verify: {}\n"),
        ("mine.json", '{{"@package": "_global_", "dataset": {{"verify": {}}}}}'),
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_a_file_configures_it(file: str, text: str, verify: bool, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / file).write_text(text.format(str(verify).lower()))
    assert compose(CommandLine(("+experiment=mine",), config_dir=tmp_path)).config.dataset.verify is verify


def test_a_run_trains_on_other_images(other_images: Path, tmp_path: Path, caplog) -> None:
    lines = [*SMALL, "dataset=mnist", f"dataset.data_dir={other_images}", f"hydra.run.dir={tmp_path / 'run'}"]
    summary = runner.run(lines)
    assert (summary["status"], summary["steps"]) == ("ok", 6)
    assert sum("is not MNIST's" in line for line in caplog.messages) == 4


@pytest.mark.parametrize("recorded", [False, None])  # None: as a version without the key wrote it
def test_a_run_goes_on_whatever_it_was(write_mnist, tmp_path: Path, recorded: bool | None) -> None:
    """What the run computes depends on the data, not on whether they were verified."""
    write_mnist(side=8)
    data, folder = write_mnist("t10k", 8, side=8), tmp_path / "run"
    lines = [*SMALL, "dataset=mnist", f"dataset.data_dir={data}", f"hydra.run.dir={folder}"]
    runner.run([*lines, *([] if recorded is None else [f"dataset.verify={str(recorded).lower()}"])])
    config = json.loads((folder / "config.json").read_text())
    if recorded is None:
        del config["dataset"]["verify"]
        (folder / "config.json").write_text(json.dumps(config))
    manifests = [*(folder / "checkpoints").rglob("*.json")]
    assert manifests
    assert not any("dataset.verify" in file.read_text() for file in manifests)
    changed = [] if recorded is None else ["dataset.verify=true"]
    summary = resume(folder, ["epochs=3", *changed])
    assert (summary["status"], summary["steps"]) == ("ok", 9)
