"""Small dumps, written from the layouts: a step of four operators, as files of every kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner import dtype as dt
from runner.observe.dump.cann import TensorHeader, header
from runner.observe.dump.files import AsyncName, NpyName, SyncName, sanitised
from runner.observe.graph.listing import ListedLine, Listing, Operation, Subgraph, text
from runner.types import TensorType

CONV, RELU, GRADIENT, MOMENTUM = ORDER = (
    "Default/network-Loss/conv1-Conv2d/Conv2D-op0",
    "Default/network-Loss/relu-ReLU/ReLU-op1",
    "Gradients/Default/network-Loss/relu-ReLU/gradReLU/ReluGrad-op2",
    "Default/optimizer-Momentum/ApplyMomentum-op5",
)
WEIGHT = "conv1.weight"
OPERANDS = {CONV: ("%para1_x", "%para2_conv1.weight"), RELU: ("%0",), GRADIENT: ("%1", "%0"), MOMENTUM: ("%2",)}


@dataclass
class Step:
    """What a step has done: (name, inputs, outputs) in order, and parameters with constants."""

    operators: list[tuple[str, list[np.ndarray], list[np.ndarray]]]
    held: dict[str, np.ndarray]


def step(
    wrong: str = "",
    factor: float = 1.01,
    noise: float = 0.0,
    seed: int = 0,
    dtype: type = np.float32,
    data: float = 0.0,
) -> Step:
    """A step in which the operator `wrong` makes results that are so many times too large, for others to go on with."""
    random, rounding = np.random.default_rng(seed), np.random.default_rng(99)
    x, w = random.normal(size=(2, 3, 4, 6)).astype(dtype), (1e-3 * random.normal(size=(6,))).astype(dtype)
    x = (x + data).astype(dtype)
    operators: list[tuple[str, list[np.ndarray], list[np.ndarray]]] = []

    def apply(name: str, function: Callable[..., np.ndarray], *inputs: np.ndarray) -> np.ndarray:
        made = function(*inputs) * (factor if name == wrong else 1.0)
        made = (made * (1 + noise * rounding.normal(size=made.shape))).astype(dtype)
        operators.append((name, list(inputs), [made]))
        return made

    y = apply(CONV, np.multiply, x, w)
    r = apply(RELU, lambda v: np.maximum(v, 0), y)
    g = apply(GRADIENT, np.multiply, r, y)
    apply(MOMENTUM, np.negative, g)
    return Step(operators, {WEIGHT: w, "cst1": np.array([3, 4], np.int32)})


def listing() -> Listing:
    """The graph of the step."""
    operations = [
        Operation(
            number=k,
            name=f"[CNode]{k}",
            op=name.rpartition("/")[2].partition("-")[0],
            operands=OPERANDS[name],
            instance="",
            attributes=(),
            operand_types=(None,) * len(OPERANDS[name]),
            result_types=(None,),
            device_types=None,
            full_name=name,
            source=(ListedLine("net.py", 10 + k, f"x = self.part{k}(x)"),),
        )
        for k, name in enumerate(ORDER)
    ]
    return Listing((), (), (Subgraph("train_step.0", (), tuple(operations), (), (), ()),))


def same(name: str) -> str:
    return name


def graphs(device: Path, named: Callable[[str], str] = same, order: Sequence[str] = ORDER, number: int = 0) -> None:
    """What stands beside the iterations."""
    for folder in ("graphs", "execution_order"):
        (device / folder).mkdir(parents=True, exist_ok=True)
    printed = text(listing())
    for name in ORDER:
        printed = printed.replace(f"({name})", f"({named(name)})")
    (device / "graphs" / f"ms_output_trace_code_graph_{number}.ir").write_text(printed)
    lines = ["NodeExecutionOrder-FullNameWithScope", *map(named, order)]
    (device / "execution_order" / f"ms_execution_order_graph_{number}.csv").write_text("\n".join(lines) + "\n")


def sync(
    path: Path,
    made: Step,
    iteration: int = 0,
    device: str = "Net/0",
    named: Callable[[str], str] = same,
    lies: str = "",
) -> Path:
    """A synchronous dump; with `lies` CHWN, values of four axes as they lie batch last."""
    folder = path / device / f"iteration_{iteration}"
    folder.mkdir(parents=True)

    def write(name: str, io: str, slot: int, array: np.ndarray) -> None:
        turned = lies == "CHWN" and array.ndim == 4
        lying = np.ascontiguousarray(np.moveaxis(array, 0, -1)) if turned else array
        formats = (lies,) if turned else ()
        lying.tofile(folder / str(SyncName(name, io, slot, TensorType.of(lying), *formats)))

    for name, inputs, outputs in made.operators:
        for io, arrays in (("input", inputs), ("output", outputs)):
            for slot, array in enumerate(arrays):
                write(named(name), io, slot, array)
    for name, array in made.held.items():
        write(name, "output", 0, array)
    graphs(path / device, named)
    return path


def _parts(made: Step, named: Callable[[str], str], clock: int):
    for k, (name, inputs, outputs) in enumerate(made.operators):
        kind = name.rpartition("/")[2].partition("-")[0]
        yield AsyncName(kind, sanitised(named(name)), k, 0, clock + k), named(name), inputs, outputs
    for k, (name, array) in enumerate(made.held.items()):
        yield AsyncName("Parameter", sanitised(name), 0, 0, clock + 100 + k), name, [], [array]


def asynchronous(
    path: Path,
    made: Step,
    iteration: int = 0,
    device: str = "0",
    named: Callable[[str], str] = same,
    lies: str = "",
    clock: int = 1000,
) -> Path:
    """An asynchronous dump of CANN files."""
    folder = path / device / "Net_graph_0" / "0" / str(iteration)
    folder.mkdir(parents=True, exist_ok=True)
    for name, full, *sides in _parts(made, named, clock):
        stored, contents = [[], []], [[], []]
        for side, arrays in enumerate(sides):
            for array in arrays:
                turned = lies == "CHWN" and array.ndim == 4
                lying = np.ascontiguousarray(np.moveaxis(array, 0, -1)) if turned else array
                kept = TensorHeader(dt.of(array.dtype), lies if turned else "ND", lying.shape, array.shape)
                stored[side].append(kept)
                contents[side].append(lying.tobytes())
        content = header(full, name.timestamp, *stored) + b"".join(contents[0] + contents[1])
        (folder / str(name)).write_bytes(content)
    graphs(path / device, named)
    return path


def npy(path: Path, made: Step, iteration: int = 0, device: str = "0", named: Callable[[str], str] = same) -> Path:
    """An asynchronous dump of .npy files."""
    folder = path / device / "Net_graph_0" / "0" / str(iteration)
    folder.mkdir(parents=True)
    for name, _, inputs, outputs in _parts(made, named, 1000):
        for io, arrays in (("input", inputs), ("output", outputs)):
            for slot, array in enumerate(arrays):
                np.save(folder / str(NpyName(name, io, slot, "DefaultFormat")), array)
    graphs(path / device, named)
    return path
