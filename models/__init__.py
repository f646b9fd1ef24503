"""The networks that come with runner: name, then the file in this folder that registers it."""

NETWORKS = {
    "lenet5": "lenet",
    "cnn": "cnn",
    "mlp": "mlp",
    "resnet18": "resnet",
    "resnet34": "resnet",
    "resnet50": "resnet",
    "resnet101": "resnet",
    "resnet152": "resnet",
}
