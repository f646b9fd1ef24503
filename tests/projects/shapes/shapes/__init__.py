"""Shapes in small images: a network, a loss and a callback of our own."""
