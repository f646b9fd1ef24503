"""`session.auto_tune_mode` in whole runs: searched for once, kept, used again, and gone on with."""

import fcntl
import json
import shutil
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import wait_until
from training_steps import Batch, training_step

import runner
from runner import nn
from runner.compile import tuning as cache, tuning as search, tuning as trial, tuning as tuner
from runner.device import UNTUNED, Device
from runner.errors import StorageError
from runner.experiment.resume import resume
from runner.host.files import locked

UNSUNK = "dataset_sink_mode=false", "checkpoint.every_steps=2"
ALONE = Device(threads=1)
QUICK = (
    *("+experiment=lenet_seed", "mode=graph", "epochs=1", "eval.every=never", "callbacks=quiet"),
    *("dataset.batch_size=8", "device.threads=1", "session.auto_tune_mode=GA", "session.auto_tune_seconds=60"),
)


class Ticks:
    """`time` for the search, which always passes by as much when it is read: limits count what is tried."""

    seconds = 0.0

    def perf_counter(self) -> float:
        self.seconds += 0.03
        return self.seconds


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    """A cache of its own, and times in which every other form than the usual one gains."""
    monkeypatch.setattr(search, "time", Ticks())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(trial.Trial, "seconds", lambda way, count: count * 0.9 ** len(way.tuning.forms))
    every = search.TuningSearch._operators
    monkeypatch.setattr(search.TuningSearch, "_operators", lambda self: islice(every(self), 12))  # a whole search
    return tmp_path / "cache" / "runner" / "tuning"


def run(folder: Path, *overrides: str) -> dict[str, Any]:
    """Three steps, and what the manifest says of their tuning."""
    runner.run([*QUICK, "max_steps=3", f"hydra.run.dir={folder}", *overrides])
    return json.loads((folder / "manifest.json").read_text())["tuning"]


def losses(folder: Path) -> np.ndarray:
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return np.array([row["loss"] for row in rows if "loss" in row])


def step() -> tuple[nn.Cell, Batch]:
    """A dense layer that is trained."""
    network = nn.SequentialCell(nn.Dense(20, 10), nn.ReLU(), nn.Dense(10, 4))
    rng = np.random.default_rng(2)
    return training_step(network), (rng.standard_normal((8, 20), np.float32), np.arange(8, dtype=np.int32) % 4)


def kept(place: Path) -> list[Path]:
    return sorted(place.glob("*.json"))


@pytest.mark.parametrize("sunk", ["true", "false"])
def test_a_second_start_makes_the_same_steps(tmp_path, place, capsys, sunk):
    sink = f"dataset_sink_mode={sunk}"
    first, second = run(tmp_path / "a", sink), run(tmp_path / "b", sink)
    out = capsys.readouterr().out
    assert (first["source"], second["source"]) == ("measured", "cache")
    assert first["tuning"] == second["tuning"]
    assert first["tuning"]["forms"]
    assert [str(path) for path in kept(place)] == [first["file"]] == [second["file"]]
    assert out.count(first["tuning"]["forms"][0][0]) == 2
    assert f"tuning: found in {first['file']}; a step takes" in out
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == (tmp_path / "b" / "metrics.jsonl").read_bytes()
    usual = run(tmp_path / "c", sink, "session.auto_tune_mode=null")
    assert usual is None
    np.testing.assert_allclose(losses(tmp_path / "a"), losses(tmp_path / "c"), rtol=1e-4)
    text = (tmp_path / "a" / "model" / "train_step.onnx").read_bytes()
    assert text != (tmp_path / "c" / "model" / "train_step.onnx").read_bytes()  # other forms, other nodes


