"""`mindspore.numpy` of r1.2, which scripts import as `runner.numpy`: numpy's functions of tensors, in operators.

So they have gradients and work while a network is traced. Python's numbers and lists become tensors of 32 bits;
results of tensors with different element types have the type of `promote_types`. `__init__.pyi` lists the names.
"""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
