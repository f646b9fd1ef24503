"""Values, operators, the record that both modes keep, and the interpreters that every operator passes through."""

from runner.core import eager  # noqa: F401  it installs the interpreter of operators that are called outside of networks
