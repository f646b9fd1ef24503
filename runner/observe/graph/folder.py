"""The folder of `save_graphs`: every stage of every program, and the executed graph.

    NN_stage_XXXX.ir, .dot, .svg                             as traced, differentiated, after each pass, lowered
    trace_code_graph_G.ir                                    the executed graph
    ms_output_trace_code_graph_G.pb                          the same in MindSpore's protobuf
    execution_order/ms_execution_order_graph_G.csv           full names in the order of execution

NN counts the stages of a program, XXXX the stages of all programs that are saved into the folder, G the programs. A
stage that changed nothing is not written. Images (.svg) require Graphviz or the extra `viz`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from runner.core.graph import Graph, GraphObserver
from runner.core.operators import Node
from runner.errors import ConfigError, StorageError
from runner.host.console import LOG
from runner.host.files import make_directory, remove, storage_errors, write_atomically
from runner.observe.graph.listing import Listing, describe, text
from runner.observe.graph.pictures import dot
from runner.observe.graph.proto import proto

# The folder of `save_graphs_path`: the names of the files in it, and its checks.

FAILED = "analyze_fail.ir"
FILES = (  # patterns of what is written
    *(f"[0-9][0-9]_*_[0-9][0-9][0-9][0-9].{suffix}" for suffix in ("ir", "dot", "svg")),
    *("trace_code_graph_*.ir", "ms_output_trace_code_graph_*.pb", "execution_order/ms_execution_order_graph_*.csv"),
    FAILED,
)


def check_folder(folder: Path) -> None:
    """Raise ConfigError if a folder cannot be created because it, or one above it, is a file."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise ConfigError("save_graphs_path is a file", value=folder, file=place, allowed="a folder")


def writable_folder(folder: Path) -> Path:
    """A writable folder, created if necessary. Raises ConfigError for a file and StorageError."""
    check_folder(folder)
    make_directory(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError("save_graphs_path is not writable", path=folder)
    return folder


# What is written into it.

ORDER_HEADER = "NodeExecutionOrder-FullNameWithScope"
RENDERERS = "dot", "graphviz-pure"  # the second one is part of the extra `viz`
DOT_SECONDS = 20


class GraphFolder(GraphObserver):
    """Writes every observed graph; a graph that failed is written to the folder `failures`.

    With `replaces`, the first file replaces those of the process whose run is resumed. Raises ConfigError when the path
    is a file, StorageError when it cannot be written.
    """

    records_steps = True

    def __init__(self, folder: Path, failures: Path | None = None, replaces: bool = False) -> None:
        self.folder, self.failures = writable_folder(folder), failures or folder
        self.written = self.programs = self.stages = 0
        self._last = ""
        self._replaces = replaces

    def traced(self, graph: Graph) -> None:
        """Write `parse`, the forward graph of the network, and `grad`, the whole step."""
        self.stage("parse", forward(graph))
        self.stage("grad", graph)

    def stage(self, name: str, graph: Graph) -> None:
        """Write a stage if it differs from the last one."""
        self.write(name, describe(graph, self.programs))

    def lowered(self, graph: Graph, describe: Callable[[int], object]) -> None:
        """Write the ONNX model, in the order of its nodes."""
        self.write("lower", cast(Listing, describe(self.programs)))

    def executed(self, graph: Graph) -> None:
        """Write the executed graph as text, protobuf and execution order; the program is complete."""
        number = self.programs
        self._save(f"trace_code_graph_{number}.ir", text(describe(graph, number)))
        self._save(f"ms_output_trace_code_graph_{number}.pb", proto(graph))
        write_order(self.folder, number, (*graph.nodes, *graph.effects))
        self._next_program()

    def failed(self, graph: Graph) -> None:
        """Write the graph that could not be compiled or run."""
        write_failed(self.failures, graph, self.programs)
        self._next_program()

    def write(self, name: str, listing: Listing) -> None:
        """Write one stage as text and as a drawing."""
        printed = text(listing)
        if printed != self._last:
            stem = f"{self.stages:02}_{name}_{self.written:04}"
            self._save(f"{stem}.ir", printed)
            self._save(f"{stem}.dot", dot(listing))
            self._render(stem)
            self.written, self.stages, self._last = self.written + 1, self.stages + 1, printed

    def _next_program(self) -> None:
        self.programs, self.stages, self._last = self.programs + 1, 0, ""

    def _save(self, name: str, content: str | bytes) -> None:
        if self._replaces:
            self._replaces = False
            _remove_earlier(self.folder)
        write_atomically(self.folder / name, content)

    def _render(self, stem: str) -> None:
        """Write the image. A renderer that is missing or fails does not fail the run."""
        program = next(filter(None, map(shutil.which, RENDERERS)), None)
        if program is None:
            return
        command = [program, "-Tsvg", str(self.folder / f"{stem}.dot")]
        try:
            done = subprocess.run(command, capture_output=True, timeout=DOT_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as reason:
            LOG.warning("%s.dot could not be rendered: %s", stem, reason)
        else:
            self._save(f"{stem}.svg", done.stdout)


def write_order(folder: Path, number: int, nodes: Iterable[Node]) -> list[str]:
    """Write `execution_order/` of a graph; returns the full names of the nodes."""
    names = [node.name for node in nodes]
    path = make_directory(folder / "execution_order") / f"ms_execution_order_graph_{number}.csv"
    write_atomically(path, "\n".join([ORDER_HEADER, *names]) + "\n")
    return names


def _remove_earlier(folder: Path) -> None:
    """Remove the files of the process whose run is resumed: they may have other numbers."""
    with storage_errors("cannot remove an earlier graph", folder):
        for pattern in FILES:
            for path in list(folder.glob(pattern)):
                remove(path)


def write_failed(folder: Path, graph: Graph, number: int = 0) -> None:
    """Write `analyze_fail.ir`, a graph that could not be traced, transformed or run.

    A StorageError is suppressed: it would replace the original error.
    """
    with suppress(StorageError):
        write_atomically(folder / FAILED, text(describe(graph, number)))


def forward(graph: Graph) -> Graph:
    """The forward graph: the nodes before the first gradient, or the graph itself when there is none."""
    first = next((k for k, node in enumerate(graph.nodes) if node.scope.startswith("Gradients/")), None)
    if first is None:
        return graph
    nodes = graph.nodes[:first]
    known = {y for node in nodes for y in node.outputs}.union(graph.inputs, graph.parameters.values(), graph.constants)
    updates = {p: s for p, s in graph.updates.items() if s in known}
    used = {x for node in nodes for x in node.inputs}.union(graph.outputs)
    return replace(
        graph,
        nodes=nodes,
        parameters={p: s for p, s in graph.parameters.items() if s in used or p in updates},
        constants={s: a for s, a in graph.constants.items() if s in used},
        outputs=tuple([s for s in graph.outputs if s in known]),
        updates=updates,
        effects=tuple([e for e in graph.effects if known.issuperset(e.inputs)]),
    )
