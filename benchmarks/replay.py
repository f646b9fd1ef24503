"""Hold a change that promises equal behaviour to it: the same runs by two versions, compared file by file.

    python benchmarks/replay.py record FOLDER           # with the installed version
    python benchmarks/replay.py compare BEFORE AFTER

`record` makes the runs of RUNS with the command `runner` that stands beside this interpreter, in one working folder
(FOLDER itself, which must be new), and keeps all they leave, with exit code, standard output and error. Install both
versions at the same path and record into the same path, moved away in between, so that no file differs by a path.

`compare` sorts every file into one of four classes: equal bytes; equal but for source lines (a moved module changes the
path and the number of a line in IR files, ONNX node metadata and errors); volatile (times, dates, process numbers:
only names, keys and columns are compared); different. Exit code 6 when anything is different or missing.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

LENET = ["+experiment=lenet", "epochs=2"]
TINY = ["+experiment=resnet50_tiny", "max_steps=4", "~expect"]
UNSUNK = ["dataset_sink_mode=false", "max_steps=3"]
# Each run is a list of commands, made one after the other in a folder with the run's name.
RUNS: dict[str, list[list[str]]] = {
    "pynative": [["runner", *LENET, "hydra.run.dir=run"]],
    "graph_sunk": [["runner", *LENET, "mode=graph", "hydra.run.dir=run"]],
    "graph_unsunk": [["runner", *LENET, "mode=graph", "dataset_sink_mode=false", "hydra.run.dir=run"]],
    "graph_sink_size": [["runner", *LENET, "mode=graph", "sink_size=7", "eval.every=epoch", "hydra.run.dir=run"]],
    "graphs_of_graph": [["runner", *LENET, "mode=graph", "save_graphs=true", "hydra.run.dir=run"]],
    "graphs_of_pynative": [["runner", *LENET, *UNSUNK, "save_graphs=true", "hydra.run.dir=run"]],
    "dump_sync_graph": [["runner", *LENET, *UNSUNK, "mode=graph", "dump=sync", "hydra.run.dir=run"]],
    "dump_sync_pynative": [
        ["runner", *LENET, *UNSUNK, "dump=sync", "hydra.run.dir=run"],
        ["runner", "compare", "../dump_sync_graph/run", "run"],
    ],
    "dump_async_sunk": [
        ["runner", *LENET, "mode=graph", "dump=async", "dump.iteration='0|5'", "hydra.run.dir=run"],
    ],
    "dump_npy_pynative": [
        ["runner", *LENET, *UNSUNK, "dump=async", "dump.file_format=npy", "hydra.run.dir=run"],
    ],
    "dump_ge": [["runner", *LENET, "mode=graph", "dump=ge", "dump.dump_path=.", "dump.dump_step='0-1'", "hydra.run.dir=run"]],
    "dump_kernels_json": [["runner", *LENET, *UNSUNK, "mode=graph", "dump.config=../dump.json", "hydra.run.dir=run"]],
    "mixed_precision": [
        ["runner", *LENET, *UNSUNK, "mode=graph", "session.precision_mode=allow_mix_precision", "dump=sync"]
        + ["hydra.run.dir=run"],
    ],
    "float16_pynative": [
        ["runner", *LENET, *UNSUNK, "session.precision_mode=force_fp16", "save_graphs=true", "hydra.run.dir=run"],
    ],
    "loss_scale": [
        ["runner", *LENET, "mode=graph", "session.precision_mode=force_fp16", "session.loss_scale=dynamic"]
        + ["hydra.run.dir=run"],
    ],
    "resnet_graph": [["runner", *TINY, "save_graphs=true", "hydra.run.dir=run"]],
    "resnet_pynative": [["runner", *TINY, "mode=pynative", "dump=sync", "dataset_sink_mode=false", "hydra.run.dir=run"]],
    "adam_cosine": [
        ["runner", *LENET, "mode=graph", "optimizer=adam", "optimizer.schedule.name=cosine", "callbacks=quiet"]
        + ["checkpoint.every_steps=20", "hydra.run.dir=run"],
    ],
    "resumed": [
        ["runner", *LENET, "mode=graph", "max_steps=50", "checkpoint.every_steps=10", "sink_size=11", "hydra.run.dir=run"],
        ["runner", "resume", "run", "max_steps=80"],
    ],
    "killed": [["kill", "runner", *LENET, "epochs=40", "hydra.run.dir=run"], ["runner", "resume", "run"]],
    "swept": [
        ["runner", "-m", *LENET, "max_steps=5", "seed=1,2", "mode=graph,pynative", "hydra.sweep.dir=sweep"]
        + ["--junit", "junit.xml"],
        ["runner", "compare", "sweep/0", "sweep/1", "--metrics"],
    ],
    "pool": [["runner", "-m", *LENET, "max_steps=5", "seed=1,2,3", "hydra/launcher=pool", "hydra.sweep.dir=sweep"]],
    "profiled_graph": [["runner", *LENET, "mode=graph", "profiling=trace", "hydra.run.dir=run"]],
    "profiled_pynative": [["runner", *LENET, "profiling=trace", "hydra.run.dir=run"]],
    "evaluated": [
        ["runner", *LENET, "hydra.run.dir=trained"],
        ["runner", *LENET, "mode=graph", "session.graph_run_mode=0", "checkpoint.load=trained", "hydra.run.dir=run"],
    ],
    "ranks": [["mpirun", "-n", "2", "runner", *LENET, "parallel=data_parallel", "parallel.gradients_mean=true"]
              + ["mode=graph", "hydra.run.dir=run"]],
    "tracked": [["runner", *LENET, "tracking=tensorboard", "hydra.run.dir=run"]],
    "exception_dump": [
        ["runner", *LENET, "optimizer.learning_rate=1e30", "session.enable_exception_dump=1", "hydra.run.dir=run"],
    ],
    "golden": [
        ["runner", *LENET, "max_steps=5", "hydra.run.dir=run"],
        ["runner", "golden", "--update", "golden.json", "run"],
        ["runner", "golden", "--check", "golden.json", "run"],
    ],
    "refused": [
        ["runner", "+experiment=lenet", "optimizer.learning_rat=0.1", "epochs=0"],
        ["runner", "+experiment=lenet", "network.width=0"],
        ["runner", "+experiment=lenet_mnist", "dataset.data_dir=/nowhere"],
        ["runner", "nothing"],
        ["runner", "resume", "nowhere"],
        ["runner", *LENET, "max_steps=3", "expect.accuracy.min=0.99", "hydra.run.dir=run"],
        ["runner", "+experiment=lenet", "dump=sync", "dump.iteration=5-"],
        ["runner", "+experiment=lenet", "device=gpu", "mode=graph"],
        ["runner", "parse-print", "/dev/null"],
        ["runner", "convert", "-d", "nowhere", "-out", "there"],
        ["runner", "+experiment=lenet", "--cfg", "job"],
        ["runner", "ls", "../graph_sunk"],
    ],
}
DUMP = {
    "common_dump_settings": {"dump_mode": 1, "path": "", "net_name": "LeNet5", "iteration": 0, "input_output": 2}
    | {"kernels": ["Conv2D", "*fc3*"], "support_device": [0, 1, 2, 3, 4, 5, 6, 7]},
    "e2e_dump_settings": {"enable": True, "trans_flag": False},
}
ENVIRONMENT = {"OMP_NUM_THREADS": "2", "COLUMNS": "120", "LC_ALL": "C.UTF-8"}

# Where source lines stand in what is compared as text.
SOURCE = re.compile(rb"[\w./-]*\b(?:runner|models|conf)/[\w./-]+\.py(?:[(:]\d+\)?)?")
# What no two runs have in common, in files whose other content is compared.
VOLATILE_NAMES = re.compile(r"events\.out\.tfevents|\.lock$|timeline|profil|junit\.xml$|report\.html$|hydra\.yaml$")
# CANN files and some folders have the time in their names.
STAMP = re.compile(r"\b\d{13,20}\b|\b20\d{12,}\b")
# The field dump_time of such a file, behind the length of the header and the version.
DUMP_TIME = re.compile(rb"\A(.{8}(?:\n.[0-9.]*)?\x10)[\x80-\xff]+[\x00-\x7f]", re.DOTALL)


def record(folder: Path) -> None:
    """Make all runs below a folder that does not exist yet."""
    folder.mkdir(parents=True)
    settings = {**DUMP, "common_dump_settings": {**DUMP["common_dump_settings"], "path": str(folder / "json_dump")}}
    (folder / "dump.json").write_text(json.dumps(settings), encoding="utf-8")
    for name, commands in RUNS.items():
        place = folder / name
        place.mkdir()
        codes = [_made(command, place, number) for number, command in enumerate(commands)]
        (place / "exit_codes.json").write_text(json.dumps(codes), encoding="utf-8")
        print(f"{name:<20} {codes}", flush=True)


def _made(words: list[str], place: Path, number: int) -> int:
    """The exit code of one command; `kill` in front ends it with SIGKILL in the middle of its training."""
    killed, words = words[0] == "kill", words[words[0] == "kill" :]
    scripts = Path(sys.executable).parent
    environment = {**os.environ, **ENVIRONMENT, "PATH": f"{scripts}:{os.environ['PATH']}"}
    with (place / f"stdout_{number}").open("wb") as out, (place / f"stderr_{number}").open("wb") as err:
        process = subprocess.Popen(words, cwd=place, stdout=out, stderr=err, env=environment)
        if killed:
            _kill_when(process, place / "run" / "metrics.jsonl")
        code = process.wait(600)
    if killed:  # how far it came is chance
        for name in (f"stdout_{number}", f"stderr_{number}"):
            (place / name).unlink()
    return code


def _kill_when(process: "subprocess.Popen[bytes]", journal: Path) -> None:
    while process.poll() is None and not (journal.exists() and journal.stat().st_size > 20_000):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)


def compare(before: Path, after: Path) -> int:
    """Print the class of every file that is not equal, and how many files each class has."""
    ours, theirs = _files(before), _files(after)
    classes: Counter[str] = Counter()
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            kind = "only before" if name in ours else "only after"
        else:
            kind = _class(ours[name], theirs[name])
        classes[kind] += 1
        if kind not in ("equal", "source lines", "volatile"):
            print(f"{kind:<14} {name}")
    for kind, number in classes.most_common():
        print(f"{number:>6} {kind}")
    return 6 if classes.keys() - {"equal", "source lines", "volatile"} else 0


def _files(folder: Path) -> dict[str, Path]:
    """All files by their names without what differs from run to run."""
    found: dict[str, Path] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = STAMP.sub("STAMP", str(path.relative_to(folder)))
        name = re.sub(r"tfevents\..*", "tfevents", name)
        name = re.sub(r"\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d", "DATE", name)
        while name in found:
            name += "'"
        found[name] = path
    return found


def _class(one: Path, other: Path) -> str:
    a, b = one.read_bytes(), other.read_bytes()
    if a == b:
        return "equal"
    if SOURCE.sub(b"SOURCE", a) == SOURCE.sub(b"SOURCE", b):
        return "source lines"
    for shape in _shapes(one):
        try:
            if shape(a) == shape(b):
                return "volatile"
        except ValueError:
            pass
    return "different"


def _shapes(path: Path) -> Iterator[Callable[[bytes], object]]:
    """What must be equal of a file that holds times."""
    if path.suffix == ".onnx":
        yield _without_metadata
    if path.name.startswith(("stdout", "stderr")) or path.suffix in (".txt", ".log"):
        yield lambda content: re.sub(rb"[\d.]+", b"N", SOURCE.sub(b"SOURCE", content)).split()
    if STAMP.search(path.name):
        yield lambda content: DUMP_TIME.sub(rb"\1", content)
    if path.suffix == ".json":
        yield lambda content: _keys(json.loads(content))
    if path.suffix == ".jsonl":
        rows = sorted if path.name == "sweep.jsonl" else list  # jobs of a pool end in any order
        yield lambda content: rows(json.dumps(_keys(json.loads(line))) for line in content.splitlines())
    if path.suffix == ".csv":
        yield lambda content: content.split(b"\n")[0]
    if VOLATILE_NAMES.search(str(path)):
        yield lambda content: None


def _without_metadata(content: bytes) -> bytes:
    """A model without the source lines of its nodes, whose lengths stand in front of them."""
    import onnx

    model = onnx.load_model_from_string(content)
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    return model.SerializeToString(deterministic=True)


def _keys(value: object, key: str = "") -> object:
    """A JSON value of which numbers that are times, and names of processes and hosts, are only known to be there."""
    if isinstance(value, dict):
        return {k: _keys(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_keys(v, key) for v in value]
    moving = re.search(r"second|time|start|finish|pid|rss|host|_ms|_us|git|commit|sha256|path|cpu|memory|error", key)
    return type(value).__name__ if moving or isinstance(value, float) else value


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("folder", type=Path)
    pair = commands.add_parser("compare")
    pair.add_argument("before", type=Path)
    pair.add_argument("after", type=Path)
    o = parser.parse_args()
    if o.command == "record":
        record(o.folder.absolute())
    else:
        sys.exit(compare(o.before, o.after))


if __name__ == "__main__":
    main()
