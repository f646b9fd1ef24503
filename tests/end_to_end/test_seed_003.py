"""examples/seed_003.py, shortened: in full it takes half a minute and is run by hand (ten lines, accuracy 0.99)."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MNIST = ROOT.parent / "shared" / "data" / "mnist"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("seed_003", ROOT / "examples" / "seed_003.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not MNIST.is_dir(), reason="needs MNIST in ../shared/data/mnist")
def test_ten_sinks_on_mnist(example, capsys):
    example.main(str(MNIST), sink_size=130)
    started, *lines, testing, result = capsys.readouterr().out.splitlines()
    assert (started.strip("= "), testing.strip("= ")) == ("Starting Training", "Starting Testing")
    assert [line.rpartition(" ")[0] for line in lines] == [f"epoch: {e} step: 130, loss is" for e in range(1, 11)]
    assert float(lines[-1].rpartition(" ")[2]) < 0.6
    assert ast.literal_eval(result)["Accuracy"] > 0.9


def test_it_makes_the_calls_of_the_page():
    """Every name that the page imports or calls stands in the example, in our own words around it."""
    text = (ROOT / "examples" / "seed_003.py").read_text()
    calls = (
        "MnistDataset map shuffle batch repeat Resize Rescale HWC2CHW TypeCast Conv2d Dense TruncatedNormal MaxPool2d"
    )
    calls += " ReLU Reshape SoftmaxCrossEntropyWithLogits Momentum trainable_params Model set_context train LossMonitor"
    assert [name for name in calls.split() if not re.search(rf"\b{name}\(", text)] == []
