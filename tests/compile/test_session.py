"""Sessions: numbers, resident values, and what a user reads when a graph or its values are wrong."""

import gc
import os
import tempfile

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from runner import dtype as dt
from runner.compile import session as sessions
from runner.compile.session import Session
from runner.device import Device
from runner.errors import InternalError, StorageError, TrainingError
from runner.types import TensorType

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs) -> bytes:
    """An ONNX model from nodes and from `name: (element type, shape)`."""
    made = [[helper.make_tensor_value_info(name, *kind) for name, kind in part.items()] for part in (inputs, outputs)]
    graph = helper.make_graph(nodes, "test", *made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def momentum_step() -> bytes:
    """w' = w - v', v' = v + g: two parameters that travel from step to step, and one input."""
    nodes = [helper.make_node("Add", ["v", "g"], ["v2"]), helper.make_node("Sub", ["w", "v2"], ["w2"])]
    kind = (FLOAT, [3])
    return model(nodes, {"w": kind, "v": kind, "g": kind}, {"w2": kind, "v2": kind})


def reshape(name="Default/network-Net/Reshape-op3") -> bytes:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name=name)]
    return model(nodes, {"x": (FLOAT, [4]), "s": (INT64, [1])}, {"y": (FLOAT, ["n"])})


# Numbers


def test_what_a_session_knows_of_its_model():
    session = Session(momentum_step(), Device())
    kind = TensorType(dt.float32, (3,))
    assert session.inputs == {"w": kind, "v": kind, "g": kind}
    assert list(session.outputs.items()) == [("w2", kind), ("v2", kind)]
    assert session.providers == ("CPUExecutionProvider",)
    assert session.optimization_level == "ORT_ENABLE_ALL"
    assert Session(momentum_step(), Device(), optimize=False).optimization_level == "ORT_DISABLE_ALL"
    assert (session.notes, session.assignment) == ([], {})


def test_every_element_type_and_an_open_axis():
    kinds = {t: helper.np_dtype_to_tensor_dtype(t.numpy) for t in dt.ALL}
    nodes = [helper.make_node("Identity", [t.name], [t.name + "2"]) for t in kinds]
    ends = [{t.name + end: (kind, ["n", 2]) for t, kind in kinds.items()} for end in ("", "2")]
    session = Session(model(nodes, *ends), Device())
    assert list(session.inputs.values()) == [TensorType(t, (-1, 2)) for t in kinds]
    feeds = {t.name: np.ones((3, 2), t.numpy) for t in kinds}
    out = session.run(feeds)
    assert [(array.dtype, array.shape) for array in out.values()] == [(t.numpy, (3, 2)) for t in kinds]


def test_run_by_name():
    w, v, g = (np.full(3, x, np.float32) for x in (5, 1, 2))
    out = Session(momentum_step(), Device()).run({"g": g, "w": w, "v": v})
    assert {name: array.tolist() for name, array in out.items()} == {"w2": [2, 2, 2], "v2": [3, 3, 3]}


def test_an_array_in_another_memory_order():
    rows = np.arange(4, dtype=np.float32).reshape(2, 2)
    session = Session(
        model([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, [2, 2])}, {"y": (FLOAT, [2, 2])}), Device()
    )
    assert session.run({"x": rows.T})["y"].tolist() == [[0, -2], [-1, -3]]


def test_a_scalar_keeps_its_shape():
    session = Session(model([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, [])}, {"y": (FLOAT, [])}), Device())
    assert session.run({"x": np.array(2, np.float32)})["y"].shape == ()


def test_threads_come_from_the_device_or_from_the_affinity(monkeypatch):
    used = []
    real = onnxruntime.InferenceSession

    def opened(content, options, **rest):
        used.append((options.intra_op_num_threads, options.inter_op_num_threads))
        return real(content, options, **rest)

    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    for threads in (0, 1):
        Session(momentum_step(), Device(threads=threads))
    assert used == [(len(os.sched_getaffinity(0)), 1), (1, 1)]


# Resident values


def card_on_host(monkeypatch):
    """Sessions that keep their values as a card does, in the memory of the CPU."""
    monkeypatch.setattr(sessions, "_HostMemory", lambda session: sessions._DeviceMemory(session, Device()))


