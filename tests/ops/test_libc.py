"""Which operators depend on the C library: what they declare, what they call, and what the design page says."""

import json
import math
import re
import shutil
import subprocess

import libm_calls
import numpy as np
import pytest
from contract import computed
from operands import Sample
from other_processors import ROOT, python
from samples import SAMPLES

from runner.compile.onnx.lower import lower
from runner.core.operators import KERNEL, LOWERING, REGISTRY, Primitive, graph_operator
from runner.core.trace import trace
from runner.ops.elementwise import functions
from runner.types import TensorType

COMPILER = shutil.which("cc") or shutil.which("gcc")
DECLARED = {name: {*kind.depends_on_libc} for name, kind in REGISTRY.items() if not kind.is_users}
DEPENDENT = {name: rules for name, rules in DECLARED.items() if rules}


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_what_operators_call_in_the_c_library(tmp_path):
    """Both libraries call it for some functions, and onnxruntime for the elements that do not fill a vector."""
    (tmp_path / "shim.c").write_text(libm_calls.shim())
    library = tmp_path / "shim.so"
    command = [str(COMPILER), "-fno-builtin", "-O1", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "shim.c")]
    subprocess.run(command, check=True)
    found = json.loads(python(libm_calls.__file__, LD_PRELOAD=str(library)))
    depend = {
        name: {rule for rule, called in rules.items() if {*libm_calls.CHANGED.split()} & {*called}}
        for name, rules in found.items()
    }
    assert {name: rules for name, rules in depend.items() if rules} == DEPENDENT
    assert "log" in found["Log"][KERNEL]  # it counts: this one has the same bits
    assert found["Add"] == {KERNEL: [], LOWERING: []}


# Without a compiler: the names of the functions that numpy's kernels call, and of the nodes.

NODES = {"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Softplus", "Tan"}
UFUNCS = (
    *(np.tan, np.arcsin, np.arccos, np.arctan, np.arctan2, np.sinh, np.cosh, np.arcsinh, np.arccosh, np.arctanh),
    *(np.expm1, np.log1p, np.log10, np.cbrt, np.logaddexp, np.logaddexp2),
)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function, calls: list[str]) -> None:
        self.function, self.calls = function, calls

    def __call__(self, *args, **kwargs):
        self.calls.append(self.function.__name__)
        return self.function(*args, **kwargs)


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """What kernels call of UFUNCS, and of Python's error functions."""
    found: list[str] = []
    for function in UFUNCS:
        monkeypatch.setattr(np, function.__name__, Counted(function, found))
    for kind in REGISTRY.values():
        if (ufunc := kind.__dict__.get("ufunc")) in UFUNCS:
            monkeypatch.setattr(kind, "ufunc", Counted(ufunc, found))
    for name in ("erf", "erfc"):
        monkeypatch.setattr(functions, f"_{name}", np.frompyfunc(Counted(getattr(math, name), found), 1, 1))
    return found


def test_what_kernels_call_in_numpy(calls):
    depend = set()
    for sample in SAMPLES:
        calls.clear()
        with np.errstate(all="ignore"):
            computed(sample.op, sample.arrays)
        depend |= {sample.op.name} if calls else set()
    assert depend == {name for name, rules in DEPENDENT.items() if KERNEL in rules}


def test_what_lowerings_have_as_nodes():
    depend = {sample.op.name for sample in SAMPLES if NODES.intersection(node_types(sample))}
    assert depend == {name for name, rules in DEPENDENT.items() if LOWERING in rules}


def node_types(sample: Sample) -> set[str]:
    graph = trace(sample.op, tuple(map(TensorType.of, sample.arrays)), "one")
    inputs = [f"input{k}" for k in range(len(graph.inputs))]
    model = lower(graph, inputs, [f"output{k}" for k in range(len(graph.outputs))])
    bodies = [a.g for node in model.graph.node for a in node.attribute if a.HasField("g")]
    return {node.op_type for body in (model.graph, *bodies, *model.functions) for node in body.node}


def test_the_page_has_the_operators_of_each_kind():
    """Both ways: an operator that is missing on the page, and one that does not depend on it."""
    text = (ROOT / "docs/design/exactness.md").read_text()
    listed = re.findall(r"^ *\| (?:PyNative mode|graph mode) \|.*$", text, re.MULTILINE)
    found = {line.split("|")[1].strip(): {*re.findall(r"`(\w+)`", line)} for line in listed}
    modes = {"PyNative mode": KERNEL, "graph mode": LOWERING}
    expected = {mode: {name for name, rules in DEPENDENT.items() if rule in rules} for mode, rule in modes.items()}
    assert found == expected


def test_a_users_operator_is_not_trusted():
    """Nobody has looked at its kernel, whatever it says."""

    class Safe(Primitive):
        depends_on_libc = ()

        def infer(self, x):
            return x

    assert graph_operator(Safe).depends_on_libc == (KERNEL, LOWERING)
