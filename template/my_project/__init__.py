"""A project of runner: a network, data to train it with, and a callback."""
