"""`x[key] = v` gives a value that has been used other elements, while the record keeps the former ones.

The user's object stands for the new value from then on. In the record of nodes, whose gradient rules read operands, a
new handle takes its former place.
"""

from runner.core.tape import Recording
from runner.core.value import Value


class Rebinding(Recording):
    """The part of an interpreter that replaces values; `originals` has the first handle of each one replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.originals: dict[Value, Value] = {}

    def rebind(self, target: Value, value: Value) -> None:
        """Give `target` the value of `value`, the output of the last node, which has the same type."""
        raise NotImplementedError

    def original(self, handle: Value) -> Value:
        """The handle of the value that `handle` had at first."""
        return self.originals.get(handle, handle)

    def replace_handles(self, target: Value, former: Value, value: Value) -> None:
        """In the record, `former` takes the place of `target`, and `target` that of `value`."""
        self.originals.setdefault(target, former)
        self.calls.clear()  # whose operands and results would have other values now
        self.replace_assigned(target, former)
        for node in self.nodes:
            if any(x is target for x in node.inputs):
                node.inputs = tuple([former if x is target else x for x in node.inputs])
            node.outputs = tuple([former if y is target else target if y is value else y for y in node.outputs])
