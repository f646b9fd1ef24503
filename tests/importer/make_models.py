"""Makes the files of `models/`: one .onnx and one .npz for each network, exporter and version of ONNX.

It is run by hand, not by CI, in an environment of its own:

    pip install torch torchvision onnx onnxscript onnxruntime transformers
    python tests/importer/make_models.py [NAME ...]

`make_foreign_models.py` makes those of scikit-learn and Keras. A .npz has `input/NAME`, `targets`, `outputs` (in eval
mode), `loss` and `gradient/PARAMETER` (one step in training mode, without dropout) as torch computes them, and
`facts`: JSON with the kind, the exporter, the opset, the loss function, a learning rate, and, by parameter, the
initializers that have its values.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from making import reference
from making.kinds import KINDS, Export, Kind

FOLDER = Path(__file__).parent / "models"
LIMIT = 300_000  # bytes of a file


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for kind in KINDS:
        for how in kind.exports:
            name = "-".join(filter(None, (kind.name, how.exporter, str(how.opset), how.variant, mode(how))))
            if not names or any(name.startswith(wanted) for wanted in names):
                make(kind, how, FOLDER / name)


def mode(how: Export) -> str:
    return "" if how.training == "EVAL" else how.training.lower()


def make(kind: Kind, how: Export, path: Path) -> None:
    """Export the network, compute the reference, and write both."""
    random = np.random.RandomState(0)
    arrays = kind.batch(random)
    inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
    file = export(built(kind), inputs, how, path.with_suffix(".onnx"))
    network = built(kind)
    reference.take_statistics(network, file)
    with torch.no_grad():
        outputs = reference.first(network.eval()(**inputs)).numpy()
    make_targets = kind.targets or (lambda r, out: np.arange(len(out), dtype=np.int32) % out.shape[-1])
    targets = make_targets(random, outputs)
    network = reference.as_exported(network, file)
    found = reference.matches(file, network)
    loss, gradients = reference.gradients_of(network, inputs, torch.from_numpy(targets), kind.loss)
    facts = {"kind": kind.name, "exporter": how.exporter, "opset": how.opset, "loss": kind.loss, "rate": kind.rate}
    np.savez_compressed(
        path.with_suffix(".npz"),
        **{f"input/{name}": array for name, array in arrays.items()},
        **{f"gradient/{name}": array for name, array in gradients.items()},
        targets=targets,
        outputs=outputs,
        loss=np.float32(loss),
        facts=reference.as_json({**facts, "initializers": found}),
    )
    report(path, file, sorted(set(gradients) - set(found)))


def built(kind: Kind) -> torch.nn.Module:
    """The network, with the same weights each time."""
    torch.manual_seed(0)
    network = reference.without_dropout(kind.build())
    reference.randomize(network, seed=1)
    return network


def report(path: Path, file: onnx.ModelProto, missing: list[str]) -> None:
    """One line: sizes, operators, and parameters that no initializer of the file has."""
    size, more = path.with_suffix(".onnx").stat().st_size, path.with_suffix(".npz").stat().st_size
    operators = sorted({node.op_type for node in file.graph.node})
    too_large = " TOO LARGE" if max(size, more) > LIMIT else ""
    print(f"{path.name}: {size} + {more} bytes{too_large}, {len(file.graph.node)} nodes", *operators, flush=True)
    if missing:
        print(f"   not in the file: {', '.join(missing)}", flush=True)


def export(network: torch.nn.Module, inputs: dict[str, Any], how: Export, path: Path) -> onnx.ModelProto:
    """The file that torch writes, without the stack traces that the dynamo exporter leaves in it."""
    network.eval()
    settings: dict[str, Any] = {"opset_version": how.opset, "input_names": [*inputs], "output_names": ["output"]}
    if how.exporter == "legacy":
        training = getattr(torch.onnx.TrainingMode, how.training)
        network.train(how.training != "EVAL")
        axes = {name: {0: "batch"} for name in inputs} if how.free else None
        settings |= {"dynamo": False, "training": training, "do_constant_folding": how.folding, "dynamic_axes": axes}
    else:
        batch = torch.export.Dim("batch", min=2, max=512)
        shapes = {name: {0: batch} for name in inputs} if how.free else None
        settings |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False, "verbose": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, (), str(path), kwargs=inputs, **settings)
    file = onnx.load(path)
    return stripped(file, path)


def stripped(file: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Without the notes of the exporter, which would be most of a small file."""
    for node in file.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del file.graph.value_info[:]
    for value in (*file.graph.input, *file.graph.output, *file.graph.initializer):
        value.doc_string = ""
    for function in file.functions:
        for node in function.node:
            del node.metadata_props[:]
            node.doc_string = ""
    onnx.save(file, path)
    return file


if __name__ == "__main__":
    main(sys.argv[1:])
