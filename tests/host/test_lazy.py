"""Names that are loaded late: when, which, and how they fail. Each case is a process of its own."""

import subprocess
import sys

import pytest


def told(code: str) -> str:
    """What a Python process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("asked", "loaded", "not_loaded"),
    [
        ("runner.ops.Tanh", "runner.ops.activation", "runner.ops.normalization"),
        ("runner.ops.normalization", "runner.ops.normalization", "runner.ops.distributions"),
        ("runner.nn.PReLU", "runner.nn.basic", "runner.nn.head"),
    ],
)
def test_a_name_loads_its_module_and_no_other(asked, loaded, not_loaded):
    package, _, name = asked.rpartition(".")
    lines = told(
        f"import sys, runner\n{asked}\nprint({loaded!r} in sys.modules, {not_loaded!r} in sys.modules)\n"
        f"print({asked} is vars(sys.modules[{package!r}])[{name!r}])"
    )
    assert lines.split() == ["True", "False", "True"]


@pytest.mark.parametrize("package", ["ops", "nn"])
def test_dir_and_star_have_every_public_name(package):
    lines = told(
        f"import runner\nfrom runner import {package} as p\nprint(set(p.__all__) <= set(dir(p)))\n"
        f"from runner.{package} import *\nprint(all(name in globals() for name in p.__all__))"
    )
    assert lines.split() == ["True", "True"]


@pytest.mark.parametrize("wrong", ["runner.ops.MatMull", "runner.nn.Dens"])
def test_an_unknown_name_is_an_attribute_error_with_the_nearest_one(wrong):
    code = f"import runner\n{wrong}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    package, _, name = wrong.rpartition(".")
    expected = f"AttributeError: module '{package}' has no attribute '{name}'. Did you mean: "
    assert expected in done.stderr


def test_arithmetic_of_tensors_needs_no_name_of_an_operator():
    code = "import numpy as np\nfrom runner import Tensor\nx = Tensor(np.ones((2, 2), np.float32))\n"
    assert told(f"{code}print((x @ x + x / x * 0).asnumpy().dtype, (x - 2).asnumpy().sum())").split() == [
        "float32",
        "-4.0",
    ]


def test_what_an_import_makes_is_no_longer_collected_and_what_a_later_call_leaves_is():
    code = """
import gc
from runner.host.lazy import loading
with loading():
    import decimal
first = gc.get_freeze_count()
with loading():
    import decimal
print(first > 0, gc.get_freeze_count() == first, gc.isenabled())
"""
    assert told(code).split() == ["True", "True", "True"]
