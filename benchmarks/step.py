"""How long one training step takes, how much memory it needs, and how that compares.

    python benchmarks/step.py lenet5 --mode graph pynative --sink 0 1000 --threads 1 2 --repeats 5
    python benchmarks/step.py resnet18 resnet50 --peer torch jax --peer-python torch=/opt/torch/bin/python
    python benchmarks/step.py mobilenet_v2 --onnx outputs/onnx --peer torch
    python benchmarks/step.py resnet50 --device gpu --sink 0 100 --steps 100 --peer torch --tf32

Every measurement runs in a process of its own, after a warm-up, on random but fixed data of which each step takes a new
batch. The contenders (runner in each mode and sink size, the peers, and the arithmetic floor of benchmarks/floor.py)
run in turn, so that all of them see the same moods of the machine; only ratios within a repeat are worth quoting.

Prints one JSON object per line: for each contender the row of its median repeat, with the milliseconds of all; then
for each of runner's contenders and each other one `ratio` (the other's time by runner's: above 1 runner is faster;
for the peer `floor`, on the CPU, it is the share of the floor) and `rss_ratio` (runner's peak memory by the other's).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from peers.timing import DEVICES, MORE_NETS, NETS

HERE = Path(__file__).resolve().parent
PEERS = {
    "torch": "torch_eager.py",
    "torch.compiler": "torch_compile.py",
    "jax": "jax_jit.py",
    "mindspore": "mindspore_graph.py",
    "onnxruntime.training": "ort_training.py",
}
GPU_PEERS = "torch", "torch.compiler"
THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SETTING = ("net", "batch", "threads")

Row = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """A script that measures a step, and how it is started."""

    name: str
    command: tuple[str, ...]

    def measure(self, arguments: Sequence[str], threads: int) -> Row:
        """The row that it prints. Ends this process with its words when it fails."""
        environment = {**os.environ, **dict.fromkeys(THREAD_COUNTS, str(threads))}
        if self.name == "runner":
            environment["PYTHONPATH"] = str(HERE.parent)
        command = [*self.command, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr}")
        row: Row = json.loads(done.stdout.strip().splitlines()[-1])
        return row


def contenders(o: argparse.Namespace) -> list[Contender]:
    """Runner in each mode, the floor, and the peers."""
    ours = [("graph", sink) for sink in o.sink if "graph" in o.mode]
    ours += [("pynative", 0)] if "pynative" in o.mode else []
    worker = sys.executable, str(HERE / "one_step.py"), "--mode"
    listed = [Contender("runner", (*worker, mode, "--sink", str(sink))) for mode, sink in ours]
    if o.device == "cpu":
        listed.append(Contender("floor", (sys.executable, str(HERE / "floor.py"))))
    pythons = dict(o.peer_python)
    return listed + [
        Contender(name, (pythons.get(name, sys.executable), str(HERE / "peers" / PEERS[name]))) for name in o.peer
    ]


def check(contender: Contender) -> None:
    """End this process when the peer's package is not there, before anything is measured."""
    search = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({contender.name!r}) is None)"
    python = contender.command[0]
    try:
        found = not subprocess.run([python, "-c", search], capture_output=True, check=False).returncode
    except OSError as error:
        sys.exit(f"--peer-python {contender.name}={python}: {error.strerror}")
    if not found:
        sys.exit(f"{python} has no package {contender.name}: give --peer-python {contender.name}=PATH of one that has")


def in_turn(listed: Sequence[Contender], arguments: Sequence[str], o: argparse.Namespace, threads: int) -> list[Row]:
    """A row for each contender, with `each`: the rows of its repeats. Every repeat begins with another contender."""
    each: list[list[Row]] = [[] for _ in listed]
    for repeat in range(o.repeats):
        for k in range(len(listed)):
            number = (repeat + k) % len(listed)
            each[number].append(listed[number].measure(arguments, threads))
    _check_same_network([rows[0] for rows in each])
    return [_median_row(rows) | {"each": rows} for rows in each]


def _check_same_network(rows: Sequence[Row]) -> None:
    counts = {row["peer"]: row["parameters"] for row in rows if "parameters" in row}
    if len(set(counts.values())) > 1:
        sys.exit(f"not the same network: numbers of parameters are {counts}")


