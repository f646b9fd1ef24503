"""ONNX's conformance suite, which comes with the package `onnx`: models with inputs and the outputs of ONNX."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.loader
import onnx.version_converter
from both_modes import step_of
from onnx import helper, numpy_helper

from runner.errors import ConfigError
from runner.importer.file import OLDEST_OPSET
from runner.importer.network import OnnxNetwork
from runner.importer.rules import RULES

KINDS = "node", "simple", "pytorch-converted", "pytorch-operator"  # the models of "real" would be loaded from the net
CONVERTED = 13  # opset to which older models are converted, as the importer's error says
UNKNOWN = "an input must be known when the network is imported"
FLOAT = "conformance:float"  # an output of floats, without which a file is no network


@dataclass(frozen=True)
class Case:
    """A model; `sets` are inputs by name with the outputs in order, and `given` those of the first set."""

    name: str
    model: onnx.ModelProto
    sets: Sequence[tuple[Mapping[str, Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def given(self) -> Mapping[str, Any]:
        return self.sets[0][0] if self.sets else {}

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self.model.graph.output]

    @property
    def trains(self) -> bool:
        """Whether a normalization uses the statistics of its batch."""
        settings = (attribute for node in self.model.graph.node for attribute in node.attribute)
        return any(attribute.name == "training_mode" and attribute.i for attribute in settings)

    def forms(self) -> Iterator[set[str]]:
        """Inputs that are initializers instead, since the importer must know them: few in the first form, then more."""
        known = {
            name
            for node in self.model.graph.node
            for k, name in enumerate(node.input)
            if (node.op_type in RULES and RULES[node.op_type].is_static(k))
            or (node.op_type == "BatchNormalization" and k > 0)
        } & self.given.keys()
        yield known
        yield known | {name for name, x in self.given.items() if isinstance(x, np.ndarray) and x.dtype.kind in "iub"}
        yield set(list(self.given)[1:])
        yield set(self.given)

    def write(self, folder: Path, known: set[str]) -> Path:
        """The model as a file, where these inputs are initializers."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        if all(entry.domain not in ("", "ai.onnx") for entry in model.opset_import):  # of the node that is added
            model.opset_import.add(domain="", version=CONVERTED)
        kept = [value for value in model.graph.input if value.name not in known]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        arrays = [(name, self.given[name]) for name in sorted(known)]
        model.graph.initializer.extend(
            numpy_helper.from_array(x, name) for name, x in arrays if isinstance(x, np.ndarray)
        )
        model.graph.node.append(
            helper.make_node("Constant", [], [FLOAT], value=numpy_helper.from_array(np.zeros((), np.float32)))
        )
        model.graph.output.append(helper.make_tensor_value_info(FLOAT, onnx.TensorProto.FLOAT, []))
        path = folder / "conformance.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    def network(self, folder: Path, output: str, known: set[str]) -> OnnxNetwork:
        network = OnnxNetwork(str(self.write(folder, known)), output, logits=False)
        network.set_train(self.trains)
        return network

    def check(self, folder: Path, number: int, mode: str) -> None:
        """An output has the type, the shape and the numbers that ONNX defines. Raises RunnerError where it is refused,
        AssertionError where it is another one."""
        for known in self.forms():
            try:
                self._check(folder, number, mode, known)
                return
            except ConfigError as error:
                if error.what != UNKNOWN:
                    raise
                refusal = error
        raise refusal

    def _check(self, folder: Path, number: int, mode: str, known: set[str]) -> None:
        for given, wanted in self.sets:
            network = self.network(folder, self.outputs[number], known)
            made = step_of(network.construct, mode)(*[np.asarray(given[x.name]) for x in network.graph.inputs])[0]
            right = np.asarray(wanted[number])
            assert (made.dtype, made.shape) == (right.dtype, right.shape)
            if right.dtype.kind == "f":
                rtol = max(self.rtol, 2 * float(np.finfo(right.dtype).eps))
                np.testing.assert_allclose(made, right, rtol, self.atol)
            else:
                np.testing.assert_array_equal(made, right)


@cache
def cases() -> tuple[Case, ...]:
    """All of them, by kind and name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # some of the models are computed here, with overflows
        found = [case for kind in KINDS for case in onnx.backend.test.loader.load_model_tests(kind=kind)]
    return tuple(_read(case) for case in sorted(found, key=lambda case: (KINDS.index(case.kind), case.name)))


def _read(case: Any) -> Case:
    model, sets = (case.model, case.data_sets) if case.model is not None else _stored(Path(case.model_dir))
    if any(x.domain in ("", "ai.onnx") and x.version < OLDEST_OPSET for x in model.opset_import):
        model = onnx.version_converter.convert_version(model, CONVERTED)
    weights = {x.name for x in model.graph.initializer}
    names = [x.name for x in model.graph.input if x.name not in weights]
    read = [(dict(zip(names, map(_array, given), strict=False)), [*map(_array, wanted)]) for given, wanted in sets]
    return Case(case.name, model, read, case.rtol, case.atol)


def _stored(folder: Path) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """A model of a folder, with the tensors of its sets."""
    sets = []
    for place in sorted(folder.glob("test_data_set_*")):
        counts = {side: len(list(place.glob(f"{side}_*.pb"))) for side in ("input", "output")}
        names = ([f"{side}_{k}.pb" for k in range(count)] for side, count in counts.items())
        given, wanted = ([_tensor(place / name) for name in side] for side in names)
        sets.append((given, wanted))
    return onnx.load(str(folder / "model.onnx")), sets


def _tensor(path: Path) -> onnx.TensorProto:
    return onnx.TensorProto.FromString(path.read_bytes())


def _array(value: Any) -> Any:
    found = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    return np.asarray(found) if isinstance(found, np.generic) else found