def test_a_run_goes_on_as_it_was_tuned(tmp_path, place, monkeypatch):
    whole = run(tmp_path / "whole", "max_steps=4", *UNSUNK)
    part = run(tmp_path / "part", "max_steps=2", *UNSUNK)
    assert part["tuning"] == whole["tuning"]
    shutil.rmtree(place)
    monkeypatch.setattr(trial.Trial, "seconds", lambda way, count: count * 1.1 ** len(way.tuning.forms))
    resume(tmp_path / "part", ["max_steps=4"])
    again = json.loads((tmp_path / "part" / "manifest.json").read_text())["tuning"]
    assert again["tuning"] == whole["tuning"]
    assert kept(place) == []
    assert (tmp_path / "part" / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()


def test_other_shapes_ways_and_versions_are_searched_for_anew(tmp_path, place, monkeypatch):
    run(tmp_path / "a")
    assert run(tmp_path / "b", "dataset.batch_size=16")["source"] == "measured"
    assert run(tmp_path / "c", "session.auto_tune_mode=RL")["source"] == "measured"
    monkeypatch.setattr(cache, "version", lambda: "0")
    assert run(tmp_path / "d")["source"] == "measured"
    monkeypatch.setattr(cache, "cpu_model", lambda: "another")
    assert run(tmp_path / "e")["source"] == "measured"
    assert len(kept(place)) == 5


def broken(values: dict[str, Any], **tuning: Any) -> str:
    return json.dumps({**values, "tuning": {**values["tuning"], **tuning}})


DAMAGES = {
    "empty": lambda values: "",
    "torn": lambda values: json.dumps(values)[:-20],
    "a list": lambda values: "[]",
    "other facts": lambda values: json.dumps({**values, "facts": {}}),
    "no tuning": lambda values: json.dumps({k: v for k, v in values.items() if k != "tuning"}),
    "another key": lambda values: broken(values, more=1),
    "placed": lambda values: broken(values, placed="sometimes"),
    "forms": lambda values: broken(values, forms=[["Conv2D"]]),
    "one form": lambda values: broken(values, forms=["ab"]),
    "no times": lambda values: json.dumps({k: v for k, v in values.items() if k != "usual_ms"}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_believed(tmp_path, place, caplog, damage):
    cell, arrays = step()
    first = tuner.find_tuning(cell.construct, arrays, ALONE, ("GA",), 60.0)
    [path] = kept(place)
    path.write_text(DAMAGES[damage](json.loads(path.read_text())))
    again = tuner.find_tuning(cell.construct, arrays, ALONE, ("GA",), 60.0)
    assert again["source"] == "measured"
    assert f"{path}: this file of an earlier search cannot be used" in caplog.text
    assert tuner.find_tuning(cell.construct, arrays, ALONE, ("GA",), 60.0)["source"] == "cache"
    assert first["file"] == again["file"]


def test_without_a_cache_it_is_searched_for_each_time(tmp_path, caplog, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cell, arrays = step()
    for _ in range(2):
        report = tuner.find_tuning(cell.construct, arrays, ALONE, ("GA",), 60.0)
        assert (report["source"], report["file"]) == ("measured", None)
    assert "cannot be cached" in caplog.text
    assert "XDG_CACHE_HOME" in caplog.text
    assert next(tuner.report_lines(report)).startswith("tuning: ")


def test_a_full_disk_costs_only_what_would_be_kept(place, caplog, monkeypatch):
    def full(path: Path, value: object) -> None:
        raise StorageError("cannot write a file", path=path, reason="No space left on device")

    monkeypatch.setattr(tuner, "write_json", full)
    cell, arrays = step()
    report = tuner.find_tuning(cell.construct, arrays, ALONE, ("GA",), 60.0)
    assert (report["source"], report["file"], kept(place)) == ("measured", None, [])
    assert caplog.text.count("cannot be cached") == 1


def test_one_process_searches_and_the_others_wait(place, monkeypatch):
    cell, arrays = step()
    found = tuner.find_tuning(cell.construct, arrays, ALONE, ("GA",), 60.0)
    [path] = kept(place)
    content = path.read_bytes()
    path.unlink()
    made: list[dict[str, Any]] = []
    waits, flock = threading.Event(), fcntl.flock

    def noted(file: object, how: int) -> None:
        waits.set()
        flock(file, how)

    with locked(path.with_suffix(".lock")):
        monkeypatch.setattr(fcntl, "flock", noted)
        waiting = threading.Thread(
            target=lambda: made.append(tuner.find_tuning(cell.construct, arrays, ALONE, ("GA",), 60.0))
        )
        waiting.start()
        wait_until(waits.is_set, alive=waiting.is_alive)
        assert made == []
        path.write_bytes(content)
    waiting.join()
    assert [report["source"] for report in made] == ["cache"]
    assert made[0]["tuning"] == found["tuning"]


def test_where_nothing_can_be_chosen_a_run_says_so(tmp_path, place, caplog):
    runner.run([*QUICK, "max_steps=1", f"hydra.run.dir={tmp_path / 'a'}", "mode=pynative"])
    assert "session.auto_tune_mode has no effect: PyNative mode has one kernel for each operator" in caplog.text
    assert kept(place) == []


def test_the_usual_step_may_be_the_fastest(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trial.Trial, "seconds", lambda way, count: float(count))
    report = run(tmp_path / "a")
    assert report["tuning"] == cache.as_json(UNTUNED)
    assert "the default step is the fastest: 1000.000 ms" in capsys.readouterr().out
    run(tmp_path / "b", "session.auto_tune_mode=null")
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == (tmp_path / "b" / "metrics.jsonl").read_bytes()


def test_a_search_that_was_cut_goes_on_at_the_next_start(place, monkeypatch):
    """It tried a few of the changes, and the default was the fastest for good."""
    network, batch = step()
    tried: list[str] = []
    try_one = cache.TuningSearch._try

    def noted(search: cache.TuningSearch, name: str, change: Any) -> None:
        tried.append(name)
        try_one(search, name, change)

    monkeypatch.setattr(cache.TuningSearch, "_try", noted)
    found = [cache.find_tuning(network.compute, batch, Device("CPU", threads=1), ("RL", "GA"), 0.0)]
    content = json.loads(kept(place)[0].read_text())
    kept(place)[0].write_text(json.dumps(content | {"tried": 2}))  # of another start, with time for two changes
    limits = 600.0, 600.0
    found += [cache.find_tuning(network.compute, batch, Device("CPU", threads=1), ("RL", "GA"), x) for x in limits]
    assert [one["source"] for one in found] == ["measured", "measured", "cache"]
    assert found[0]["tried"] == 0
    assert found[1]["tried"] == found[1]["candidates"] == len(tried) + 2
    assert "the next start goes on; the default step is the fastest so far" in next(cache.report_lines(found[0]))
    assert "goes on" not in next(cache.report_lines(found[1]))
