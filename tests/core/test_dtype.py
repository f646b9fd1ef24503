"""Types under the names of r1.2: aliases, families, and their counterparts in Python and numpy."""

import numpy as np
import pytest
from tables import table

from runner import Tensor, dtype as dt
from runner.errors import ConfigError

ALIASES = {
    "int8": "byte",
    "int16": "short",
    "int32": "intc",
    "int64": "intp",
    "uint8": "ubyte",
    "uint16": "ushort",
    "uint32": "uintc",
    "uint64": "uintp",
    "float16": "half",
    "float32": "single",
    "float64": "double",
}


@table(("name", "alias"), ALIASES.items())
def test_aliases_and_numpys_types(name, alias):
    kind = getattr(dt, name)
    assert getattr(dt, alias) is kind
    assert dt.dtype_to_nptype(kind) is getattr(np, name)
    assert dt.pytype_to_dtype(getattr(np, name)) is dt.pytype_to_dtype(np.dtype(name)) is kind
    assert dt.dtype_to_pytype(kind) is (float if kind.is_float else int)
    assert str(kind).lower() == name
    assert isinstance(kind, dt.Type)


@table(
    ("python", "kind"),
    [
        *((bool, dt.bool_), (int, dt.int64), (float, dt.float64), (str, dt.string)),
        *((list, dt.list_), (tuple, dt.tuple_), (type(None), dt.type_none)),
    ],
)
def test_pythons_types(python, kind):
    assert dt.pytype_to_dtype(python) is kind
    assert dt.dtype_to_pytype(kind) is python


@table(
    ("kind", "of", "holds"),
    [
        (dt.float32, dt.float32, True),
        (dt.float32, dt.float_, True),
        (dt.float32, dt.number, True),
        (dt.float_, dt.number, True),
        (dt.int32, dt.float_, False),
        (dt.uint8, dt.uint, True),
        (dt.uint8, dt.int_, False),
        (dt.bool_, dt.number, False),
        (dt.tensor_type(dt.float32), dt.tensor, True),
        (dt.float32, dt.tensor, False),
        (3, dt.number, False),
    ],
)
def test_families(kind, of, holds):
    assert dt.issubclass_(kind, of) is holds


def test_the_type_of_an_object():
    assert dt.get_py_obj_dtype(1.5) is dt.get_py_obj_dtype(float) is dt.float64
    assert dt.get_py_obj_dtype(Tensor([1])) is dt.tensor_type(dt.int32)
    assert str(dt.tensor_type(dt.int32)) == "Tensor[Int32]"
    assert dt.get_py_obj_dtype(dt.int32) is dt.type_type
    assert dt.get_py_obj_dtype(len) is dt.function
    assert (dt.Int(32), dt.Int()) == (dt.int32, dt.int_)
    with pytest.raises(ConfigError, match="not an element type of tensors"):
        dt.get_py_obj_dtype({})
    with pytest.raises(ConfigError, match="Python has no such type"):
        dt.dtype_to_pytype(dt.tensor)
