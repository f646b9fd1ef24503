"""Attributes and opsets: what a rule does not know is refused by name, never ignored."""

import numpy as np
import onnx
import pytest
from both_modes import step_of
from one_node import Constant, node, refused
from onnx import helper
from onnx_files import model, saved

from runner.core.values import Value
from runner.errors import ConfigError
from runner.importer import refusals
from runner.importer.network import OnnxNetwork
from runner.importer.node_call import RULES, NodeCall, onnx_operator

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def rule_that_ignores(monkeypatch):
    """A rule of LeakyRelu that forgets `alpha`, as a mistake would."""
    monkeypatch.delitem(RULES, "LeakyRelu")

    @onnx_operator("LeakyRelu")
    def leaky(call: NodeCall, x: Value) -> Value:
        return x * 1.0

    yield
    del RULES["LeakyRelu"]


@pytest.mark.usefixtures("rule_that_ignores")
def test_an_attribute_that_a_rule_does_not_read_is_refused(tmp_path):
    error = refused(node("LeakyRelu", X, alpha=0.5), tmp_path)
    assert error.what == "an attribute is not supported"
    assert (error.rows["attribute"], error.rows["value"], error.rows["node"]) == ("alpha", "0.5", "node")
    assert error.rows["operator"] == "LeakyRelu, opset 18"
    row = node("LeakyRelu", X, alpha=0.01)  # what ONNX has without it
    path = row.write(tmp_path)
    assert row.network(path).run("pynative").shape == X.shape


@pytest.mark.parametrize(
    ("operator", "attributes", "attribute", "hint"),
    [
        ("MaxPool", {"kernel_shape": [2, 2], "strIdes": [2, 2]}, "strIdes", "strides"),
        ("Relu", {"alpha": 0.5}, "alpha", None),
        ("Softmax", {"axes": 1}, "axes", "axis"),
        ("TopK", {"largest_first": 1}, "largest_first", "largest"),
    ],
)
def test_an_attribute_that_onnx_does_not_have_is_refused(operator, attributes, attribute, hint, tmp_path):
    """A misspelt one would be one that is left out."""
    made = model([helper.make_node(operator, ["x"], ["y"], name="layer", **attributes)], {"x": (1, 1, 4, 4)}, ["y"], {})
    with pytest.raises(ConfigError, match="ONNX declares no such attribute of an operator") as caught:
        OnnxNetwork(str(saved(tmp_path / "model.onnx", made)), logits=False)
    assert (caught.value.rows["node"], caught.value.rows["attribute"]) == ("layer", attribute)
    assert hint is None or hint in caught.value.rows["allowed"]


def test_an_attribute_of_a_later_opset_is_refused(tmp_path):
    """`noop_with_empty_axes` of ReduceMean came with opset 18."""
    made = model([helper.make_node("ReduceMean", ["x"], ["y"], noop_with_empty_axes=1)], {"x": (3, 4)}, ["y"], {}, 13)
    with pytest.raises(ConfigError, match="no such attribute") as error:
        OnnxNetwork(str(saved(tmp_path / "model.onnx", made)))
    assert error.value.rows["operator"] == "ReduceMean, opset 13"


@pytest.mark.parametrize(
    "row",
    [
        node("Cast", X, to=1, saturate=0, opset=19),
        node("LayerNormalization", X, np.ones(4, np.float32), stash_type=10),
        node("TopK", X, Constant(np.array([2])), sorted=0, outputs=2, ints=(1,)),
    ],
    ids=lambda row: row.operator,
)
def test_attributes_without_an_effect_here_are_not_refused(row, tmp_path):
    assert row.network(row.write(tmp_path)).run("pynative").dtype == np.float32


def test_what_has_no_effect_is_an_attribute_of_onnx():
    for operator, rule in RULES.items():
        if rule.without_effect:
            assert rule.without_effect <= onnx.defs.get_schema(operator).attributes.keys(), operator


def test_an_opset_that_onnx_does_not_know_is_refused(tmp_path):
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (3, 4)}, ["y"], {})
    made.opset_import[0].version = 999
    with pytest.raises(ConfigError, match="the opset of an ONNX file is too new") as caught:
        OnnxNetwork(str(saved(tmp_path / "model.onnx", made)))
    assert caught.value.rows["opset"] == "999"
    assert f"9 to {onnx.defs.onnx_opset_version()}" in caught.value.rows["allowed"]


def test_an_operator_that_onnx_changed_since_is_refused_by_name(tmp_path, monkeypatch):
    """As if the rules were older: Gelu came with opset 20, and Relu has not changed since 14."""
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Gelu", ["h"], ["y"], name="last")]
    path = saved(tmp_path / "model.onnx", model(nodes, {"x": (3, 4)}, ["y"], {}, 20))
    assert step_of(OnnxNetwork(str(path)).construct, "pynative")(X)[0].shape == X.shape
    monkeypatch.setattr(refusals, "NEWEST_OPSET", 19)
    with pytest.raises(ConfigError, match="newer than their rules") as caught:
        OnnxNetwork(str(path))
    assert caught.value.rows["nodes"] == "last: Gelu, opset 20"
