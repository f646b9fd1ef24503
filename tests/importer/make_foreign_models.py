"""Makes the files of `models/` that come from scikit-learn and Keras. It is run by hand, not by CI:

    pip install scikit-learn skl2onnx onnxruntime tensorflow tf2onnx
    python tests/importer/make_foreign_models.py [sklearn] [keras]

The .npz are those of `make_models.py`; gradients of scikit-learn's networks are computed here in Float64.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx

FOLDER = Path(__file__).parent / "models"


def write(name: str, file: onnx.ModelProto, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
    onnx.save(file, FOLDER / f"{name}.onnx")
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    np.savez_compressed(FOLDER / f"{name}.npz", facts=text, **arrays)
    print(name, file.ByteSize(), *sorted({node.op_type for node in file.graph.node}))


def sklearn_files() -> None:
    from skl2onnx import to_onnx
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    random = np.random.RandomState(0)
    data = random.standard_normal((40, 12)).astype(np.float32)
    labels, values = random.randint(0, 4, 40), random.standard_normal(40).astype(np.float32)
    sizes: dict[str, Any] = {"hidden_layer_sizes": (16, 10), "max_iter": 3, "random_state": 0}
    classifier = MLPClassifier(**sizes).fit(data, labels)
    regressor = MLPRegressor(**sizes, activation="tanh").fit(data, values)
    batch = data[:10]
    for opset, settings in ((13, {}), (18, {"zipmap": False})):
        file = to_onnx(classifier, batch, target_opset=opset, options={id(classifier): settings})
        write_mlp(f"mlp-sklearn-{opset}", file, classifier, batch, labels[:10].astype(np.int32))
    file = to_onnx(regressor, batch, target_opset=15)
    write_mlp("mlp-sklearn-15-regressor", file, regressor, batch, values[:10, None])


def write_mlp(name: str, file: onnx.ModelProto, model: Any, batch: np.ndarray, targets: np.ndarray) -> None:
    """The reference: one step of gradient descent, written out."""
    is_classifier = hasattr(model, "classes_")
    activations = [batch.astype(np.float64)]
    for n, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        sums = activations[-1] @ weight + bias
        last = n == len(model.coefs_) - 1
        activations.append(sums if last else np.tanh(sums) if model.activation == "tanh" else np.maximum(sums, 0))
    logits = activations[-1]
    if is_classifier:
        outputs = np.exp(logits - logits.max(1, keepdims=True))
        outputs /= outputs.sum(1, keepdims=True)
        loss = -np.log(outputs[np.arange(len(batch)), targets]).mean()
        slope = (outputs - np.eye(logits.shape[1])[targets]) / len(batch)
    else:
        outputs, loss = logits, np.square(logits - targets).mean()
        slope = 2 * (logits - targets) / logits.size
    gradients: dict[str, np.ndarray] = {}
    for n in reversed(range(len(model.coefs_))):
        gradients[f"coefs.{n}"] = activations[n].T @ slope
        gradients[f"intercepts.{n}"] = slope.sum(0)
        slope = slope @ model.coefs_[n].T
        slope = slope * (1 - activations[n] ** 2 if model.activation == "tanh" else activations[n] > 0)
    parameters = {f"coefs.{n}": array for n, array in enumerate(model.coefs_)}
    parameters |= {f"intercepts.{n}": array for n, array in enumerate(model.intercepts_)}
    facts = {
        "kind": "mlp",
        "exporter": "skl2onnx",
        "opset": file.opset_import[0].version,
        "rate": 0.01,
        "loss": "cross_entropy" if is_classifier else "mse",
        "initializers": places(file, parameters),
    }
    arrays = {f"gradient/{key}": array.astype(np.float32) for key, array in gradients.items()}
    arrays |= {"input/X": batch, "outputs": outputs.astype(np.float32), "targets": targets, "loss": np.float32(loss)}
    write(name, file, facts, arrays)


def places(file: onnx.ModelProto, parameters: dict[str, np.ndarray]) -> dict[str, list[list[str]]]:
    """By parameter: the initializers that have its values, and in which form."""
    arrays = {entry.name: onnx.numpy_helper.to_array(entry) for entry in file.graph.initializer}
    found: dict[str, list[list[str]]] = {}
    for name, value in parameters.items():
        layouts = {"same": value, "transposed": value.T}
        if value.ndim == 4:  # Keras keeps the channels of a convolution last
            layouts["channels last"] = value.transpose(3, 2, 0, 1)
        for form, wanted in layouts.items():
            same = [n for n, a in arrays.items() if a.size == wanted.size and a.dtype.kind == "f" and _is(a, wanted)]
            if same and name not in found:
                found[name] = [[other, form] for other in same]
    return found


def _is(array: np.ndarray, wanted: np.ndarray) -> bool:
    if array.ndim != wanted.ndim and wanted.ndim == 1:
        array = array.reshape(-1)
    return array.shape == wanted.shape and np.allclose(array, wanted, rtol=1e-5, atol=1e-7)


def keras_files() -> None:
    import keras
    import tensorflow as tf
    import tf2onnx

    keras.utils.set_random_seed(0)
    random = np.random.RandomState(0)
    layers = keras.layers
    images = np.kron(np.round(random.standard_normal((8, 7, 7, 1)), 2), np.ones((1, 4, 4, 1))).astype(np.float32)
    convolutional = keras.Sequential(
        [
            *(keras.Input((28, 28, 1), name="image"), layers.Conv2D(6, 3, padding="same", activation="relu")),
            *(layers.MaxPooling2D(), layers.Conv2D(12, 3, strides=2, padding="same", use_bias=False)),
            *(layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.0), layers.Flatten()),
            *(layers.Dense(24, activation="relu"), layers.Dense(4, activation="softmax")),
        ]
    )
    dense = keras.Sequential(
        [
            keras.Input((12,), name="x"),
            layers.Dense(16, activation="swish"),
            layers.LayerNormalization(),
            layers.Dense(4, activation="softmax"),
        ]
    )
    for name, model, batch, opset in (
        ("keras-tf2onnx-13", convolutional, images, 13),
        ("keras-tf2onnx-17-dense", dense, random.standard_normal((10, 12)).astype(np.float32), 17),
    ):
        for layer in model.layers:
            if layer.name.startswith("batch_normalization"):
                layer.set_weights([random.uniform(0.5, 1.5, w.shape) for w in layer.get_weights()])
        inputs = model.inputs[0]
        signature = [tf.TensorSpec([None, *inputs.shape[1:]], tf.float32, name=inputs.name)]
        run = tf.function(lambda x, model=model: model(x, training=False), input_signature=signature)
        file, _ = tf2onnx.convert.from_function(run, input_signature=signature, opset=opset)
        write_keras(name, file, model, batch, opset)


def write_keras(name: str, file: onnx.ModelProto, model: Any, batch: np.ndarray, opset: int) -> None:
    """The reference: what a tape of TensorFlow records. tf2onnx joins BatchNormalization with the convolution."""
    import tensorflow as tf

    targets = (np.arange(len(batch)) % 4).astype(np.int32)
    outputs = model(batch, training=False).numpy()
    with tf.GradientTape() as tape:
        chosen = tf.gather(model(batch, training=False), targets, batch_dims=1)
        loss = -tf.reduce_mean(tf.math.log(chosen))
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    values = {v.path: v.numpy() for v in model.trainable_variables}
    found = places(file, values)
    facts = {
        "kind": "keras",
        "exporter": "tf2onnx",
        "opset": opset,
        "loss": "cross_entropy",
        "rate": 0.01,
        "initializers": found,
    }
    pairs = zip(values, gradients, strict=True)
    arrays = {f"gradient/{key}": tf.convert_to_tensor(grad).numpy() for key, grad in pairs if key in found}
    arrays |= {f"input/{file.graph.input[0].name}": batch, "outputs": outputs, "targets": targets}
    write(name, file, facts, {**arrays, "loss": loss.numpy()})


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["sklearn", "keras"]
    if "sklearn" in chosen:
        sklearn_files()
    if "keras" in chosen:
        keras_files()
