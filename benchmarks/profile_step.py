"""Where the time of a training step goes, by onnxruntime's own profile.

    python benchmarks/profile_step.py resnet50 --threads 2
    python benchmarks/profile_step.py lenet5 --batch 256 --runs 50 --top 30

Runs steps in graph mode as a run does, in the session that a run opens, only with the profile on (which makes small
nodes look slower). The time of a node is its median over the runs. Prints the share of each ONNX operator, of each kind
of runner's operators, and of single operators by full name. A node into which others were fused counts for the operator
in whose place it stands (`ReLU + FusedConv` is a convolution and what follows it), a transpose for the operator that
was the first to ask for it. What is left of a run is onnxruntime's own work between the nodes.
"""

import argparse
import json
import re
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
from peers.timing import arguments, parsed
from training import data_of, model_of

from runner.device import Device
from runner.nn.steps import GraphStep

WARM_UP, WIDTH = 3, 72
FULL_NAME = re.compile(r"(?P<full>.*/(?P<kind>[^/]+)-op\d+)(?:/(?P<rest>.*))?")


@dataclass(frozen=True)
class Spent:
    """The time of a node: what ONNX calls its operator, its name (which begins with runner's operator)."""

    kind: str
    name: str
    microseconds: float


@contextmanager
def profiled(prefix: Path) -> Iterator[list[Any]]:
    """Sessions that are opened inside write a profile; they are in the list."""
    made: list[Any] = []
    original = onnxruntime.InferenceSession

    def opened(model: bytes, options: Any, **rest: Any) -> Any:
        options.enable_profiling, options.profile_file_prefix = True, str(prefix)
        made.append(original(model, options, **rest))
        return made[-1]

    onnxruntime.InferenceSession = opened
    try:
        yield made
    finally:
        onnxruntime.InferenceSession = original


def profile(o: argparse.Namespace) -> list[dict[str, Any]]:
    """The events of `WARM_UP` and `o.runs` steps, each with its own batch."""
    model, (images, labels) = model_of(o.net, "graph", Device(threads=o.threads)), data_of(o)
    assert isinstance(model.train_step, GraphStep)
    with tempfile.TemporaryDirectory() as folder, profiled(Path(folder) / "step") as sessions:
        for i in range(WARM_UP + o.runs):
            rows = slice(i % 8 * o.batch, (i % 8 + 1) * o.batch)
            model.train_step((images[rows], labels[rows]))
        (session,) = sessions
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
    return events


def kept_runs(events: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The last `count` runs, without those that warm up."""
    runs = [event for event in events if event["cat"] == "Session" and event["name"] == "model_run"]
    return sorted(runs, key=lambda event: float(event["ts"]))[-count:]


def spent(events: list[dict[str, Any]], since: float) -> list[Spent]:
    """What each node took, of the events from a time on."""
    times: dict[str, list[float]] = defaultdict(list)
    kinds: dict[str, str] = {}
    for event in events:
        name, ending, _ = event["name"].rpartition("_kernel_time")
        if event["cat"] == "Node" and ending and event["ts"] >= since:
            times[name].append(event["dur"])
            kinds[name] = event["args"]["op_name"]
    return [Spent(kinds[name], name, statistics.median(each)) for name, each in times.items()]


def operator_of(node: Spent) -> tuple[str, str]:
    """Full name and kind of the operator that a node was lowered from; `-` is the kind of nodes that belong to none.

    A node that has swallowed others is called after the one in whose place it stands: `.../ReLU-op7/Relu_0/FusedConv`.
    """
    found = FULL_NAME.fullmatch(node.name)
    if found is None:
        return node.name, "-"
    fused = (found["rest"] or "").endswith(f"/{node.kind}")
    return found["full"], f"{found['kind']} + {node.kind}" if fused else found["kind"]


def table(title: str, microseconds: Mapping[str, float], counts: Mapping[str, int], top: int) -> str:
    """Lines with share, milliseconds, number of nodes and name, the largest first."""
    whole = sum(microseconds.values())
    lines = [f"{title:{WIDTH}}  share        ms  nodes"]
    for name, each in sorted(microseconds.items(), key=lambda item: -item[1])[:top]:
        shown = name if len(name) <= WIDTH else "…" + name[1 - WIDTH :]
        lines.append(f"{shown:{WIDTH}} {each / whole:6.1%} {each / 1e3:9.3f} {counts[name]:6}")
    return "\n".join(lines)


def tables(nodes: list[Spent], top: int) -> Iterator[str]:
    """By ONNX operator, by kind of operator, by operator."""
    columns = {
        "ONNX operator": [node.kind for node in nodes],
        "operator": [operator_of(node)[1] for node in nodes],
        "full name": [operator_of(node)[0] for node in nodes],
    }
    for title, names in columns.items():
        sums: dict[str, float] = defaultdict(float)
        for name, node in zip(names, nodes, strict=True):
            sums[name] += node.microseconds
        yield table(title, sums, Counter(names), top)


def main() -> None:
    """Command line."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, help="that are profiled; default: as many steps as suit the network")
    parser.add_argument("--top", type=int, default=20, help="lines of each table")
    o = parsed(parser)
    o.runs = o.runs or o.steps
    events = profile(o)
    runs = kept_runs(events, o.runs)
    nodes = spent(events, runs[0]["ts"])
    whole, inside = statistics.median(run["dur"] for run in runs), sum(node.microseconds for node in nodes)
    print(f"{o.net}, batch {o.batch}, {o.threads} threads, {len(runs)} runs")
    print(f"a run takes {whole / 1e3:.3f} ms, its {len(nodes)} nodes {inside / 1e3:.3f} ms")
    for shown in tables(nodes, o.top):
        print(f"\n{shown}")


if __name__ == "__main__":
    main()
