"""Losses: the names of `mindspore.nn.loss` r1.2, listed in `__init__.pyi`.

Each is a cell of an output of the network and its target, the number that training makes small. It has the attribute
`reduction` (`none`, `mean` or `sum`): a `sum` grows with the batch, a `mean` does not. `activation`, here and in a loss
of your own, says how logits become probabilities, for exported models, metrics and ends of ONNX files: `softmax`, or
`sigmoid` for logits each of which has a target of its own. Losses of values have none. `takes` says what the network
gives to the loss, where it is not logits: `LossInput` has the words.
"""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
