"""Manifest and CelebA: images that are listed in a file with their annotations."""

import json

import numpy as np
import pytest
from PIL import Image

import runner.dataset as ds
from runner.errors import DataError


def write_image(path, value):
    Image.fromarray(np.full((2, 3, 3), value, np.uint8)).save(path)
    return str(path)


@pytest.fixture
def manifest(tmp_path):
    rows = [("dog", 1), ("cat", 2), (("cat", "flower"), 3)]
    lines = []
    for names, value in rows:
        names = (names,) if isinstance(names, str) else names
        source = write_image(tmp_path / f"{value}.png", value)
        lines.append({"source": source, "usage": "TRAIN", "annotation": [{"name": name} for name in names]})
    lines.append({"source": lines[0]["source"], "usage": "EVAL", "annotation": [{"name": "dog"}]})
    path = tmp_path / "images.manifest"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def items(data, name):
    return [item[name].tolist() for item in data.create_dict_iterator(num_epochs=1, output_numpy=True)]


def test_a_manifest(manifest):
    data = ds.ManifestDataset(manifest, decode=True, shuffle=False)
    assert items(data, "label") == [0 + 1, 0, [0, 2]]
    assert [image[0][0] for image in items(data, "image")] == [[1] * 3, [2] * 3, [3] * 3]
    assert data.shuffle(3).get_class_indexing() == {"cat": 0, "dog": 1, "flower": 2}
    assert data.num_classes() == 3
    assert items(ds.ManifestDataset(manifest, "eval"), "label") == [0]
    chosen = ds.ManifestDataset(manifest, class_indexing={"dog": 11})
    assert items(chosen, "label") == [11]
    assert chosen.batch(1).column_types()[1].dtype.name == "Int32"
    assert len(items(ds.ManifestDataset(manifest, num_samples=2), "label")) == 2


@pytest.mark.parametrize("line", ["{", "[]", "[" * 5000, '{"usage": "TRAIN"}', '{"source": 3, "usage": "TRAIN"}'])
def test_a_line_that_is_none(manifest, line):
    manifest.write_text(f"{manifest.read_text()}\n{line}\n")
    with pytest.raises(DataError, match="not a line of a manifest") as caught:
        ds.ManifestDataset(manifest)
    assert caught.value.rows["line"] == "5"


@pytest.fixture
def celeba(tmp_path):
    for number in (1, 2, 3):
        write_image(tmp_path / f"{number}.png", number)
    (tmp_path / "list_attr_celeba.txt").write_text("3\nBald Young\n1.png -1  1\n2.png  1 -1\n3.png -1 -1\n")
    (tmp_path / "list_eval_partition.txt").write_text("1.png 0\n2.png 1\n3.png 0\n")
    return tmp_path


def test_celeba(celeba):
    data = ds.CelebADataset(celeba, decode=True, shuffle=False)
    assert items(data, "attr") == [[0, 1], [1, 0], [0, 0]]
    assert data.output_types() == [np.uint8, np.uint32]
    assert items(ds.CelebADataset(celeba, usage="train", shuffle=False), "attr") == [[0, 1], [0, 0]]
    with pytest.raises(DataError, match="no images are left"):
        ds.CelebADataset(celeba, usage="test")
    (celeba / "list_attr_celeba.txt").write_text("1\nBald Young\n1.png 1 7\n")
    with pytest.raises(DataError, match="not a line of attributes"):
        ds.CelebADataset(celeba)
