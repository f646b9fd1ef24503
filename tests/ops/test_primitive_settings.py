"""Settings of operators that results do not depend on."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from tables import table

from runner import ops
from runner.errors import ConfigError

SET = {
    "add_prim_attr": lambda op: op.add_prim_attr("primitive_target", "CPU"),
    "shard": lambda op: op.shard(((2, 1), (2, 1))),
    "set_stage": lambda op: op.set_stage(1),
    "recompute": lambda op: op.recompute(),
    "set_prim_instance_name": lambda op: op.set_prim_instance_name("sum"),
}


@table("mode", MODES)
@table("name", SET)
def test_results_do_not_depend_on_a_setting(name: str, mode: str) -> None:
    op = SET[name](ops.Add())
    assert op == ops.Add()
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([[10, 20], [30, 40]])
    assert step_of(op, mode)(x, y)[0].tolist() == [[11, 22], [33, 44]]


def test_settings_belong_to_one_operator() -> None:
    op, other = ops.Add(), ops.Add()
    assert op.add_prim_attr("fusion", 1) is op
    assert (op.attrs, other.attrs) == ({"fusion": 1}, {})
    assert op.del_prim_attr("fusion").attrs == {}
    op.init_prim_io_names(inputs=["x", "y"], outputs=["sum"])
    assert op.attrs == {"input_names": ["x", "y"], "output_names": ["sum"]}
    assert (op.instance_name, op.set_prim_instance_name("plus").instance_name) == ("Add", "plus")


def test_composed_operators_have_settings() -> None:
    assert ops.EmbeddingLookup().add_prim_attr("primitive_target", "CPU").attrs == {"primitive_target": "CPU"}


def test_an_argument_is_no_setting() -> None:
    with pytest.raises(ConfigError, match="an argument of an operator is set when it is made") as caught:
        ops.ReduceSum().add_prim_attr("keep_dims", True)
    assert caught.value.rows["repair"] == "ReduceSum(keep_dims=True)"