@pytest.mark.parametrize("memory", ["host", "card"])
def test_parameters_travel_and_no_result_is_overwritten(monkeypatch, memory):
    if memory == "card":
        card_on_host(monkeypatch)
    session = Session(momentum_step(), Device())
    state = [session.put(np.zeros(3, np.float32)) for _ in range(2)]
    one = session.put(np.ones(3, np.float32))
    kept = []
    for _ in range(50):
        state = session.step([*state, one])
        kept.append(session.fetch(state[0]))
    assert [array[0] for array in kept] == [-n * (n + 1) / 2 for n in range(1, 51)]
    del session, state, one
    gc.collect()
    assert kept[-1].tolist() == [-1275] * 3  # results outlive their session


def test_nothing_is_copied_on_the_cpu():
    session = Session(momentum_step(), Device())
    array = np.zeros(3, np.float32)
    assert session.put(array) is array
    results = session.step([array, array, array])
    assert session.fetch(results[0]) is results[0]


def test_run_takes_resident_values(monkeypatch):
    card_on_host(monkeypatch)
    session = Session(momentum_step(), Device())
    ones = np.ones(3, np.float32)
    assert session.run({"w": session.put(ones), "v": ones, "g": ones})["w2"].tolist() == [-1, -1, -1]


# Errors of graphs and feeds


def test_a_file_that_is_no_model():
    with pytest.raises(InternalError) as caught:
        Session(b"garbage", Device())
    assert str(caught.value) == (
        "InternalError: onnxruntime rejected the graph\n"
        "  device  CPU\n"
        "  reason  Failed to load model because protobuf parsing failed."
    )


def test_a_graph_with_an_unknown_operator():
    node = helper.make_node("Nope", ["x"], ["y"], name="Default/network-Net/Nope-op1")
    with pytest.raises(InternalError) as caught:
        Session(model([node], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}), Device())
    assert str(caught.value) == (
        "InternalError: onnxruntime rejected the graph\n"
        "  operator  Default/network-Net/Nope-op1\n"
        "  device    CPU\n"
        '  reason    This is an invalid model. In Node, ("Default/network-Net/Nope-op1", Nope, "", -1) : '
        '("x": tensor(float),) -> ("y": tensor(float),) , Error No Op registered for Nope with domain_version of 17'
    )


def test_an_operator_that_fails_is_named(capfd):
    session = Session(reshape(), Device())
    with pytest.raises(TrainingError) as caught:
        session.step([np.ones(4, np.float32), np.array([3])])
    assert list(caught.value.rows) == ["operator", "device", "reason"]
    assert caught.value.rows["operator"] == "Default/network-Net/Reshape-op3"
    assert caught.value.rows["reason"].startswith(
        "Non-zero status code returned while running Reshape node. Name:'Default/network-Net/Reshape-op3' Status"
    )
    assert capfd.readouterr() == ("", "")  # the library prints nothing beside the exception


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            [np.ones(5, np.float32), np.array([4])],
            "InternalError: a value does not match its input\n"
            "  input     x\n"
            "  expected  Float32[4]\n"
            "  given     Float32[5]",
        ),
        (
            [np.ones(4), np.array([4])],
            "InternalError: a value does not match its input\n"
            "  input     x\n"
            "  expected  Float32[4]\n"
            "  given     Float64[4]",
        ),
        (
            [np.ones(4, np.float32)],
            "InternalError: a step received a wrong number of values\n  given   1\n  inputs  2",
        ),
    ],
)
def test_values_that_do_not_fit(values, text):
    with pytest.raises(InternalError) as caught:
        Session(reshape(), Device()).step(values)
    assert str(caught.value) == text


def test_feeds_with_a_wrong_name():
    with pytest.raises(InternalError) as caught:
        Session(reshape(), Device()).run({"x": np.ones(4, np.float32), "t": np.array([4])})
    assert (
        str(caught.value) == "InternalError: feeds do not match the inputs of the graph\n  given   x, t\n  inputs  x, s"
    )


def test_without_a_temporary_directory(monkeypatch, tmp_path):
    """As in a container whose disk cannot be written: only what needs a directory is refused."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with sessions.capture_output() as captured:
        os.write(1, b"printed")
    assert captured.text == "printed"
    with pytest.raises(StorageError, match="there is no temporary directory to write to") as caught:
        sessions.temporary_folder("runner-profile-")
    assert caught.value.rows["repair"] == "TMPDIR=DIRECTORY, one that can be written"
