"""`kernel_meta/`: the models that a device runs and their origin (`session.op_debug_level`)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from runner import rundir
from runner.compile.onnx.builder import all_graphs, source_operators
from runner.core.graph import Graph, GraphObserver
from runner.core.operators import Node
from runner.core.source import user_line
from runner.core.values import Value
from runner.host.files import make_directory, remove, storage_errors, write_atomically, write_json

_WITH_LOCATIONS, _AS_TRACED, _WITH_GROUPS = (1, 2), 2, 4  # levels


class KernelMeta(GraphObserver):
    """Writes the files of one level. Raises StorageError when the folder cannot be written.

    With `replaces`, the first file replaces those of the process whose run is resumed.
    """

    records_steps = True

    def __init__(self, folder: Path, level: int, replaces: bool = False) -> None:
        self.folder, self.level, self._replaces = make_directory(folder), level, replaces
        self.disables_optimization = level == _AS_TRACED
        self._taken: Counter[str] = Counter()
        self._model: Any = None

    def compiled(self, graph: Graph, model: Any) -> None:
        """Keep the model until the program is known to run or to fail."""
        self._model = model

    def executed(self, graph: Graph) -> None:
        model, self._model = self._model, None
        if self._replaces:
            self._replaces = False
            self._remove_earlier()
        name = self._name(graph.name)
        kernels = [] if model is None else _kernels(model.graph)
        header = {"program": name, "model": None if model is None else f"{name}.onnx"}
        if model is not None:
            write_atomically(self.folder / f"{name}.onnx", model.SerializeToString(deterministic=True))
        write_json(self.folder / f"{name}.json", header | {"operators": _operators(graph, kernels)})
        if self.level in _WITH_LOCATIONS:
            write_json(self.folder / f"{name}_loc.json", header | _locations(graph, kernels))
        if self.level == _WITH_GROUPS:
            self._groups(name, kernels, graph)

    def failed(self, graph: Graph) -> None:
        """Write the files of a model that failed as well: they are needed to find the reason."""
        if self._model is not None:
            self.executed(graph)

    def _remove_earlier(self) -> None:
        with storage_errors("cannot remove an earlier kernel file", self.folder):
            for path in [path for path in self.folder.iterdir() if rundir.is_kernel_file(path)]:
                remove(path)

    def _groups(self, program: str, kernels: Sequence[Any], graph: Graph) -> None:
        nodes = {node.name: node for node in graph.all_nodes}
        for kernel in kernels:
            names = source_operators(kernel)
            if len(names) > 1:
                operators = [_operator(nodes[name]) for name in names if name in nodes]
                content = {"kernel": kernel.name, "type": kernel.op_type, "operators": operators}
                # Without the scopes: file names are limited to 255 bytes.
                short = kernel.name[kernel.name.rfind("/", 0, kernel.name.rfind("-op")) + 1 :].replace("/", "--")
                write_json(self.folder / f"{self._name(f'{program}--{short}')}_compute.json", content)

    def _name(self, name: str) -> str:
        plain = name.replace("/", "--")
        self._taken[plain] += 1
        return plain if self._taken[plain] == 1 else f"{plain}_{self._taken[plain] - 1}"


def _kernels(graph: Any) -> list[Any]:
    """The nodes of a model in order; the Scan of a sink, its only node, is replaced by the nodes of its body."""
    return [node for inner in all_graphs(graph) for node in inner.node if node.op_type != "Scan"]


def _locations(graph: Graph, kernels: Sequence[Any]) -> dict[str, Any]:
    listed = [{"kernel": k.name, "type": k.op_type, "operators": list(source_operators(k))} for k in kernels]
    return {"kernels": listed, "operators": {node.name: _location(node) for node in (*graph.all_nodes, *graph.effects)}}


def _location(node: Node) -> dict[str, Any]:
    line = user_line(node.source)
    return {} if line is None else {"file": line.file, "line": line.number, "source": line.text}


def _operators(graph: Graph, kernels: Sequence[Any]) -> list[dict[str, Any]]:
    kernels_of: Mapping[str, list[str]] = defaultdict(list)
    for kernel in kernels:
        for name in source_operators(kernel):
            kernels_of[name].append(kernel.name)
    return [_operator(node) | {"kernels": kernels_of[node.name]} for node in (*graph.all_nodes, *graph.effects)]


def _operator(node: Node) -> dict[str, Any]:
    return {
        "full_name": node.name,
        "op_type": node.op.name,
        "attributes": {f.name: _plain(getattr(node.op, f.name)) for f in fields(node.op)},
        "inputs": [_type(x) for x in node.inputs],
        "outputs": [_type(x) for x in node.outputs],
        "form": None if node.lowering is None else node.lowering.name,
    }


def _type(value: Value) -> dict[str, Any]:
    return {"dtype": str(value.type.dtype), "shape": list(value.type.shape)}


def _plain(value: object) -> object:
    """An attribute as JSON, or as text where JSON has no such value."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return str(value)
