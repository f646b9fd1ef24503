"""The content of an ONNX model as plain records: nodes, initializers as numpy arrays, inputs and outputs."""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from runner import dtype as dt


@dataclass(frozen=True)
class OnnxValue:
    """An input or output: its name, element type, and lengths, where a symbolic one is a text."""

    name: str
    dtype: dt.DType | None
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        lengths = "unknown shape" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.name}: {self.dtype or 'unknown type'}{lengths}"


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """A node. `number` counts from 1 in the order of the file; "" in `inputs` is one that is left out.

    `layer` is the path of the layer that it comes from, where the exporter noted it.
    """

    name: str
    op_type: str
    domain: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    number: int
    layer: str = ""

    @property
    def operator(self) -> str:
        """The operator with its domain, if it is not that of ONNX."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def graphs(self) -> tuple["OnnxGraph", ...]:
        """The graphs among the attributes: the branches of If, the body of Loop."""
        return tuple(value for value in self.attributes.values() if isinstance(value, OnnxGraph))

    @property
    def reads(self) -> set[str]:
        """The names that it reads, also those that its graphs read from outside."""
        inner = [name for graph in self.graphs for name in graph.captures]
        return {name for name in (*self.inputs, *inner) if name}

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """A graph: its nodes are in an order in which each reads what earlier ones write."""

    name: str
    nodes: tuple[OnnxNode, ...]
    initializers: Mapping[str, np.ndarray]
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[OnnxValue, ...]
    weights: Collection[str] = ()  # initializers of the file; other ones come from Constant nodes
    files: tuple[Path, ...] = ()  # with external data

    @property
    def captures(self) -> set[str]:
        """The names that it reads from the graph around it."""
        written = {name for node in self.nodes for name in node.outputs} | self.initializers.keys()
        written |= {value.name for value in self.inputs}
        read = {name for node in self.nodes for name in node.reads} | {value.name for value in self.outputs}
        return read - written

    def all_nodes(self) -> list[OnnxNode]:
        """The nodes, and those of the graphs inside of them."""
        found = []
        for node in self.nodes:
            found += [node, *(inner for graph in node.graphs for inner in graph.all_nodes())]
        return found

    def pruned(self, output: str) -> "OnnxGraph":
        """The part of which an output is computed."""
        needed, kept = {output}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed |= node.reads
        arrays = {name: array for name, array in self.initializers.items() if name in needed}
        outputs = tuple(value for value in self.outputs if value.name == output)
        inputs = tuple(value for value in self.inputs if value.name in needed)
        return replace(self, nodes=tuple(reversed(kept)), initializers=arrays, inputs=inputs, outputs=outputs)

    def without_initializers(self, names: Container[str]) -> "OnnxGraph":
        """The graph without these arrays, which are held elsewhere."""
        return replace(self, initializers={name: x for name, x in self.initializers.items() if name not in names})
