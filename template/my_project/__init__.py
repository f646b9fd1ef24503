"""A project of runner: a network, and data to train it with."""
