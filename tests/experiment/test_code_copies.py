"""The copies of a user's code in the folder of a run."""

import hashlib

import pytest

from runner.experiment import manifest


@pytest.fixture
def files(tmp_path):
    """Two files of a project, by their names in it."""
    (tmp_path / "shop/deep").mkdir(parents=True)
    names = "shop/network.py", "shop/deep/metric.py"
    for name in names:
        (tmp_path / name).write_text(f"# {name}\n")
    return {name: tmp_path / name for name in names}


def copies(folder):
    return {
        path.relative_to(folder / "code").as_posix(): path for path in (folder / "code").rglob("*") if path.is_file()
    }


def test_copies_have_the_bytes_of_the_files(tmp_path, files):
    manifest.write_copies(tmp_path / "run", files)
    found = copies(tmp_path / "run")
    assert {name: path.read_bytes() for name, path in found.items()} == {n: p.read_bytes() for n, p in files.items()}
    assert manifest.hashes(found) == {n: hashlib.sha256(p.read_bytes()).hexdigest() for n, p in files.items()}


def test_copies_are_completed_after_a_kill(tmp_path, files):
    """Nothing remains of a file that a killed process was writing."""
    manifest.write_copies(tmp_path / "run", files)
    found = copies(tmp_path / "run")
    found["shop/network.py"].rename(tmp_path / "run/code/shop/.network.py.0123456789ab.tmp")
    found["shop/deep/metric.py"].write_text("older")
    manifest.write_copies(tmp_path / "run", files)
    again = copies(tmp_path / "run")
    assert {name: path.read_bytes() for name, path in again.items()} == {n: p.read_bytes() for n, p in files.items()}
