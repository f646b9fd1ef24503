"""The operators under the reference's second address: `import runner.ops.operations as P`.

It loads all of them, so that `runner.core.primitive.REGISTRY` is complete.
"""

from runner.ops import *  # noqa: F403
