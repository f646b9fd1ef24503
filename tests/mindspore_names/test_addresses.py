"""Module paths and names of MindSpore r1.2, as scripts import them, and the errors for what runner does not have."""

import importlib
import subprocess
import sys

import pytest
from tables import table

import runner
from runner.errors import MissingModule, MissingName
from runner.mindspore.addresses import ADDRESSES, coverage
from runner.mindspore.names import public_names


def test_every_address_can_be_imported_and_has_names():
    for path, homes in ADDRESSES.items():
        module = importlib.import_module(f"runner.{path}")
        assert module.__name__ == f"runner.{path}"
        assert module.__spec__.origin is None, "a file has this path"
        for home in homes:
            served = importlib.import_module(home)
            for name in getattr(served, "__all__", ()):
                assert getattr(module, name) is not None, f"{path}.{name}"


def test_imports_of_a_script():
    """In a process of its own, in which nothing else has loaded these modules."""
    script = """
import runner
assert runner.ops.operations.Conv2D is runner.ops.Conv2D
assert runner.common.tensor.Tensor is runner.Tensor
assert runner.train.serialization.load_checkpoint is runner.load_checkpoint
from runner.ops import functional as F, composite as C, operations as P
import runner.common.dtype as mstype
from runner.common import dtype, set_seed
from runner.nn.layer.conv import Conv2d
from runner.communication.management import init, get_rank, get_group_size, GlobalComm
from runner.train import load_checkpoint
from runner.train.amp import FixedLossScaleManager
from runner import log as logger
from runner.parallel._auto_parallel_context import auto_parallel_context
from runner._checkparam import Validator
assert mstype.float32 is dtype.float32 is runner.float32
assert Conv2d is runner.nn.Conv2d and C.clip_by_value is runner.ops.clip_by_value
assert load_checkpoint is runner.load_checkpoint
assert not hasattr(runner.nn, "ActQuant")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


ERRORS = {
    "an operator of the name of a layer": ("import runner.ops as ops; ops.LSTM", MissingName, "nn.LSTM"),
    "a quantization layer": ("from runner.nn import ActQuant", MissingModule, "quantization"),
    "an attribute": ("import runner.nn as nn; nn.DenseThor", MissingName, "THOR"),
    "below an address": ("from runner.nn.layer.conv import Conv2dThor", MissingModule, "nn.Momentum"),
    "a parameter server": ("from runner.context import set_ps_context", MissingModule, "set_auto_parallel_context"),
    "a group of ranks": ("from runner.communication.management import create_group", MissingModule, "AllReduce"),
    "a module": ("import runner.nn.probability", MissingModule, "generators in a dataset"),
    "a name of it": ("from runner.nn.probability import bijector", MissingModule, "generators in a dataset"),
    "a function that is imported and seldom used": ("from runner.nn.optim import thor; thor()", MissingName, "THOR"),
    "a class that is imported and seldom used": (
        "from runner.train.train_thor import ConvertModelUtils; ConvertModelUtils()",
        MissingName,
        "THOR",
    ),
}


@table(("statement", "kind", "text"), ERRORS.values())
def test_what_is_missing_is_explained(statement, kind, text):
    with pytest.raises(kind) as caught:
        exec(statement, {})
    assert "mindspore" in str(caught.value)
    assert text in str(caught.value)


def test_every_missing_name_has_a_reason():
    found = list(coverage())
    assert [f"{one.title}.{name}" for one in found for name, why in one.missing.items() if not why] == []
    assert sum(len(one.present) for one in found) > 800


def test_other_names_are_no_names_of_mindspore():
    with pytest.raises(AttributeError, match=r"module 'runner\.nn' has no attribute 'Conv2D'"):
        _ = runner.nn.Conv2D
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'runner\.nonsense'"):
        importlib.import_module("runner.nonsense")
    assert not hasattr(runner.ops, "__wrapped__")


def test_names_of_the_release_stand_once_in_their_module():
    for module, names in public_names().items():
        assert len(names) == len(set(names)), module
    assert {"Tensor", "Model"} <= set(public_names()[""])
