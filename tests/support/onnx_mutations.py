"""ONNX models with fields changed: numbers, texts and messages of a protobuf, never its bytes."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper
from onnx_files import classifier, model

WHOLE = (0, 1, -1, 2, 3, 7, 11, 16, 72, 999, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**62), 2**63 - 1)
FLOATS = (0.0, -1.0, 0.5, 3e38, -3e38, 1e-40, float("nan"), float("inf"))
TEXTS = ("", "x", "y", "nothing", "a\0b", "\u00fc" * 300, "../x", "ai.onnx", "ai.onnx.ml", "own", "com.microsoft")
OPERATORS = ("Relu", "Constant", "If", "Reshape", "Conv", "Loop", "Identity", "Expand", "Slice", "Range", "F", "Pad")


def mutated(made: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """A copy with one to three fields changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(made)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = [*_messages(copy)]
        _change(rng.choice(places), places, rng)
    return copy


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for kind, value in message.ListFields():
        if kind.type == kind.TYPE_MESSAGE:
            for inner in [value] if isinstance(value, Message) else value:
                yield from _messages(inner)


def _change(message: Message, places: list[Message], rng: random.Random) -> None:
    """Change one field of a message, most often one that it has."""
    present = [kind for kind, _ in message.ListFields()]
    kind = rng.choice(present if present and rng.random() < 0.8 else message.DESCRIPTOR.fields)
    value = getattr(message, kind.name)
    if hasattr(value, "MergeFrom") and not isinstance(value, Message):
        _change_list(value, kind, places, rng)
    elif rng.random() < 0.15:
        message.ClearField(kind.name)
    elif isinstance(value, Message):
        value.CopyFrom(_other(value, places, rng))
    else:
        setattr(message, kind.name, _scalar(kind, value, places, rng))


def _change_list(values: Any, kind: Any, places: list[Message], rng: random.Random) -> None:
    place = rng.randrange(len(values)) if values else 0
    action = rng.choice(("remove", "repeat", "add", "change", "change", "swap", "clear"))
    is_message = kind.type == kind.TYPE_MESSAGE
    if action == "clear":
        del values[:]
    elif action == "remove" and values:
        del values[place]
    elif action == "repeat" and values:
        values.append(values[place])
    elif action == "swap" and len(values) > 1:
        first, second = values[place], values[place - 1]
        copies = [_copy(x) if is_message else x for x in (first, second)]
        values[place].CopyFrom(copies[1]) if is_message else values.__setitem__(place, copies[1])
        values[place - 1].CopyFrom(copies[0]) if is_message else values.__setitem__(place - 1, copies[0])
    elif is_message:
        target = values[place] if action == "change" and values else values.add()
        target.CopyFrom(_other(target, places, rng))
    elif values and action == "change":
        values[place] = _scalar(kind, values[place], places, rng)
    else:
        values.append(_scalar(kind, None, places, rng))


def _copy(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _other(message: Message, places: list[Message], rng: random.Random) -> Message:
    """Another message of the type, from elsewhere in the model; sometimes one without fields."""
    same = [other for other in places if other.DESCRIPTOR is message.DESCRIPTOR]
    return _copy(rng.choice(same)) if same and rng.random() < 0.85 else type(message)()


def _scalar(kind: Any, value: Any, places: list[Message], rng: random.Random) -> Any:
    if kind.type == kind.TYPE_ENUM:
        return rng.choice([number.number for number in kind.enum_type.values])
    if kind.type == kind.TYPE_STRING:
        return _text(kind, value, places, rng)
    if kind.type == kind.TYPE_BYTES:
        return rng.choice(
            (b"", b"\xff", b"SAME_UPPER", (value or b"")[:-1], (value or b"") + b"\0", (value or b"x") * 2)
        )
    if kind.cpp_type in (kind.CPPTYPE_FLOAT, kind.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    least, most = {kind.CPPTYPE_INT32: (-(2**31), 2**31 - 1), kind.CPPTYPE_UINT64: (0, 2**64 - 1)}.get(
        kind.cpp_type, (-(2**63), 2**63 - 1)
    )
    near = () if value is None else (value - 1, value + 1, 2 * value, -value)
    return min(max(rng.choice((*WHOLE, *near, *near)), least), most)


def _text(kind: Any, value: Any, places: list[Message], rng: random.Random) -> str:
    names = [name for place in places if isinstance(place, onnx.NodeProto) for name in (*place.input, *place.output)]
    if kind.name == "op_type":
        return rng.choice(OPERATORS)
    if kind.name == "name" and value and rng.random() < 0.3:
        return str(value).swapcase()
    return rng.choice(names if names and rng.random() < 0.6 else TEXTS)


WEIGHTS = "weights.bin"  # beside the file of "external", of a kilobyte


def bases() -> dict[str, onnx.ModelProto]:
    """Small models that ONNX's checker accepts and runner trains, with different kinds of messages."""
    made = {"classifier": classifier(), "images": _images(), "branches": _branches(), "function": _function()}
    made |= {"recurrent": _recurrent(), "shapes": _shapes(), "external": _external()}
    for one in made.values():
        for value in one.graph.output:
            value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, ["n", "m"]))
    return made


