"""A cell that returns every value of an imported network, to compare them with those of onnxruntime."""

from runner.core.values import Value
from runner.importer.network import OnnxNetwork
from runner.nn.cell import Cell


class AllValues(Cell):
    """Executes an imported network; `names` are those of the values that it returns, node after node."""

    def __init__(self, network: OnnxNetwork) -> None:
        super().__init__()
        self.network = network
        self.names: tuple[str, ...] = ()

    def construct(self, *inputs: Value) -> tuple[Value, ...]:
        """The outputs of all nodes that are computed in a step."""
        values = self.network.values(*inputs)
        written = [name for node in self.network.graph.nodes for name in node.outputs if name in values]
        computed = [name for name in written if isinstance(values[name], Value)]
        self.__dict__["names"] = tuple(computed)
        return tuple(values[name] for name in computed)
