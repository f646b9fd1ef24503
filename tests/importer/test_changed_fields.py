"""ONNX files with changed fields: an error of ours, or a file that ONNX's checker accepts, in every command.

`make soak` tries 20,000 files.
"""

import random
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_files import saved
from onnx_mutations import WEIGHTS, bases, mutated
from patience import not_for_ever
from soak import SOAK
from tables import check_rows

from runner.config.check import check
from runner.errors import ConfigError, InternalError, RunnerError
from runner.importer.file import every, read_model
from runner.importer.network import OnnxNetwork
from runner.observe.tolerance import Tolerance
from runner.report import onnx_file

COUNT = 20_000 if SOAK else 150
LARGE = 1 << 20  # elements of an input
BASES = bases()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for the files, whose inputs are random, of the types that they say, in place of samples of a run."""
    (tmp_path / WEIGHTS).write_bytes(np.random.default_rng(0).normal(size=256).astype(np.float32).tobytes())

    def inputs(config: object, network: OnnxNetwork) -> list[np.ndarray]:
        rng, arrays = np.random.default_rng(0), []
        for value, axis in zip(network.graph.inputs, network.batch_axes, strict=True):
            shape = [4 if isinstance(n, str) else n for n in value.shape or ()]
            if value.dtype is None or not shape or np.prod(shape, dtype=float) > LARGE:
                raise ConfigError("no input for a test")
            arrays.append(np.moveaxis(rng.normal(size=shape).astype(value.dtype.numpy), axis, 0))
        return arrays

    monkeypatch.setattr(onnx_file, "_inputs", inputs)
    return tmp_path


def refusal(made: onnx.ModelProto, path: Path) -> str:
    """What ONNX's checker says of a file that was read, without what a file may have: shapes that are left out,
    initializers that are no inputs in version 3, nodes in any order, operators that ONNX does not know."""
    made.ir_version = 4 if made.ir_version == 3 else made.ir_version
    for value in (*made.graph.input, *made.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    for node in every(chain(made.graph.node, *(function.node for function in made.functions))):
        if node.op_type and node.domain in ("", "ai.onnx") and not onnx.defs.has(node.op_type):
            node.domain = "unknown"
    made.opset_import.add(domain="unknown", version=1)
    try:
        onnx.checker.check_model(str(saved(path.with_name("checked.onnx"), made)))
    except onnx.checker.ValidationError as error:
        return str(error) if "topologically sorted" not in str(error) or read_model(path).captures else ""
    return ""


def outcome(number: int, path: Path) -> str:
    """What the commands say of a file; raises AssertionError for what they may not do."""
    rng = random.Random(number)
    name = rng.choice([*BASES])
    made = mutated(BASES[name], rng)
    saved(path, made)
    with not_for_ever(number):
        try:
            found = onnx_file.inspect(path)
            assert not (said := refusal(made, path)), said
            onnx_file.compare(path, check({"network": {"name": "onnx", "path": str(path)}}), Tolerance(1e-3, 1e-4))
        except InternalError:
            raise
        except RunnerError as error:
            return error.what
    return "trains" if found["trainable"] else "does not train"


def test_a_changed_field_is_an_error_or_harmless(folder, capsys):
    counts = Counter[str]()
    check_rows(range(COUNT), lambda number: counts.update([outcome(number, folder / "changed.onnx")]))
    if SOAK:
        with capsys.disabled():
            print(f"\n{COUNT} files: {counts.most_common(30)}")
    assert len(counts) > 10
    assert counts["trains"] < COUNT / 2


def test_the_files_without_a_change_train_and_agree_with_onnxruntime(folder):
    for name, made in BASES.items():
        path = saved(folder / "whole.onnx", made)
        onnx.checker.check_model(str(path), full_check=True)
        assert onnx_file.inspect(path)["trainable"], name
        config = check({"network": {"name": "onnx", "path": str(path)}})
        assert onnx_file.compare(path, config, Tolerance(1e-4, 1e-5))["same"], name