def _median_row(rows: Sequence[Row]) -> Row:
    return sorted(rows, key=lambda row: float(row["ms_per_step"]))[len(rows) // 2]


def summary(rows: Sequence[Row]) -> Iterator[Row]:
    """What is printed: medians, then comparisons."""
    for row in rows:
        shown = {name: value for name, value in row.items() if name != "each"}
        yield shown | {"ms_of_each_repeat": [one["ms_per_step"] for one in row["each"]]}
    ours = [row for row in rows if row["peer"] == "runner"]
    others = [row for row in rows if row["peer"] != "runner"]
    for mine, other in product(ours, others):
        yield {name: mine[name] for name in (*SETTING, "mode", "sink")} | comparison(mine["each"], other["each"])


def comparison(ours: Sequence[Row], others: Sequence[Row]) -> Row:
    """Ratios of the repeats, and their medians."""
    pairs = list(zip(ours, others, strict=True))
    ratios = [other["ms_per_step"] / mine["ms_per_step"] for mine, other in pairs]
    made = {"peer": others[0]["peer"], "ratio": round(statistics.median(ratios), 3)}
    made["of_each_repeat"] = [round(ratio, 3) for ratio in ratios]
    if made["peer"] != "floor":
        memory = statistics.median(mine["peak_rss_mb"] / other["peak_rss_mb"] for mine, other in pairs)
        made["rss_ratio"] = round(memory, 3)
    return made


def assignment(text: str) -> tuple[str, str]:
    """NAME=PATH of a peer."""
    name, equals, path = text.partition("=")
    if name not in PEERS or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not PEER=PATH with a peer of {', '.join(PEERS)}")
    return name, path


def whole(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not whole(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", nargs="+", choices=MORE_NETS)
    parser.add_argument("--mode", nargs="+", choices=["graph", "pynative"], default=["graph"])
    parser.add_argument("--sink", nargs="+", type=whole, default=[0], help="steps in one call (graph mode); 0: unsunk")
    parser.add_argument("--threads", nargs="+", type=positive, default=[2])
    parser.add_argument("--batch", nargs="+", type=positive, default=[32])
    parser.add_argument("--steps", type=positive, help="default: 300 of lenet5, 3 of a resnet")
    parser.add_argument("--repeats", type=positive, default=3)
    parser.add_argument("--peer", nargs="+", choices=list(PEERS), default=[])
    paths = "the interpreter that has a peer installed, as torch=/path/python (default: this one)"
    parser.add_argument("--peer-python", nargs="+", type=assignment, default=[], metavar="PEER=PATH", help=paths)
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="gpu: graph mode on the first card")
    parser.add_argument("--tf32", action="store_true", help="on the gpu: Float32 as TF32, of the peer too")
    parser.add_argument("--onnx", type=Path, help="folder of the networks that peers/torch_onnx.py has exported")
    o = parser.parse_args()
    readers = [*({*o.net} - {*NETS}), *({*o.peer} & {"onnxruntime.training"})]
    if readers and not o.onnx:
        parser.error(f"{readers[0]} needs --onnx, the folder that peers/torch_onnx.py has written")
    others = [*({*o.mode} - {"graph"}), *(peer for peer in o.peer if peer not in GPU_PEERS)]
    if o.device == "gpu" and others:
        parser.error(f"{others[0]} does not compute on the gpu here: graph mode and {', '.join(GPU_PEERS)} do")
    if o.tf32 and o.device != "gpu":
        parser.error("--tf32 needs --device gpu")
    return o


def main() -> None:
    """Command line."""
    o = parsed()
    listed = contenders(o)
    for contender in listed:
        if contender.name in PEERS:
            check(contender)
    for net, batch, threads in product(o.net, o.batch, o.threads):
        arguments = [net, "--batch", str(batch), "--threads", str(threads)]
        arguments += ["--device", o.device, *(["--tf32"] if o.tf32 else [])] if o.device != "cpu" else []
        arguments += ["--steps", str(o.steps)] if o.steps else []
        arguments += ["--onnx", str(o.onnx)] if o.onnx else []
        for row in summary(in_turn(listed, arguments, o, threads)):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
