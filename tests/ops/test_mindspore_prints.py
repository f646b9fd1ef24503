"""MindSpore reads our print files, and prints as we do.

`mindspore.parse_print` is in versions up to 2.7; where it is gone, MindSpore's own schema of the file reads it.

python3.11 -m venv ms && ms/bin/pip install mindspore==2.7.0 "numpy<2"
RUNNER_MINDSPORE_PYTHON=ms/bin/python pytest tests/ops/test_mindspore_prints.py
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE

from runner import dtype
from runner.ops.effects import PrintFile, text

PYTHON = os.environ.get("RUNNER_MINDSPORE_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="RUNNER_MINDSPORE_PYTHON names no Python that has MindSpore")

READ = """
import sys
import mindspore as ms
if hasattr(ms, "parse_print"):
    for part in ms.parse_print(sys.argv[1]):
        if isinstance(part, str):
            print("FOUND", repr(part))
        else:
            array = part.asnumpy()
            print("FOUND", part.dtype, array.shape, array.tobytes().hex())
else:
    from mindspore.train.print_pb2 import Print
    for value in Print.FromString(open(sys.argv[1], "rb").read()).value:
        tensor = value.tensor
        if value.HasField("desc"):
            print("FOUND", repr(value.desc))
        else:
            print("FOUND", tensor.tensor_type, tuple(tensor.dims), tensor.tensor_content.hex())
"""
SHOW = """
import sys
import numpy as np
import mindspore as ms
from mindspore import nn, ops
class Shown(nn.Cell):
    def __init__(self):
        super().__init__()
        self.print = ops.Print()
    def construct(self, *tensors):
        self.print("first", tensors[0], tensors[1], tensors[2], "last", tensors[3], tensors[4])
        return tensors[0]
ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
Shown()(*[ms.Tensor(np.load(sys.argv[1] + f"/{k}.npy")) for k in range(5)])
"""
RNG = np.random.default_rng(3)


def said(place: Path, script: str, *words: object) -> str:
    (place / "script.py").write_text(script)  # MindSpore compiles nothing that has no file
    command = [os.path.abspath(str(PYTHON)), str(place / "script.py"), *map(str, words)]
    running = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=place)
    assert running.returncode == 0, running.stderr
    return running.stdout


def test_mindspore_reads_our_files(tmp_path):
    arrays = [(RNG.normal(size=(2, 3)) * 3).astype(kind.numpy) for kind in dtype.ALL]
    arrays += [np.array(0.5, np.float32), np.array(True), np.array([7], np.int64), np.array(-3, np.int32)]
    grows = PrintFile(tmp_path / "print.pb")
    grows.append(["x is", *arrays[:5]])
    grows.append([*arrays[5:], "ü"])
    grows.close()
    tensors = [f"{dtype.of(a.dtype)} {a.shape} {a.tobytes().hex()}" for a in arrays]
    found = [line[6:] for line in said(tmp_path, READ, tmp_path / "print.pb").splitlines() if line.startswith("FOUND ")]
    assert found == ["'x is'", *tensors, "'ü'"]


def test_mindspore_prints_the_same_text(tmp_path):
    """Short rows: it wraps long ones when there is one axis, and leaves elements out when there are several."""
    arrays = [
        (RNG.normal(size=(2, 3)) * 1000).astype(np.float32),
        RNG.integers(-1000, 1000, (2, 2, 3), np.int32),
        RNG.normal(size=5) < 0,
        RNG.normal(size=(4, 2)).astype(np.float16),
        RNG.integers(0, 99, 6, np.int64),
    ]
    for k, array in enumerate(arrays):
        np.save(tmp_path / f"{k}.npy", array)
    expected = text(["first", *arrays[:3], "last", *arrays[3:]])
    assert expected in said(tmp_path, SHOW, tmp_path)
