"""Pictures: Graphviz accepts them, all operations and edges are in them, and large graphs stay small."""

import json
import re
import shutil
import subprocess

import pytest
from patience import PATIENCE
from step_graphs import step_graph, tiny_graph

from runner.compile.onnx.describe import describe_model
from runner.compile.onnx.lower import lower
from runner.compile.passes import default_passes, optimize
from runner.device import Device
from runner.observe.graph.listing import describe
from runner.observe.graph.pictures import MAX_BOXES, MAX_OPERATIONS, dot

needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


def drawn(text: str) -> dict:
    """What Graphviz understands: names of nodes and frames, and edges, in its plain JSON."""
    done = subprocess.run(
        ["dot", "-Tdot_json"], input=text, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def lowered(name):
    graph = optimize(step_graph(name), default_passes(Device()))
    return describe_model(lower(graph, ("image", "label"), ("loss",)), graph, 0)


LISTINGS = {
    "tiny": lambda: describe(tiny_graph()),
    "lenet": lambda: describe(step_graph("lenet")),
    "lenet placed": lambda: describe(optimize(step_graph("lenet"), default_passes(Device()))),
    "lenet lowered": lambda: lowered("lenet"),
    "resnet18": lambda: describe(step_graph("resnet18")),
}


@needs_graphviz
@pytest.mark.parametrize("name", LISTINGS)
def test_graphviz_accepts_it(name):
    listing = LISTINGS[name]()
    made = drawn(dot(listing))
    operations = listing.subgraphs[0].operations
    nodes = [o for o in made["objects"] if "nodes" not in o and "subgraphs" not in o]
    tables = [o for o in nodes if o["label"].startswith("<table") or "<b>" in o["label"]]
    if len(operations) <= MAX_OPERATIONS:
        assert len(tables) == len(operations)
    else:
        assert len(tables) <= MAX_BOXES
        counted = sum(int(n) for table in tables for n in re.findall("\N{MULTIPLICATION SIGN}(\\d+)", table["label"]))
        assert counted == len(operations)
    for edge in made["edges"]:
        assert {edge["tail"], edge["head"]} <= {o["_gvid"] for o in nodes}


def test_every_computed_operand_has_an_edge():
    listing = describe(step_graph("lenet"))
    text = dot(listing)
    data = {p.reference for p in listing.parameters if not p.is_weight}
    for operation in listing.subgraphs[0].operations:
        for k, operand in enumerate(operation.operands):
            name = operand if operand in data else operand.strip("%").partition("[")[0]
            port = "" if operand in data else ":core"
            edge = f'"g0/{name}"{port} -> "g0/{operation.number}":{k}:n'
            assert (edge in text) == (operand.startswith("%") and (operand in data or not operand.startswith("%para")))


def test_cells_are_frames_and_weights_stand_in_their_operations():
    text = dot(describe(tiny_graph()))
    assert re.findall(r'^label="(.*?)"', text, re.MULTILINE) == ["tiny.0", "Default", "fc-Dense", "relu-ReLU"]
    assert text.count("fc.weight Float32[2, 3]") == 1
    assert "Float32[]{0.5}" in text


def test_what_html_and_dot_know_is_escaped():
    listing = describe(tiny_graph())
    entry = listing.subgraphs[0]
    odd = entry.operations[0]._replace(attributes=(("text", '"<b> & "'),))
    text = dot(listing._replace(subgraphs=(entry._replace(operations=(odd, *entry.operations[1:])),)))
    assert "text &quot;&lt;b&gt; &amp; &quot;" in text


@needs_graphviz
def test_a_wrong_picture_is_refused():
    """The oracle can fail."""
    with pytest.raises(subprocess.CalledProcessError):
        drawn(dot(describe(tiny_graph())).replace("]\n", "\n", 1))
