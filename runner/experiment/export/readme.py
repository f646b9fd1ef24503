"""The README.md of an exported directory: what is in it, and how to train with it in three languages."""

from collections.abc import Iterator, Mapping
from typing import Any

PURPOSES = {
    "train_step": "one training step: the new values of parameters and state are outputs",
    "train_steps": "{steps} training steps in one call, each with its own batch",
    "network": "the network with the weights after the last step of the run",
    "network_int8": "the same in integers of 8 bits, which is smaller and less exact",
    "inference": "the network with weights as inputs, for those that were just trained",
}
TEXT = """\
# A training step as an ONNX model

Written by runner {runner} ([signature.json](signature.json) has all names, types and shapes). The models have standard
ONNX operators only and run in every onnxruntime; nothing else is needed, not even Python.

| file | content |
|---|---|
{files}
| `{state}` | parameters and state after the last step of the run |
| `{initial}` | the same before its first step, to train from scratch |

## How a step is called

| role of an input | value |
|---|---|
| `data`, `target` | a batch, preprocessed as `preprocessing` in signature.json says; its first axis: {batch} |
| `learning_rate` | a number, {learning_rate:g} at the first step of the run ({schedule}) |
| `step` | the number of the step, from 0, from which random operators draw; only in some networks |
| `parameter`, `state` | at first from a state file (`entries` has the names in it), then from the step before |

An output whose `feeds` is a name is the value of that input in the next step. The output `{loss}` is the loss.

## Python

```python
import json
import numpy as np
import onnxruntime as ort
from safetensors.numpy import load_file, save_file

signature = json.load(open("signature.json"))
step, begin = signature["models"]["train_step"], signature["initial"]
session = ort.InferenceSession(step["file"])
stored = load_file(begin["file"])
state = {{name: stored[entry] for name, entry in begin["entries"].items()}}
inputs = {{value["role"]: value for value in step["inputs"]}}
known = {{value["name"] for value in step["inputs"]}}

def train(batch, number):  # batch: an array for each input of role data or target, by name
    feeds = {{name: value for name, value in state.items() if name in known}} | batch
    if "learning_rate" in inputs:
        feeds[inputs["learning_rate"]["name"]] = np.float32(signature["learning_rate"])
    if "step" in inputs:
        feeds[inputs["step"]["name"]] = np.int64(number)
    feeds = {{name: np.asarray(value) for name, value in feeds.items()}}
    for output, value in zip(step["outputs"], results := session.run(None, feeds)):
        if output["feeds"]:
            state[output["feeds"]] = value
    return results[0]  # the loss

save_file({{begin["entries"][name]: value for name, value in state.items()}}, "weights.safetensors")
```

## Node and browser

The same code with `onnxruntime-node`, or `onnxruntime-web` in a page (`ort` is the module, `state` maps names to
`ort.Tensor`, read from a state file):

```js
const signature = await (await fetch("signature.json")).json(); // in Node: JSON.parse(readFileSync("signature.json"))
const step = signature.models.train_step;
const session = await ort.InferenceSession.create(step.file);

async function train(batch, number) {{
  const feeds = {{ ...batch }};
  for (const {{ name, role }} of step.inputs) {{
    if (name in state) feeds[name] = state[name];
    if (role === "learning_rate") feeds[name] = new ort.Tensor("float32", Float32Array.of(signature.learning_rate), []);
    if (role === "step") feeds[name] = new ort.Tensor("int64", BigInt64Array.of(BigInt(number)), []);
  }}
  const results = await session.run(feeds);
  for (const {{ name, feeds: next }} of step.outputs) if (next) state[next] = results[name];
  return results.{loss}.data[0];
}}
```

## Back to runner

`weights.safetensors` with the parameters, or with parameters and state, is evaluated by the run that was exported, and
another training can begin with it:

```sh
runner eval RUN_DIR checkpoint.load=weights.safetensors
runner +experiment=NAME checkpoint.load=weights.safetensors
```
"""


def text(signature: Mapping[str, Any]) -> str:
    """The text of README.md for the values of `signature.json`."""
    batch = signature["batch"]
    return TEXT.format(
        files="\n".join(_files(signature["models"])),
        runner=signature["runner"],
        state=signature["state"]["file"],
        initial=signature["initial"]["file"],
        batch="any length" if batch == "any" else f"{batch}, no other length",
        learning_rate=signature["learning_rate"],
        schedule=signature["schedule"],
        loss=next(y["name"] for y in signature["models"]["train_step"]["outputs"] if y["role"] == "loss"),
    )


def _files(models: Mapping[str, Any]) -> Iterator[str]:
    for name, model in models.items():
        yield f"| `{model['file']}` | {PURPOSES[name].format(steps=model.get('steps'))} |"
