"""`session.enable_exception_dump`: the operator that failed, or whose results are the first that are not finite."""

import numpy as np
import pytest
from spy import MODES

import runner.observe.graph
from runner import nn, ops
from runner.dataset import NumpySlicesDataset
from runner.errors import TrainingError
from runner.host import seed
from runner.observe.dump.dumper import FirstFailure
from runner.train import Model

BAD_ROW = 21  # batches of 8: step 2


class Net(nn.Cell):
    """(N, 4) to logits (N, 3), through a logarithm that fails below 0."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 3)

    def construct(self, x):
        return ops.Log()(self.fc(x) + 1.0)


def fail(tmp_path, name, images, labels):
    seed.set_seed(3)
    net = Net()
    model = Model(
        net,
        nn.SoftmaxCrossEntropyWithLogits(True, "mean"),
        nn.Momentum(net.trainable_params(), 0.1, 0.9),
        mode=MODES[name][0],
        failure=FirstFailure(tmp_path, "net", 0),
    )
    dataset = NumpySlicesDataset((images, labels), shuffle=False).batch(8)
    with pytest.raises(TrainingError) as caught:
        model.train(2, dataset, None, MODES[name][1])
    return caught.value.rows, model


def data():
    noise = np.random.default_rng(0)
    return noise.standard_normal((40, 4)).astype(np.float32), noise.integers(0, 3, 40).astype(np.int32)


@pytest.mark.parametrize("name", MODES)
def test_the_first_result_that_is_not_finite(tmp_path, name):
    images, labels = data()
    images[BAD_ROW] = 1e6 * np.sign(images[BAD_ROW])
    images[BAD_ROW] *= -np.sign(images[BAD_ROW] @ np.ones(4, np.float32))
    rows, _ = fail(tmp_path, name, images, labels)
    assert rows["operator"].endswith("/_backbone-Net/Log-op3")
    assert rows["inputs"] == "all finite"
    assert rows["global step"] == "3"
    assert "test_first_failure.py" in rows["line"]
    assert "return ops.Log()(self.fc(x) + 1.0)" in rows["line"]
    folder = tmp_path / "net" / "0" / "iteration_2"
    files = sorted(file.name.partition("_shape_")[0].partition("Log-op3_")[2] for file in folder.iterdir())
    assert files == ["input_0", "output_0"]
    [given], [made] = (list(folder.glob(f"*_{side}_0_*")) for side in ("input", "output"))
    x, y = (np.fromfile(file, np.float32).reshape(8, 3) for file in (given, made))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(y, np.log(x.astype(np.float64)), rtol=1e-6)
    assert np.isnan(y[BAD_ROW % 8]).any()
    assert (tmp_path / "net" / "0" / "graphs" / "ms_output_trace_code_graph_0.ir").exists()


@pytest.mark.parametrize("name", MODES)
def test_data_that_are_not_finite(tmp_path, name):
    images, labels = data()
    images[BAD_ROW] = np.inf
    rows, _ = fail(tmp_path, name, np.abs(images), labels)
    assert rows["operator"].endswith("/fc-Dense/MatMul-op0")
    assert rows["inputs"] == "input 0 not finite"


@pytest.mark.parametrize("name", MODES)
def test_an_operator_that_cannot_be_computed(tmp_path, name):
    images, labels = data()
    labels[BAD_ROW] = 9
    rows, _ = fail(tmp_path, name, np.abs(images) / 100, labels)
    assert "SparseSoftmaxCrossEntropyWithLogits-op" in rows["operator"]
    assert rows["line"].startswith(__file__)
    assert rows["line"].endswith('nn.SoftmaxCrossEntropyWithLogits(True, "mean"),')  # where the user built the loss
    folder = tmp_path / "net" / "0" / "iteration_2"
    [logits, given] = sorted(folder.iterdir())
    np.testing.assert_array_equal(np.fromfile(given, np.int32), labels[16:24])
    assert np.fromfile(logits, np.float32).shape == (24,)
    left = runner.observe.graph.read(tmp_path / "net" / "0" / "graphs" / "ms_output_trace_code_graph_0.ir")
    names = [operation.full_name for operation in left.subgraphs[0].operations]  # the graph up to the operator
    assert names[-1].rpartition("/")[2] == rows["operator"].rpartition("/")[2]
    (order,) = (tmp_path / "net" / "0" / "execution_order").iterdir()
    assert order.read_text().split()[1:] == names  # below the head


@pytest.mark.parametrize("name", MODES)
def test_a_healthy_training_is_not_changed(tmp_path, name):
    images, labels = data()
    trained = []
    for failure in (None, FirstFailure(tmp_path, "net", 0)):
        seed.set_seed(3)
        net = Net()
        loss = nn.SoftmaxCrossEntropyWithLogits(True, "mean")
        optimizer = nn.Momentum(net.trainable_params(), [0.1, 0.01, 0.05], 0.9)
        model = Model(net, loss, optimizer, mode=MODES[name][0], failure=failure)
        dataset = NumpySlicesDataset((np.abs(images) / 100, labels), shuffle=True).batch(8)
        model.train(2, dataset, None, MODES[name][1])
        trained.append([parameter.array for parameter in model.train_network.get_parameters()])
    for left, right in zip(*trained, strict=True):
        np.testing.assert_array_equal(left, right)
    assert list(tmp_path.iterdir()) == []
