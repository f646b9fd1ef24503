"""Images in class folders: values as Pillow has them, splits, orders, resumes, and folders that are wrong."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tables import table

import runner.dataset as ds
from runner.dataset.readers import image_file
from runner.dataset.readers.image_file import ImageFiles
from runner.dataset.samples import RowSource
from runner.dataset.stages import stages
from runner.errors import ConfigError, DataError, RunnerError

CLASSES = {"cat": 6, "dog": 4, "owl": 5}


def values(data: ds.Dataset) -> tuple[np.ndarray, ...]:
    """All samples in order, each column as one array."""
    return tuple(np.stack(column) for column in zip(*data.read(0), strict=True))


def opened(folder: Path, split: str = "train", **keys: object) -> ds.Dataset:
    keys = {"image_size": 12, "test_fraction": 0.25, **keys}
    return ds.image_folder(split, data_dir=folder, **keys)


def test_values_are_pillows(draw) -> None:
    data = opened(draw(CLASSES), normalize=False)
    images, labels = values(data)
    assert [str(kind) for kind in data.column_types()] == ["Float32[3, 12, 12]", "Int32[]"]
    assert data.get_col_names() == ["image", "label"]
    assert (data.class_names, data.num_classes) == (("cat", "dog", "owl"), 3)
    for image, label, name in zip(images, labels, data.row_names, strict=True):
        expected = np.asarray(Image.open(name), np.float64).transpose(2, 0, 1) / 255
        np.testing.assert_allclose(image, expected, atol=1e-7)
        assert Path(name).parent.name == data.class_names[label]


def test_normalized_training_images_have_mean_0_and_deviation_1(draw) -> None:
    images, _ = values(opened(draw(CLASSES)))
    np.testing.assert_allclose(images.mean(axis=(0, 2, 3), dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(images.std(axis=(0, 2, 3), dtype=np.float64), 1, atol=1e-6)


def test_the_test_split_is_normalized_by_the_training_split(draw) -> None:
    folder = draw(CLASSES)
    train, test = opened(folder), opened(folder, "test")
    pixels = np.stack([np.asarray(Image.open(name), np.float64) for name in train.row_names]) / 255
    own = np.stack([np.asarray(Image.open(name), np.float64) for name in test.row_names]) / 255
    expected = (own - pixels.mean(axis=(0, 1, 2))) / pixels.std(axis=(0, 1, 2))
    np.testing.assert_allclose(values(test)[0], expected.transpose(0, 3, 1, 2), atol=1e-5)


def test_the_split_is_stratified_and_complete(draw) -> None:
    folder = draw(CLASSES)
    train, test = opened(folder).row_names, opened(folder, "test").row_names
    assert sorted([*train, *test]) == sorted(str(path) for path in folder.rglob("*.png"))
    assert [Path(name).parent.name for name in test] == ["cat"] * 2 + ["dog"] + ["owl"]
    assert opened(folder, "test", seed=1).row_names != test


def test_the_order_on_the_disk_has_no_effect(draw, monkeypatch) -> None:
    one, other = draw(CLASSES, "one"), draw(CLASSES, "other", backwards=True)
    first = [opened(one, split) for split in ("train", "test")]
    listing = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: sorted(listing(path), key=lambda entry: entry.name, reverse=True))
    for mine, theirs in zip(first, [opened(other, split) for split in ("train", "test")], strict=True):
        assert [Path(name).parts[-2:] for name in mine.row_names] == [
            Path(name).parts[-2:] for name in theirs.row_names
        ]
        assert mine.fingerprint() == theirs.fingerprint()
        for a, b in zip(values(mine), values(theirs), strict=True):
            assert a.tobytes() == b.tobytes()


def test_folders_of_splits(draw) -> None:
    folder = draw({"cat": 3, "dog": 2}, "data/train").parent
    draw({"dog": 2}, "data/test")
    train, test = (opened(folder, split, test_fraction=None) for split in ("train", "test"))
    assert (len(train), len(test)) == (5, 2)
    assert test.class_names == ("cat", "dog")
    assert values(test)[1].tolist() == [1, 1]


def test_a_class_may_be_called_train(draw) -> None:
    data = opened(draw({"bus": 4, "train": 4}))
    assert data.class_names == ("bus", "train")


def test_workers_change_no_byte_and_a_pass_can_begin_anywhere(draw, monkeypatch) -> None:
    folder = draw(CLASSES, height=20, width=15)
    for cached in (image_file.CACHED_BYTES, 0):
        monkeypatch.setattr(image_file, "CACHED_BYTES", cached)
        one, four = (opened(folder, augment=True).shuffle(20).batch(2, True, n) for n in (1, 4))
        assert (one.threads, four.threads) == (1, 4)
        for epoch in range(3):
            whole = [[column.tobytes() for column in batch] for batch in one.read(epoch)]
            assert [[column.tobytes() for column in batch] for batch in four.read(epoch)] == whole
            fresh = opened(folder, augment=True).shuffle(20).batch(2, True)
            assert [[column.tobytes() for column in batch] for batch in fresh.read(epoch, 3)] == whole[3:]


def test_images_are_decoded_when_a_batch_needs_them_and_once(draw, monkeypatch) -> None:
    calls: list[Path] = []
    decode = image_file.decode
    monkeypatch.setattr(image_file, "decode", lambda path, *more: calls.append(path) or decode(path, *more))
    data = opened(draw(CLASSES), normalize=False)
    assert calls == []
    rows = np.array([2, 0, 2])
    data.fetch(rows)
    data.fetch(rows)
    assert sorted(calls) == sorted(Path(data.row_names[row]) for row in (0, 2))
    (image, label) = data.compact()
    assert isinstance(image, RowSource)
    assert isinstance(label, np.ndarray)


def test_what_does_not_fit_is_decoded_again(draw, monkeypatch) -> None:
    monkeypatch.setattr(image_file, "CACHED_BYTES", 12 * 12 * 3 * 4)
    files = sorted(draw({"cat": 5}).rglob("*.png"))
    source = ImageFiles(files, 12, 3)
    assert source._cache is None
    assert source.take(np.array([4, 1])).tobytes() == b"".join(Image.open(files[k]).tobytes() for k in (4, 1))


def test_the_fingerprint_is_that_of_the_bytes(draw) -> None:
    folder = draw(CLASSES)
    before = opened(folder).fingerprint()
    assert opened(folder, augment=True, normalize=False).fingerprint() == before
    path = Path(opened(folder).row_names[0])
    path.write_bytes(path.read_bytes() + b"\0")  # the same image
    assert opened(folder).fingerprint() != before


def test_num_samples_are_drawn_from_all_classes(draw) -> None:
    folder = draw({"cat": 40, "dog": 40})
    data = opened(folder, num_samples=20)
    assert len(data) == 20
    assert set(values(data)[1].tolist()) == {0, 1}
    assert opened(folder, num_samples=20).row_names == data.row_names
    assert len(opened(folder, num_samples=1000)) == 60


def test_augmentation_is_for_training_only(draw) -> None:
    folder = draw(CLASSES)
    for split, equal in (("train", False), ("test", True)):
        plain, augmented = (values(opened(folder, split, augment=flag))[0] for flag in (False, True))
        assert (plain.tobytes() == augmented.tobytes()) is equal


def test_channels_are_those_of_the_first_image(draw) -> None:
    assert opened(draw(CLASSES, "grey", channels=1)).column_types()[0].shape == (1, 12, 12)
    data = opened(draw(CLASSES, "colour"), channels=1, normalize=False)
    expected = np.asarray(Image.open(data.row_names[0]).convert("L"), np.float64) / 255
    np.testing.assert_allclose(values(data)[0][0, 0], expected, atol=1e-7)


def test_derived_datasets_keep_the_description(draw) -> None:
    data = opened(draw(CLASSES))
    names, reading = data.row_names, data.preprocessing
    derived = data.shuffle(5).repeat(2).batch(2).divided(2, 1)
    assert (derived.class_names, derived.row_names, derived.preprocessing) == (data.class_names, names, reading)
    assert derived.num_classes == 3
    plain = ds.NumpySlicesDataset({"x": [1.0], "y": [0]})
    assert (plain.class_names, plain.num_classes, plain.row_names, plain.preprocessing) == (None, None, None, None)
    plain.num_classes = 4
    assert plain.batch(1).num_classes == 4


def test_new_files_are_read_as_those_of_the_split(draw) -> None:
    folder = draw(CLASSES, height=30, width=17)
    test = opened(folder, "test")
    again = ds.stored_preprocessing(test.preprocessing.as_json())
    read = again.read([Path(name) for name in test.row_names])
    assert read.get_col_names() == ["image"]
    assert (read.row_names, read.class_names) == (test.row_names, test.class_names)
    assert values(read)[0].tobytes() == values(test)[0].tobytes()
    shutil.rmtree(folder / "dog")  # the training data are not needed
    assert again.as_json() == test.preprocessing.as_json()


# Folders that are wrong


def _link_outside(folder: Path) -> None:
    (folder.parent / "secret.png").write_bytes((folder / "cat" / "000.png").read_bytes())
    (folder / "cat" / "link.png").symlink_to(folder.parent / "secret.png")


def _class_outside(folder: Path) -> None:
    shutil.move(folder / "cat", folder.parent / "cat")
    (folder / "cat").symlink_to(folder.parent / "cat")


def _not_text(folder: Path) -> None:
    os.rename(os.fsencode(folder / "cat" / "000.png"), os.fsencode(folder / "cat") + b"/\xff.png")


def _class_not_text(folder: Path) -> None:
    os.rename(os.fsencode(folder / "cat"), os.fsencode(folder) + b"/\xff")


WRONG = {
    "missing": (shutil.rmtree, "a data file is missing"),
    "no classes": (lambda folder: [shutil.rmtree(one) for one in folder.iterdir()], "a data file is missing"),
    "an empty class": (lambda folder: (folder / "ant").mkdir(), "a class folder is empty\n  folder    {folder}/ant\n"),
    "text": (lambda folder: (folder / "cat/x.txt").write_text("x"), "not an image\n  file      {folder}/cat/x.txt\n"),
    "text as PNG": (lambda f: (f / "cat/x.png").write_text("x"), "not an image\n  file      {folder}/cat/x.png\n"),
    "empty file": (lambda folder: (folder / "cat/x.png").touch(), "not an image\n  file      {folder}/cat/x.png\n"),
    "a pipe": (lambda folder: os.mkfifo(folder / "cat/x.png"), "not a regular file\n  file  {folder}/cat/x.png"),
    "a dangling link": (
        lambda folder: (folder / "cat/x.png").symlink_to(folder / "cat/none.png"),
        "a file is missing\n  file  {folder}/cat/x.png",
    ),
    "a folder inside": (
        lambda f: (f / "cat/old").mkdir(),
        "a folder inside of a class folder\n  folder  {folder}/cat/old",
    ),
    "a link outside": (
        _link_outside,
        "a symbolic link leads out of the data folder\n  file      {folder}/cat/link.png\n",
    ),
    "a class outside": (_class_outside, "a symbolic link leads out of the data folder\n  file      {folder}/cat\n"),
    "not UTF-8": (_not_text, "a name is not UTF-8 text\n  file    {folder}/cat/\\udcff.png\n"),
    "class not UTF-8": (_class_not_text, "a name is not UTF-8 text\n  file    {folder}/\\udcff\n"),
}


@table(("damage", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_folder_is_reported_with_the_file(tmp_path_factory, damage, expected) -> None:
    folder = tmp_path_factory.mktemp("wrong") / "data"
    for name, count in CLASSES.items():
        (folder / name).mkdir(parents=True)
        for k in range(count):
            Image.fromarray(np.full((4, 4, 3), k, np.uint8)).save(folder / name / f"{k:03}.png")
    damage(folder)
    with pytest.raises(DataError) as caught:
        [opened(folder, split) for split in ("train", "test")]
    assert str(caught.value).startswith(f"DataError: {expected.format(folder=folder)}")
    assert "repair" in str(caught.value) or "missing" in caught.value.what or "regular" in caught.value.what


def test_hidden_files_and_those_of_file_managers_are_no_images(draw) -> None:
    folder = draw(CLASSES)
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        (folder / "cat" / name).touch()
    (folder / ".git").mkdir()
    (folder / "README.md").touch()
    assert len(opened(folder)) + len(opened(folder, "test")) == 15


def test_a_link_may_stay_inside(draw) -> None:
    folder = draw(CLASSES)
    (folder / "cat" / "link.png").symlink_to(folder / "cat" / "000.png")
    assert len(opened(folder)) + len(opened(folder, "test")) == 16


def test_an_image_that_is_damaged_later_is_named(draw) -> None:
    folder = draw({"cat": 10}, height=64, width=64)
    draw({"dog": 10}, height=64, width=64)
    for workers in (1, 4):
        data = opened(folder, normalize=False)
        path = Path(data.row_names[7])
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError) as caught:
            list(data.batch(2, num_parallel_workers=workers).read(0))
        assert str(caught.value).startswith(f"DataError: a damaged image\n  file    {path}\n")
        path.write_bytes(whole)


def test_the_stages_of_a_profile(draw) -> None:
    found = stages(opened(draw(CLASSES)).shuffle(5).batch(4, num_parallel_workers=2))
    assert [stage.kind for stage in found] == ["Batch", "Map", "Map", "Shuffle", "Generator"]
    assert found[0].workers == 2


def test_an_unknown_class_of_the_test_split(draw) -> None:
    folder = draw({"cat": 2, "dog": 2}, "data/train").parent
    draw({"cats": 1}, "data/test")
    opened(folder, test_fraction=None)
    with pytest.raises(DataError) as caught:
        opened(folder, "test", test_fraction=None)
    assert str(caught.value) == (
        "DataError: the test split has a class that the training split lacks\n"
        f"  folder    {folder}/test/cats\n"
        "  expected  cat, dog\n"
        "  nearest   cat\n"
        "  repair    add images of the class to the training split, or remove the folder"
    )


def test_images_of_splits_without_classes(draw) -> None:
    folder = draw({"train": 3, "test": 2})
    with pytest.raises(DataError, match="a data file is missing"):
        opened(folder)


@table(
    ("keys", "expected"),
    [
        ({"data_dir": None}, "data_dir is missing"),
        ({"data_dir": ""}, "data_dir is missing"),
        ({"data_dir": "a\0b"}, "a path with a NUL character"),
        ({"split": "valid"}, "split is not one of the choices"),
        ({"test_fraction": None}, "the data have no test split"),
        ({"test_fraction": 0.0}, "not a part of the data"),
        ({"test_fraction": 1.0}, "not a part of the data"),
        ({"image_size": 0}, "image_size must be"),
        ({"image_size": 1 << 20}, "image_size must be"),
        ({"channels": 2}, "not a number of channels"),
        ({"seed": -1}, "seed must be"),
        ({"num_samples": 0}, "num_samples must be"),
        ({"augment": 1}, "augment must be"),
    ],
)
def test_wrong_arguments(draw, keys, expected) -> None:
    folder = draw({"cat": 2, "dog": 2})
    with pytest.raises(ConfigError, match=expected):
        opened(
            **{"folder": folder, "split": "train"} | {("folder" if k == "data_dir" else k): v for k, v in keys.items()}
        )


def test_a_fraction_of_folders_of_splits(draw) -> None:
    draw({"cat": 2}, "data/test")
    with pytest.raises(ConfigError, match="the data already have a test split"):
        opened(draw({"cat": 2}, "data/train").parent)


def test_one_image_of_each_class_cannot_be_divided(draw) -> None:
    with pytest.raises(RunnerError, match="too few images"):
        opened(draw({"cat": 1, "dog": 1}))


def test_without_pillow(draw, monkeypatch) -> None:
    folder = draw({"cat": 2, "dog": 2})
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(ConfigError) as caught:
        opened(folder)
    assert str(caught.value).endswith("repair  pip install 'runner-ml[images]'")
