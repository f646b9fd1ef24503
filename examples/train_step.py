"""Train with nothing but onnxruntime and numpy: `model/train_step.onnx` of a run is a whole training step.

    runner +experiment=lenet mode=graph
    python examples/train_step.py outputs/<date>/<time>/model/train_step.onnx

Inputs are a batch and the parameters, outputs are the loss and the parameters after the step. A parameter that is not
fed has the value with which the run began.
"""

import sys

import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.log_severity_level = 3  # else onnxruntime remarks on every parameter that it is not a constant
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
image, label = session.get_inputs()
outputs = [output.name for output in session.get_outputs()]
rng = np.random.default_rng(0)
templates = np.kron(rng.standard_normal((10, 1, 4, 4)), np.ones((1, 1, 8, 8))).astype(np.float32)  # a pattern per class
state: dict[str, np.ndarray] = {}
for step in range(500):
    labels = rng.integers(0, 10, label.shape).astype(np.int32)
    images = 2 * templates[labels] + rng.standard_normal(image.shape).astype(np.float32)
    loss, *updated = session.run(outputs, {**state, image.name: images, label.name: labels})
    state = {name.removesuffix(".updated"): value for name, value in zip(outputs[1:], updated, strict=True)}
    if step % 100 == 99:
        print(f"step {step + 1:3d}  loss {loss:.5f}")
