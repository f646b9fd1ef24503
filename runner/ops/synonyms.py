"""Second names of operators that the reference keeps for older scripts."""

from runner.ops.activation_smooth import FastGeLU
from runner.ops.activation_variants import GeLU
from runner.ops.elementwise import Add
from runner.ops.handle import Identity
from runner.ops.math import Reciprocal
from runner.ops.rows import Gather
from runner.ops.split import Stack, Unstack

__all__ = ["FastGelu", "GatherV2", "Gelu", "Inv", "Pack", "SparseGatherV2", "TensorAdd", "Unpack", "identity"]

TensorAdd = Add
GatherV2 = SparseGatherV2 = Gather
Pack, Unpack = Stack, Unstack
Inv = Reciprocal
Gelu, FastGelu = GeLU, FastGeLU
identity = Identity
