"""Networks by the name that a config gives them: name, then file and class in this folder."""

NETWORKS = {
    "lenet5": ("lenet", "LeNet5"),
}
