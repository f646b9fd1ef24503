"""`ds.config`."""

import json

import pytest
from tables import table

import runner
import runner.dataset as ds
from runner.dataset import prefetch
from runner.errors import ConfigError, DataError
from runner.mindspore.dataset import config


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    monkeypatch.setattr(config, "_settings", dict(config._settings))
    monkeypatch.setattr(config, "_flags", dict(config._flags))
    monkeypatch.setattr(prefetch, "_default", [])


@table(
    ("name", "before", "value"),
    [
        ("num_parallel_workers", 8, 3),
        ("prefetch_size", 16, 64),
        ("monitor_sampling_interval", 10, 100),
        ("callback_timeout", 60, 5),
        ("auto_num_workers", False, True),
        ("numa_enable", False, True),
    ],
)
def test_what_is_set_is_returned(name, before, value):
    assert getattr(ds.config, f"get_{name}")() == before
    getattr(ds.config, f"set_{name}")(value)
    assert getattr(ds.config, f"get_{name}")() == value


def test_the_seed_of_pipelines_alone():
    data = ds.NumpySlicesDataset(list(range(20))).shuffle(20)
    first = data.order(0).tolist()
    ds.config.set_seed(7)
    assert (ds.config.get_seed(), runner.get_seed()) == (7, 1)
    seventh = data.order(0).tolist()
    assert seventh != first
    runner.set_seed(1)
    assert data.order(0).tolist() == first
    runner.set_seed(7)
    assert data.order(0).tolist() == seventh


def test_the_default_number_of_threads():
    data = ds.NumpySlicesDataset(list(range(20))).batch(2)
    assert data.threads == 0
    ds.config.set_num_parallel_workers(3)
    assert data.threads == 3
    assert ds.NumpySlicesDataset([1, 2], num_parallel_workers=2).threads == 2


def test_settings_from_a_file(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"seed": 5, "prefetchSize": 3}))
    ds.config.load(str(path))
    assert (ds.config.get_seed(), ds.config.get_prefetch_size()) == (5, 3)
    for content, error in (
        ("{", DataError),
        ("[]", DataError),
        ('{"sed": 1}', ConfigError),
        ('{"seed": -1}', ConfigError),
    ):
        path.write_text(content)
        with pytest.raises(error):
            ds.config.load(str(path))
