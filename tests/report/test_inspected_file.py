"""`runner inspect`: what it prints, and its exit codes."""

import json

import numpy as np
import pytest
from onnx import helper
from onnx_files import classifier, model, saved

from runner import cli


def inspected(capsys, path, *options: str) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.main(["inspect", str(path), *options])
    return code, capsys.readouterr().out


@pytest.fixture
def sampled(tmp_path):
    """Two images sampled in a way that has no rule, the same reason twice, for images of any size."""
    nodes = [helper.make_node("GridSample", ["x", "g"], [f"s{k}"], f"sample{k}", mode="bicubic") for k in range(5)]
    nodes.append(helper.make_node("Sum", [f"s{k}" for k in range(5)], ["s"], "total"))
    nodes.append(helper.make_node("Conv", ["s", "c.weight"], ["y"]))
    arrays = {"c.weight": np.ones((2, 3, 3, 3), np.float32)}
    made = model(nodes, {"x": ["n", 3, "h", "w"], "g": ["n", 4, 4, 2]}, ["y"], arrays)
    return saved(tmp_path / "sampled.onnx", made)


def test_a_file_that_can_be_trained(tmp_path, capsys):
    path = saved(tmp_path / "classifier.onnx", classifier())
    code, text = inspected(capsys, path)
    assert code == 0
    assert text.splitlines()[-2:] == [
        f"can be trained: runner network=onnx network.path={path} dataset=...",
        "  traced, differentiated and lowered for batches of 2 and 3",
    ]
    code, text = inspected(capsys, path, "--json")
    found = json.loads(text)
    assert (code, found["trainable"], found["depends_on_data"]) == (0, True, False)
    assert (found["rows"], found["assumed"], found["reasons"]) == ([2, 3], {}, [])


def test_a_reason_of_several_nodes_is_one(sampled, capsys):
    code, text = inspected(capsys, sampled)
    assert code == 2
    rows = text[text.index("cannot be trained") :].splitlines()
    assert rows == [
        "cannot be trained:",
        "  a setting is not supported",
        "    attribute  mode",
        "    value      bicubic",
        "    allowed    linear, bilinear, nearest",
        "    operator   GridSample, opset 17",
        *(f"    {'' if k else 'nodes':<9}  sample{k}: {sampled}:{k + 1}  GridSample(x, g) -> s{k}" for k in range(3)),
        "               and 2 more",
    ]
    found = json.loads(inspected(capsys, sampled, "--json")[1])
    assert len(found["reasons"][0]["nodes"]) == 5
    assert not found["trainable"]


def test_a_file_of_which_only_data_can_tell(tmp_path, capsys):
    made = classifier((2, 3))
    for axis, name in ((1, "height"), (2, "width")):
        made.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    code, text = inspected(capsys, saved(tmp_path / "free.onnx", made))
    assert code == 2
    start = "only a run can show whether it can be trained, since data decide lengths"
    assert f"{start}; with height = 32, width = 32 it fails:" in text.splitlines()
    assert "inner axes differ" in text


def test_a_file_for_one_batch_size(tmp_path, capsys):
    nodes = [helper.make_node("Gather", ["x", "i"], ["g"], "pick"), helper.make_node("MatMul", ["g", "w"], ["y"])]
    arrays = {"i": np.arange(4), "w": np.ones((3, 2), np.float32)}
    code, text = inspected(capsys, saved(tmp_path / "four.onnx", model(nodes, {"x": [4, 3]}, ["y"], arrays)))
    assert code == 0
    lines = text[text.index("can be trained") :].splitlines()
    assert lines[1:3] == [
        "  traced, differentiated and lowered for batches of 4",
        "  not for batches of another size, so it needs dataset.batch_size:",
    ]
    assert any("pick: " in line for line in lines)


def test_lengths_that_were_assumed(tmp_path, capsys):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=0),
    ]
    arrays = {"w": np.ones((2, 3, 3, 3), np.float32)}
    path = saved(tmp_path / "any.onnx", model(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], arrays))
    code, text = inspected(capsys, path)
    assert code == 0
    wanted = "batches of 2 and 3, and h = 32, w = 32, which the data may have otherwise"
    assert text.splitlines()[-1] == f"  traced, differentiated and lowered for {wanted}"


def test_a_damaged_file(tmp_path, capsys):
    path = tmp_path / "damaged.onnx"
    path.write_bytes(classifier().SerializeToString()[:100])
    assert inspected(capsys, path)[0] == 7
