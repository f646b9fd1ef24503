"""What scripts of MindSpore r1.2 set on an operator beside its arguments."""

from collections.abc import Sequence
from typing import Any, Self

from runner.errors import ConfigError


class PrimitiveSettings:
    """Base of operators. The settings are hints for devices and for other kinds of parallelism: they are kept with the
    operator, copies of it and results do not depend on them."""

    @property
    def attrs(self) -> dict[str, Any]:
        """What `add_prim_attr` has added, by name."""
        added: dict[str, Any] = self.__dict__.setdefault("_added", {})
        return added

    @property
    def instance_name(self) -> str:
        """What `set_prim_instance_name` has set; by default the operator type."""
        name: str = self.attrs.get("instance_name", type(self).__name__)
        return name

    def add_prim_attr(self, name: str, value: Any) -> Self:
        """Keep a value under a name, such as `primitive_target`, and return the operator. It has no effect.

        Raises ConfigError for a name that is an argument of the operator, since that would have one in the reference.
        """
        if name in getattr(self, "__dataclass_fields__", ()):
            repair = f"{type(self).__name__}({name}={value!r})"
            raise ConfigError("an argument of an operator is set when it is made", argument=name, repair=repair)
        self.attrs[name] = value
        return self

    def del_prim_attr(self, name: str) -> Self:
        """Remove what `add_prim_attr` has added."""
        self.attrs.pop(name, None)
        return self

    def set_prim_instance_name(self, instance_name: str) -> Self:
        """Name this operator. Names of files and graphs stay those of scopes."""
        return self.add_prim_attr("instance_name", instance_name)

    def set_stage(self, stage: int) -> Self:
        """Keep the stage of a pipeline of devices, which runner does not have."""
        return self.add_prim_attr("stage", stage)

    def shard(self, strategy: Sequence[Any]) -> Self:
        """Keep how operands would be sharded. runner trains data-parallel, so each rank has whole operands."""
        return self.add_prim_attr("strategy", strategy)

    def recompute(self, mode: bool = True) -> Self:
        """Keep whether gradients would compute this operator again, in place of keeping its results."""
        return self.add_prim_attr("recompute", mode)

    def init_prim_io_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Keep names of operands and results."""
        self.add_prim_attr("input_names", inputs).add_prim_attr("output_names", outputs)
