"""Address of the reference: `runner.common.initializer`."""
