"""What crosses between host and card in a training; the card is a stand-in (tests/support/stand_in_card.py)."""

import numpy as np
import onnx
import pytest
from stand_in_card import install

import runner
from runner import Model, Tensor, context, nn, set_seed
from runner.compile.onnx.builder import all_graphs
from runner.dataset import open_dataset
from runner.device import Device
from runner.train.callback import Callback

STEPS, BATCH = 12, 32


@pytest.fixture
def card(monkeypatch):
    return install(monkeypatch)


class Losses(Callback):
    def __init__(self):
        self.losses = []

    def step_end(self, run_context):
        self.losses += run_context.original_args().losses.tolist()


def trained(device, sink_size, **how):
    """The model, its losses, and the dataset's columns, after `STEPS` steps; `sink_size` 0: step by step."""
    set_seed(3)
    data = open_dataset(image_size=8, train=True, drop_remainder=True, batch_size=BATCH)
    layers = nn.Conv2d(1, 4, 3, weight_init="he_uniform"), nn.ReLU(), nn.Flatten(), nn.Dense(256, 10)
    net = nn.SequentialCell(*layers)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = Model(net, loss, optimizer, mode=context.GRAPH_MODE, device=device, **how)
    seen = Losses()
    model.train(STEPS // (sink_size or STEPS), data, seen, sink_size > 0, sink_size or -1, max_steps=STEPS)
    return model, seen.losses, data


def test_a_sink_copies_dataset_and_parameters_once_and_is_one_call(card):
    model, losses, data = trained(Device("GPU"), 4)
    assert model.steps.interactions == card.calls == 3
    rows = [array for array in card.uploads if array.dtype == np.int64]
    assert [array.shape for array in rows] == [(4, BATCH)] * 3
    states = [p.name for p in model.train_network.get_parameters() if p.resident is not None]
    columns = [column.shape for column in data.compact()]
    rest = [array.shape for array in card.uploads if array.dtype != np.int64]
    assert rest[: len(columns)] == columns
    assert len(rest) == len(columns) + len(states)
    assert [array.shape for array in card.downloads] == [(4,)] * 3  # losses; parameters remain on the card
    card.forget()
    weight = model.network.trainable_params()[0]
    assert weight.array.shape == card.downloads[0].shape == (4, 1, 3, 3)
    assert len(losses) == STEPS


def test_a_step_copies_its_batch_and_its_loss(card):
    model, _, _ = trained(Device("GPU"), 0)
    states = [p for p in model.train_network.get_parameters() if p.resident is not None]
    assert card.calls == STEPS
    assert len(card.uploads) == len(states) + 2 * STEPS
    assert [array.shape for array in card.downloads] == [()] * STEPS


def test_a_card_computes_what_the_cpu_computes(card):
    _, expected, _ = trained(Device(threads=1), 4)
    for sink_size in (4, 12, 0):
        _, losses, _ = trained(Device("GPU"), sink_size)
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert all(card.deterministic)


@pytest.mark.parametrize(
    ("settings", "how", "expected"),
    [
        ({}, {}, ("0", "0")),
        ({"tf32": True}, {}, ("1", "1")),
        ({}, {"amp_level": "O2"}, ("0", "1")),
        ({"tf32": True}, {"amp_level": "O2"}, ("1", "1")),
    ],
)
def test_the_options_of_a_training(card, settings, how, expected):
    trained(Device("GPU", **settings), 12, **how)
    assert [(given["use_tf32"], given["prefer_nhwc"]) for given in card.options] == [expected]


def test_mixed_precision_leaves_float16_to_the_kernels_of_the_card(card):
    _, losses, _ = trained(Device("GPU"), 12, amp_level="O2")
    assert all(np.isfinite(losses))
    model = onnx.load_model_from_string(card.models[0])
    made = {name: node for graph in all_graphs(model.graph) for node in graph.node for name in node.output}
    convolutions = [node for node in made.values() if node.op_type == "Conv"]
    assert convolutions
    for node in convolutions:
        for name in node.input:
            cast = made.get(name)
            assert cast is None or cast.op_type != "Cast" or cast.attribute[0].i == onnx.TensorProto.FLOAT16


# The options of a run and of a script, on both kinds of cards

LINES = ("dataset=synthetic", "dataset.num_samples=8", "dataset.batch_size=4", "mode=graph", "callbacks=quiet")
OF_GRAPH = {"device_id": "0", "precision_mode": "must_keep_origin_dtype", "dump_om_model": "0"}
FAST, PRECISE = "high_performance", "high_precision"
CUDA = {"device_id": "0", "cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0", "prefer_nhwc": "0"}


@pytest.mark.parametrize(
    ("target", "words", "expected"),
    [
        ("Ascend", (), OF_GRAPH | {"op_select_impl_mode": FAST}),
        ("Ascend", ("device.id=2",), OF_GRAPH | {"op_select_impl_mode": FAST, "device_id": "2"}),
        ("Ascend", ("session.precision_mode=must_keep_origin_dtype",), OF_GRAPH | {"op_select_impl_mode": FAST}),
        ("Ascend", ("session.precision_mode=force_fp32",), OF_GRAPH | {"op_select_impl_mode": FAST}),
        (
            "Ascend",
            ("session.precision_mode=allow_mix_precision", "session.op_select_implmode=high_precision"),
            OF_GRAPH | {"op_select_impl_mode": PRECISE, "precision_mode": "allow_mix_precision"},
        ),
        (
            "Ascend",
            ("session.op_select_implmode=high_precision", "session.optypelist_for_implmode=Pooling"),
            OF_GRAPH | {"op_select_impl_mode": PRECISE, "optypelist_for_implmode": "Pooling"},
        ),
        ("GPU", (), CUDA),
        ("GPU", ("device.tf32=true", "device.id=1"), CUDA | {"use_tf32": "1", "prefer_nhwc": "1", "device_id": "1"}),
        ("GPU", ("session.precision_mode=allow_mix_precision",), CUDA | {"prefer_nhwc": "1"}),
    ],
)
def test_the_options_of_a_run(monkeypatch, tmp_path, caplog, target, words, expected):
    card = install(monkeypatch, target)
    runner.run([*LINES, f"device={target.lower()}", "eval.every=never", *words, f"hydra.run.dir={tmp_path / 'run'}"])
    assert card.options[-1] == expected  # the first session is the probe of the card
    assert not [line for line in caplog.messages if "has no effect" in line]


@pytest.mark.parametrize(
    ("settings", "how", "expected"),
    [
        ({}, {}, "must_keep_origin_dtype"),
        ({"precision_mode": "allow_fp32_to_fp16"}, {}, "must_keep_origin_dtype"),
        ({"precision_mode": "allow_mix_precision"}, {}, "allow_mix_precision"),
        ({"precision_mode": "force_fp32"}, {"precision_mode": "allow_mix_precision"}, "allow_mix_precision"),
        ({}, {"amp_level": "O2"}, "allow_mix_precision"),
    ],
)
def test_the_precision_of_a_script_on_an_npu(monkeypatch, settings, how, expected):
    card = install(monkeypatch, "Ascend")
    context.set_context(device_target="Ascend", mode=context.GRAPH_MODE, **settings)
    for sink_size in (0, 12):
        trained(context.device(), sink_size, **how)
    assert [given["precision_mode"] for given in card.options] == [expected] * 2


def test_the_precision_of_a_cell_that_is_called_on_an_npu(monkeypatch):
    card = install(monkeypatch, "Ascend")
    context.set_context(device_target="Ascend", mode=context.GRAPH_MODE, precision_mode="allow_mix_precision")
    nn.ReLU()(Tensor(np.ones(3, np.float32)))
    assert [given["precision_mode"] for given in card.options] == ["allow_mix_precision"]
