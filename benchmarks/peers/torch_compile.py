# mypy: ignore-errors
"""One training step in PyTorch whose network `torch.compile` compiles, as benchmarks/step.py measures runner's.

    pip install torch==2.13.0
    python benchmarks/peers/torch_compile.py resnet50 --threads 2

It needs a C++ compiler and Python's headers. Loss and optimizer are eager, as in torch_eager.py. The first step
compiles. Prints one JSON object.
"""

import torch
from torch_eager import measure

if __name__ == "__main__":
    measure("torch.compiler", __doc__, torch.compile)
