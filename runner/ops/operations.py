"""The second import path of the operators, as in the reference: `import runner.ops.operations as P`.

It imports all of them, so that `runner.core.operators.REGISTRY` is complete.
"""

import functools

from runner.host.lazy import reference_attribute
from runner.ops import *  # noqa: F403

__getattr__ = functools.partial(reference_attribute, __name__)
__path__: list[str] = []  # MindSpore has modules below it: runner/mindspore/addresses.py
