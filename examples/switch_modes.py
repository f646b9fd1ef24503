"""One layer in graph mode, then in PyNative mode: the same numbers (after the page on running management)."""

import numpy as np

import runner.nn as nn
from runner import Tensor, context

context.set_context(mode=context.GRAPH_MODE, device_target="CPU")

conv = nn.Conv2d(3, 4, 3, bias_init="zeros")
input_data = Tensor(np.ones([1, 3, 5, 5]).astype(np.float32))
in_graph_mode = conv(input_data)

context.set_context(mode=context.PYNATIVE_MODE)
in_pynative_mode = conv(input_data)

print(in_pynative_mode)
print("largest difference:", np.abs(in_graph_mode.asnumpy() - in_pynative_mode.asnumpy()).max())
