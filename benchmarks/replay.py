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

RUN = "hydra.run.dir=run"
LENET = ["runner", "+experiment=lenet", "epochs=2", RUN]
GRAPH = [*LENET, "mode=graph"]
THREE_STEPS = [*LENET, "dataset_sink_mode=false", "max_steps=3"]
THREE_GRAPH_STEPS = [*THREE_STEPS, "mode=graph"]
TINY = ["runner", "+experiment=resnet50_tiny", "max_steps=4", "~expect", RUN]
SWEEP = ["runner", "-m", "+experiment=lenet", "epochs=2", "max_steps=5", "hydra.sweep.dir=sweep"]
# Each run is a list of commands, made one after the other in a folder with the run's name.
RUNS: dict[str, list[list[str]]] = {
    "pynative": [LENET],
    "graph_sunk": [GRAPH],
    "graph_unsunk": [[*GRAPH, "dataset_sink_mode=false"]],
    "graph_sink_size": [[*GRAPH, "sink_size=7", "eval.every=epoch"]],
    "graphs_of_graph": [[*GRAPH, "save_graphs=true"]],
    "graphs_of_pynative": [[*THREE_STEPS, "save_graphs=true"]],
    "dump_sync_graph": [[*THREE_GRAPH_STEPS, "dump=sync"]],
    "dump_sync_pynative": [[*THREE_STEPS, "dump=sync"], ["runner", "compare", "../dump_sync_graph/run", "run"]],
    "dump_async_sunk": [[*GRAPH, "dump=async", "dump.iteration='0|5'"]],
    "dump_npy_pynative": [[*THREE_STEPS, "dump=async", "dump.file_format=npy"]],
    "dump_ge": [[*GRAPH, "dump=ge", "dump.dump_path=.", "dump.dump_step='0-1'"]],
    "dump_kernels_json": [[*THREE_GRAPH_STEPS, "dump.config=../dump.json"]],
    "mixed_precision": [[*THREE_GRAPH_STEPS, "session.precision_mode=allow_mix_precision", "dump=sync"]],
    "float16_pynative": [[*THREE_STEPS, "session.precision_mode=force_fp16", "save_graphs=true"]],
    "loss_scale": [[*GRAPH, "session.precision_mode=force_fp16", "session.loss_scale=dynamic"]],
    "resnet_graph": [[*TINY, "save_graphs=true"]],
    "resnet_pynative": [[*TINY, "mode=pynative", "dump=sync", "dataset_sink_mode=false"]],
    "adam_cosine": [
        [*GRAPH, "optimizer=adam", "optimizer.schedule.name=cosine", "callbacks=quiet", "checkpoint.every_steps=20"]
    ],
    "resumed": [
        [*GRAPH, "max_steps=50", "checkpoint.every_steps=10", "sink_size=11"],
        ["runner", "resume", "run", "max_steps=80"],
    ],
    "killed": [["kill", *LENET, "epochs=40"], ["runner", "resume", "run"]],
    "swept": [
        [*SWEEP, "seed=1,2", "mode=graph,pynative", "--junit", "junit.xml"],
        ["runner", "compare", "sweep/0", "sweep/1", "--metrics"],
    ],
    "pool": [[*SWEEP, "seed=1,2,3", "hydra/launcher=pool"]],
    "profiled_graph": [[*GRAPH, "profiling=trace"]],
    "profiled_pynative": [[*LENET, "profiling=trace"]],
    "evaluated": [
        [*LENET, "hydra.run.dir=trained"],
        [*GRAPH, "session.graph_run_mode=0", "checkpoint.load=trained"],
    ],
    "ranks": [["mpirun", "-n", "2", *GRAPH, "parallel=data_parallel", "parallel.gradients_mean=true"]],
    "tracked": [[*LENET, "tracking=tensorboard"]],
    "exception_dump": [[*LENET, "optimizer.learning_rate=1e30", "session.enable_exception_dump=1"]],
    "golden": [
        [*LENET, "max_steps=5"],
        ["runner", "golden", "--update", "golden.json", "run"],
        ["runner", "golden", "--check", "golden.json", "run"],
    ],
    "refused": [
        ["runner", "+experiment=lenet", "optimizer.learning_rat=0.1", "epochs=0"],
        ["runner", "+experiment=lenet", "network.width=0"],
        ["runner", "+experiment=lenet_mnist", "dataset.data_dir=/nowhere"],
        ["runner", "nothing"],
        ["runner", "resume", "nowhere"],
        [*LENET, "max_steps=3", "expect.accuracy.min=0.99"],
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
SOURCE = re.compile(rb"# In file [^\n]*|[\w./-]*\b(?:runner|models|conf)/[\w./-]+\.py(?:[(:]\d+\)?)?")
# What no two runs have in common, in files whose other content is compared.
VOLATILE_NAMES = re.compile(
    r"\.runner_owner\.json$|events\.out\.tfevents|\.lock$|timeline|profil|junit\.xml$|report\.html$|hydra\.yaml$"
)
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
        yield lambda content: re.sub(
            rb"[\d.]+", b"N", SOURCE.sub(b"SOURCE", content).replace(b"\xe2\x94\x80", b"")
        ).split()
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
