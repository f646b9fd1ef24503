"""Balanced brackets: a dataset, two networks with an operator, and a schedule of our own."""
