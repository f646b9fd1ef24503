"""Values, operators, the record of applied operators, and the interpreters of both modes."""

from runner.core import interpreter  # noqa: F401  installs the interpreter for operators called outside of networks
