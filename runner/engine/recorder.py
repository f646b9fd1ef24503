"""PyNative mode while somebody looks: it computes as ever, and writes down the graph that the tracer would make."""

from runner.core.graph import Graph
from runner.core.primitive import Node, Primitive
from runner.core.value import Parameter, Symbol, Tensor, Value
from runner.engine.eager import Eager
from runner.engine.tracer import Tracer, symbols
from runner.types import TensorType


class _Named(Tensor):
    """A result that knows its symbol. So the record holds no data, and activations die as early as without it."""

    __slots__ = ("symbol",)
    symbol: Symbol


class Recorder(Eager):
    """`Eager`, with the record of a `Tracer`: symbols, scopes and source lines."""

    def __init__(self, inputs: tuple[Tensor, ...]) -> None:
        super().__init__()
        self._tracer = Tracer()
        self._inputs: dict[Value, Symbol] = {x: Symbol(x.type, f"input{k}") for k, x in enumerate(inputs)}

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, and note it."""
        taped, source = self.tape, self.source()
        made = super().apply(op, inputs, types)
        named = symbols(types, self.count)
        outputs = tuple([_named(y, symbol) for y, symbol in zip(made, named, strict=True)])
        if taped:  # what gradients are formed of, and where it stands
            self.nodes[-1].outputs, self.nodes[-1].source = outputs, source
        operands = tuple([self._symbol(x) for x in inputs])
        self._tracer.nodes.append(Node(op, operands, named, self.where(), self.count, source))
        return outputs

    def assign(self, parameter: Parameter, value: Value) -> None:
        """As in every interpreter; `commit` forgets it, the record does not."""
        super().assign(parameter, value)
        self._tracer.updates[parameter] = self._symbol(value)

    @property
    def noted(self) -> list[Node]:
        """What was applied so far, with symbols."""
        return self._tracer.nodes

    def graph(self, name: str, returned: tuple[Value, ...] = ()) -> Graph:
        """What was computed so far, with these outputs."""
        return self._tracer.graph(name, tuple(self._inputs.values()), tuple([self._symbol(x) for x in returned]))

    def _symbol(self, value: Value) -> Symbol:
        if isinstance(value, _Named):
            return value.symbol
        found = self._inputs[value] if value in self._inputs else self._tracer.lift(value)
        assert isinstance(found, Symbol)
        return found


def _named(value: Value, symbol: Symbol) -> _Named:
    assert isinstance(value, Tensor)
    named = object.__new__(_Named)
    named.type, named._data, named.symbol = value.type, value.data, symbol
    return named
