"""Reads damaged copies of the files in a folder (`samples`) in a process of its own, and reports what came out.

python damaged_reads.py FOLDER COUNT: damages each sample COUNT times and prints, as JSON, the number of reads that
gave an error and that gave values, what must not happen, and the peak of the memory.
"""

import gc
import gzip
import io
import json
import struct
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from damage import damaged
from dump_files import asynchronous, npy, step, sync

from runner import cli
from runner.compile import tuning
from runner.dataset.readers import digits, mnist_cifar
from runner.device import Tuning
from runner.errors import RunnerError
from runner.experiment import resume
from runner.experiment.sweep import journal, sweep
from runner.experiment.sweep.journal import SweepState
from runner.observe.graph import listing
from runner.ops.effects import PrintFile, parse_print
from runner.train.checkpoint import load_checkpoint, state

ERRORS = {2, 5, 7}  # exit codes of invalid values, of the storage and of data files
RESULTS = {0, 6}  # and of commands that have read their files
KEY = {"operators_sha256": "ab", "ways": "GA", "threads": 1, "cores": 2, "cpu": "x", "onnxruntime": "1"}


@dataclass(frozen=True)
class Sample:
    """A good file, and a function that reads it. `is_protected`: damage gives an error, or the values before it."""

    file: Path
    read: Callable[[], object]
    is_protected: bool = False


def write(folder: Path, run: Path) -> None:
    """Write the good files; `run` is the folder of a finished run, with its checkpoint and its golden file."""
    draw = np.random.default_rng(1)
    weights = {"conv.weight": draw.normal(size=(4, 3, 3)).astype(np.float32), "conv.bias": np.ones(4), "n": np.array(7)}
    from runner.train.checkpoint import parameters

    for name, crc_check in (("checked.ckpt", True), ("plain.ckpt", False)):
        parameters.write(folder / name, weights, crc_check=crc_check)
    (folder / "arrays.safetensors").write_bytes(state.encode(weights))
    state.save(folder / "state" / "CKP-1_7", weights, {"global_step": 7, "loss": 0.25}, {"config": {"seed": 1}})
    _write_data(folder, draw)
    printed = PrintFile(folder / "print.pb")
    for value in (weights["conv.weight"], weights["n"]):
        printed.append(["x is", value])
    printed.close()
    cache_file = {
        "facts": KEY,
        "tuning": tuning.as_json(Tuning(forms=(("Conv2D", "NHWC"),))),
        **dict.fromkeys(tuning.FIGURES, 1),
    }
    (folder / "tuning.json").write_text(json.dumps(cache_file))
    sync(folder / "sync", step())
    asynchronous(folder / "cann", step())
    npy(folder / "npy", step())
    sync(folder / "other", step())
    for number in ("0", "1"):
        (folder / "sweep").mkdir(exist_ok=True)
        (folder / "sweep" / number).symlink_to(run)
    call = {"overrides": ["seed=1,2"], "config_dir": None}
    config = json.loads((run / "config.json").read_bytes())
    journal.append(folder / "sweep", "sweep", version=1, call=call, config=config, config_sha256="ab", threads=1)
    journal.append(folder / "sweep", "jobs", first=0, overrides=[["seed=1"], ["seed=2"]])
    for job in (0, 1):
        journal.append(folder / "sweep", "start", job=job, folder=str(job), pid=1)
        results = {"loss": 0.5, "metrics": {"accuracy": 0.75}, "error": None}
        journal.append(folder / "sweep", "end", job=job, folder=str(job), status="ok", exit_code=0, **results)
        journal.append(folder / "sweep", "trial", job=job, params={"lr": 0.1}, state="complete", value=0.5)


def _write_data(folder: Path, draw: np.random.Generator) -> None:
    images, labels = draw.integers(0, 256, (20, 6, 5), np.uint8), draw.integers(0, 10, 20).astype(np.uint8)
    records = draw.integers(0, 10, (2, mnist_cifar.RECORD)).astype(np.uint8)
    files = {
        "train-images-idx3-ubyte": struct.pack(">4B3I", 0, 0, 8, 3, *images.shape) + images.tobytes(),
        "train-labels-idx1-ubyte": struct.pack(">4BI", 0, 0, 8, 1, 20) + labels.tobytes(),
        "test_batch.bin": records.tobytes(),
    }
    for kind, suffix, packed in (("plain", "", bytes), ("gzip", ".gz", partial(gzip.compress, mtime=0))):
        (folder / kind).mkdir()
        for name, content in files.items():
            (folder / kind / f"{name}{suffix}").write_bytes(packed(content))
    (folder / "digits.bin.gz").write_bytes(digits.FILE.read_bytes())


def samples(folder: Path, run: Path) -> dict[str, Sample]:
    """The samples in a folder that `write` has filled."""
    found = {}
    for kind in ("plain", "gzip"):
        for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
            file = next((folder / kind).glob(f"{name}*"))
            found[f"{kind} {name}"] = Sample(file, partial(_idx, folder / kind), kind == "gzip")
        file = next((folder / kind).glob("test_batch*"))
        found[f"{kind} CIFAR"] = Sample(
            file, partial(mnist_cifar.read_cifar_split, folder / kind, "test"), kind == "gzip"
        )
    path = folder / "digits.bin.gz"
    found["digits"] = Sample(path, partial(digits.read_digits.__wrapped__, path), True)
    for name in ("checked", "plain"):
        path = folder / f"{name}.ckpt"
        found[f"{name} .ckpt"] = Sample(path, partial(_weights, path), name == "checked")
    path = folder / "arrays.safetensors"
    found["safetensors"] = Sample(path, partial(_decoded, path))
    place = folder / "state" / "CKP-1_7"
    for name in ("state.safetensors", "MANIFEST.json"):
        found[name] = Sample(place / name, partial(_state, place), True)
    found["print file"] = Sample(folder / "print.pb", partial(_printed, folder / "print.pb"))
    path = folder / "tuning.json"
    found["tuning cache"] = Sample(path, partial(tuning.read, path, KEY))
    found["sweep.jsonl"] = Sample(
        folder / "sweep/sweep.jsonl",
        partial(
            _in_turn,
            [
                partial(_sweep, folder / "sweep"),
                partial(_command, "report", str(folder / "sweep")),
                partial(_command, "resume", "--force", str(folder / "sweep")),
            ],
        ),
    )
    return found | _dumps(folder) | _of_run(folder, run)


