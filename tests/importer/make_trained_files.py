"""Makes the files of `trained/`: networks whose files say in some way what is trained and what is not.

It is run by hand, not by CI, with PyTorch or with JAX, each in an environment of its own:

    pip install torch onnx onnxscript; python tests/importer/make_trained_files.py torch
    pip install jax2onnx flax;         python tests/importer/make_trained_files.py jax

An .npz has a batch `x`, `targets`, and `losses`: those of six steps of SGD in the framework that made the file.
Notes of nodes stay, since they are evidence, but for traces of the stack, which have paths of this machine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx

FOLDER = Path(__file__).parent / "trained"
STEPS, RATE, ROWS, CLASSES = 6, 0.2, 6, 3
# By network: the exports. leg and dyn are PyTorch's two exporters with a batch of fixed size, legn and dynn those with
# a free one, train the older one in training mode.
EXPORTS = {
    "pixels": "leg dynn",
    "blur": "legn dyn",
    "sines": "legn dyn",
    "positions": "legn dyn",
    "token": "dyn dynn",
    "encoder": "leg dyn",
    "groups": "leg dyn train",
    "trained_groups": "legn dynn",
    "instances": "legn dyn",
    "norms": "leg dynn",
    "rms": "leg dyn",
    "lstm": "dyn",
    "lstm_starts": "dyn",
    "gru": "dyn dynn",
    "scalars": "leg dyn",
    "temperature": "dynn",
    "layer_scale": "leg dyn",
    "tied": "leg dynn",
    "rotary": "dyn",
    "causal": "leg dyn",
    "flags": "legn dynn",
    "splines": "leg dyn",
    "helpers": "dyn dynn",
    "scatter": "leg dyn",
    "attention": "dyn",
    "copies": "leg dyn",
    "shared": "leg dynn",
    "embedded": "legn dynn",
    "softplus": "leg dyn",
    "relative": "dyn dynn",
    "queries": "leg dyn",
    "zero_biases": "dyn",
    "zero_convolutions": "dynn",
}


def torch_files() -> None:
    from making.trained import NETWORKS

    for name, exports in EXPORTS.items():
        for how in exports.split():
            write_torch(name, how, *NETWORKS[name])


def write_torch(name: str, how: str, make: Any, batch: Any) -> None:
    import torch

    torch.manual_seed(0)
    network = make()
    torch.manual_seed(1)
    x, targets = batch(), torch.randint(0, CLASSES, (ROWS,))
    path = FOLDER / f"{name}-{how}.onnx"
    network.train(how == "train")
    if how.startswith("dyn"):
        axes: Any = ({0: torch.export.Dim("rows", min=2, max=64)},) if how == "dynn" else None
        settings: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False, "dynamic_shapes": axes}
    else:
        axes = None if how == "leg" else {"x": {0: "rows"}, "y": {0: "rows"}}
        settings = {"dynamo": False, "opset_version": 17, "dynamic_axes": axes}
        if how == "train":
            settings |= {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    torch.onnx.export(network, (x,), str(path), input_names=["x"], output_names=["y"], **settings)
    network.train()
    optimizer, losses = torch.optim.SGD(network.parameters(), RATE), []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(network(x), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    write(path, x.numpy(), targets.numpy(), losses)


def write(path: Path, x: np.ndarray, targets: np.ndarray, losses: list[float]) -> None:
    file = onnx.load(path)
    for node in file.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key.endswith(("fx_node", "name_scopes"))]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.doc_string = ""
    onnx.save(file, path)
    np.savez_compressed(path.with_suffix(".npz"), x=x, targets=targets.astype(np.int32), losses=np.array(losses))
    print(path.name, path.stat().st_size, np.round(losses, 4), flush=True)


def jax_files() -> None:
    import jax
    import jax.numpy as jnp
    from flax import nnx
    from jax2onnx import to_onnx

    class Dense(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.a, self.b = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, CLASSES, rngs=rngs)
            self.norm, self.scale = nnx.LayerNorm(16, rngs=rngs), nnx.Param(0.1 * jnp.ones((16,)))

        def __call__(self, x: Any) -> Any:
            x = self.a(x)
            return self.b(x + self.scale[...] * jnp.tanh(self.norm(x)))

    class Convolutional(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv, self.dense = nnx.Conv(3, 4, (3, 3), rngs=rngs), nnx.Linear(4, CLASSES, rngs=rngs)
            self.norm = nnx.GroupNorm(4, num_groups=2, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.dense(jax.nn.relu(self.norm(self.conv(x))).mean((1, 2)))

    for name, make, shape in (("jax_dense", Dense, (8,)), ("jax_convolutional", Convolutional, (7, 7, 3))):
        network = make(nnx.Rngs(0))
        random = np.random.RandomState(0)
        x = random.standard_normal((ROWS, *shape)).astype(np.float32)
        targets = random.randint(0, CLASSES, ROWS)
        made = to_onnx(network, [("B", *shape)])
        path = FOLDER / f"{name}-jax2onnx.onnx"
        onnx.save(made if isinstance(made, onnx.ModelProto) else made.to_proto(), path)
        structure, weights, rest = nnx.split(network, nnx.Param, ...)

        def loss_of(weights: Any, structure: Any = structure, rest: Any = rest, x: Any = x, y: Any = targets) -> Any:
            logits = nnx.merge(structure, weights, rest)(x)
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

        losses = []
        for _ in range(STEPS):
            loss, gradients = jax.value_and_grad(loss_of)(weights)
            weights = jax.tree.map(lambda w, g: w - RATE * g, weights, gradients)
            losses.append(float(loss))
        write(path, x, targets, losses)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    {"torch": torch_files, "jax": jax_files}[sys.argv[1]]()
