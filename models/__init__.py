"""The networks of configs: name, then file and constructor in this folder.

A constructor takes `num_classes`, `num_channels` (of the images) and its own keyword arguments.
"""

NETWORKS = {
    "lenet5": ("lenet", "LeNet5"),
    "resnet18": ("resnet", "resnet18"),
    "resnet34": ("resnet", "resnet34"),
    "resnet50": ("resnet", "resnet50"),
    "resnet101": ("resnet", "resnet101"),
    "resnet152": ("resnet", "resnet152"),
}