def _dumps(folder: Path) -> dict[str, Sample]:
    sync_file, cann_file, npy_file = (
        next(path for path in sorted((folder / kind).rglob("*Conv2D*")) if path.is_file())
        for kind in ("sync", "cann", "npy")
    )
    found = {}
    for name, path in (("sync dump", sync_file), ("CANN dump", cann_file), (".npy dump", npy_file)):
        kind = path.relative_to(folder).parts[0]
        compare = partial(_command, "compare", str(folder / kind), str(folder / "other"), "--dumps")
        convert = partial(_command, "convert", "-d", str(path), "-out", str(folder / "converted"))
        found[name] = Sample(path, partial(_in_turn, [compare, convert] if kind == "cann" else [compare]))
    ir = next((folder / "sync").rglob("*.ir"))
    found["graph"] = Sample(ir, partial(listing.read, ir))
    order = next((folder / "sync").rglob("*.csv"))
    compare = partial(_command, "compare", str(folder / "sync"), str(folder / "other"), "--dumps")
    found["execution order"] = Sample(order, compare)
    return found


def _of_run(folder: Path, run: Path) -> dict[str, Sample]:
    place, golden = str(run), str(run.parent / "golden.json")
    commands = [
        partial(_command, "ls", str(run.parent)),
        partial(_command, "ls", str(run.parent), "--json", "--best"),
        partial(_command, "rm", str(run), "--dry-run"),
        partial(_command, "compare", "--metrics", place, place),
        partial(_command, "report", place),
        partial(_command, "golden", "--check", golden, place),
        partial(_command, "resume", place, "epochs=2"),
    ]
    names = ("config.json", "status.json", "summary.json", "manifest.json", "metrics.jsonl", ".hydra/overrides.yaml")
    found = {name: Sample(run / name, partial(_in_turn, commands[:])) for name in names}
    return found | {"golden file": Sample(Path(golden), commands[3])}


def _in_turn(reads: list[Callable[[], object]]) -> object:
    """One of the readers, the next one at the next call."""
    reads.append(reads.pop(0))
    return reads[-1]()


def _command(*words: str) -> int:
    """The exit code of a command. Raises RuntimeError for an internal error, and for one that no file can cause."""
    stderr = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(stderr):
        code = cli.main(words)
    if code not in ERRORS | RESULTS or "Traceback" in stderr.getvalue():
        raise RuntimeError(f"runner {' '.join(words)}: exit code {code}\n{stderr.getvalue()}")
    return code


def _idx(folder: Path) -> object:
    return mnist_cifar.read_split(folder, "train", verify=False)


def _weights(path: Path) -> object:
    return {name: value.asnumpy() for name, value in load_checkpoint(path).items()}


def _decoded(path: Path) -> object:
    return state.decode(path.read_bytes(), path)


def _state(place: Path) -> object:
    found = state.load(place)
    return found.arrays, found.progress, found.identity


def _printed(path: Path) -> object:
    return [part if isinstance(part, str) else part.asnumpy() for part in parse_print(path)], _command(
        "parse-print", str(path)
    )


def _sweep(folder: Path) -> object:
    found = SweepState(folder)
    found.update()
    return found.outcomes(), found.search, found.failed(), [one.value("loss") for one in found.outcomes()]


def facts(value: Any) -> object:
    """A value in a form that compares to the last bit."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: facts(one) for name, one in value.items()}
    return [facts(one) for one in value] if isinstance(value, list | tuple) else value


def check(name: str, sample: Sample, count: int) -> dict[str, Any]:
    """Read `count` damaged contents of a sample, and put the good one back."""
    good = sample.file.read_bytes()
    expected = facts(sample.read())
    outcome: dict[str, Any] = {"errors": 0, "values": 0, "wrong": []}
    for number, (kind, content) in enumerate(damaged(good, name, count)):
        sample.file.unlink()
        sample.file.write_bytes(content)
        try:
            found = facts(sample.read())
        except RunnerError as error:
            problem = None if error.exit_code in ERRORS else f"{type(error).__name__}: {error}"
            outcome["errors"] += 1
        except BaseException as error:  # whatever it is: the report names it
            problem = f"{type(error).__name__}: {error}"
            outcome["errors"] += 1
        else:
            problem = "other values than before the damage" if sample.is_protected and found != expected else None
            outcome["values"] += 1
        if problem:
            outcome["wrong"].append(f"{name}, {kind} {number}: {problem[:2000]}")
    sample.file.unlink()
    sample.file.write_bytes(good)
    return outcome


def main(folder: Path, count: int) -> None:
    """Check all samples."""
    gc.freeze = lambda: None  # commands keep what they import: a process runs only one of them
    resume._run_and_record = lambda request: {}  # a resume that is possible begins no training, and no jobs
    sweep._run_jobs = lambda *_: []
    outcomes = {name: check(name, one, count) for name, one in samples(folder, folder / "runs" / "run").items()}
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(lines["VmHWM"].split()[0]) // 1024  # ru_maxrss has that of the process that started this one
    json.dump({"outcomes": outcomes, "peak_mb": peak}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
