"""Scripts of MindSpore r1.2: its module paths, its public names, and what only such scripts use.

Operators, layers, optimizers, losses, metrics and datasets are in the packages of their kind, with the names of r1.2.
"""
