"""Operators of one, two or three tensors, element by element."""