def _weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def _images() -> onnx.ModelProto:
    arrays = _weights(w=(4, 1, 3, 3), b=(4,), v=(16, 3)) | {"s": np.array([0, -1])}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]),
        helper.make_node("Clip", ["c", "", "most"], ["h"]),
        helper.make_node("Constant", [], ["most"], value_float=6.0),
        helper.make_node("MaxPool", ["h"], ["p"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
        helper.make_node("Reshape", ["p", "s"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    nodes[1:3] = nodes[2:0:-1]
    return model(nodes, {"x": ["n", 1, 8, 8]}, ["y"], arrays)


def _branches() -> onnx.ModelProto:
    parts = []
    for operator, name in (("Relu", "q"), ("Sigmoid", "r")):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3])
        parts.append(helper.make_graph([helper.make_node(operator, ["h"], [name])], "part", [], [value]))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("If", ["c"], ["y"], then_branch=parts[0], else_branch=parts[1]),
    ]
    return model(nodes, {"x": ["n", 4]}, ["y"], _weights(w=(4, 3)) | {"c": np.array(True)})


def _function() -> onnx.ModelProto:
    nodes = [helper.make_node("F", ["x", "w"], ["h"], domain="own", alpha=0.5), helper.make_node("Tanh", ["h"], ["y"])]
    made = model(nodes, {"x": ["n", 4]}, ["y"], _weights(w=(4, 3)))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    inner = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("LeakyRelu", ["c"], ["d"])]
    inner[1].attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha")
    made.functions.append(helper.make_function("own", "F", ["a", "b"], ["d"], inner, opsets, ["alpha"]))
    made.opset_import.append(opsets[1])
    return made


def _external() -> onnx.ModelProto:
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 4]}, ["y"], {})
    tensor = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4, 3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS), ("offset", "8"), ("length", "48")):
        tensor.external_data.add(key=key, value=value)
    return made


def _recurrent() -> onnx.ModelProto:
    arrays = _weights(w=(1, 12, 4), r=(1, 12, 3), b=(1, 24)) | {"last": np.array([0])}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["t", "w", "r", "b"], ["", "h"], hidden_size=3),
        helper.make_node("Squeeze", ["h", "last"], ["y"]),
    ]
    return model(nodes, {"x": ["n", 5, 4]}, ["y"], arrays)


def _shapes() -> onnx.ModelProto:
    arrays = _weights(w=(6, 3)) | {name: np.array(value) for name, value in {"0": [0], "1": [1], "2": [2]}.items()}
    arrays |= {"k": np.array([6]), "pads": np.array([0, 1, 0, 1])}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "0", "1"], ["rows"]),
        helper.make_node("Concat", ["rows", "k"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["g"], alpha=0.5),
        helper.make_node("Pad", ["g", "pads"], ["p"], mode="reflect"),
        helper.make_node("ReduceMean", ["p"], ["m"], axes=[1], keepdims=1),
        helper.make_node("Split", ["p"], ["u", "v"], axis=1),
        helper.make_node("Mul", ["u", "m"], ["y"]),
    ]
    made = model(nodes, {"x": ["n", 2, 3]}, ["y"], {k: x for k, x in arrays.items() if k != "pads"})
    made.graph.node[7].input.append("parts")
    made.graph.initializer.append(onnx.numpy_helper.from_array(arrays["pads"], "pads"))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3]), "parts"))
    return made
