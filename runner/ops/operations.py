"""The second import path of the operators, as in the reference: `import runner.ops.operations as P`.

It imports all of them, so that `runner.core.primitive.REGISTRY` is complete.
"""

from runner.ops import *  # noqa: F403
