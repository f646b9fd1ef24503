"""ResNets with the weights of torchvision compute what torchvision computes."""

import numpy as np
import pytest
from both_modes import MODES, step_of

from models.resnet import resnet18, resnet50
from runner.config.schema import names_of
from runner.train.checkpoint.initial_weights import InitialWeights

torch = pytest.importorskip("torch", reason="PyTorch is the oracle here; it is not a dependency of runner")
try:
    import torchvision
except (ImportError, RuntimeError) as reason:  # the latter: that of another version of PyTorch
    pytest.skip(f"torchvision's ResNets are the oracle here: {reason}", allow_module_level=True)
OURS = {"resnet18": resnet18, "resnet50": resnet50}


def theirs(name: str, path: str) -> torch.nn.Module:
    """A network with random weights and statistics, whose weights are saved."""
    from safetensors.torch import save_file

    torch.manual_seed(3)
    network = getattr(torchvision.models, name)(weights=None)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.1)
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
    save_file(network.state_dict(), path)
    return network.eval()


@pytest.mark.parametrize("name", OURS)
def test_the_outputs_are_those_of_torchvision(name, tmp_path):
    path = str(tmp_path / "theirs.safetensors")
    other = theirs(name, path)
    x = np.random.default_rng(5).normal(size=(2, 3, 96, 96)).astype(np.float32)
    with torch.no_grad():
        expected = other(torch.from_numpy(x)).numpy()
    distances = {}
    for stem in ("torchvision", "imagenet"):
        network = OURS[name](num_classes=1000, stem=stem)
        InitialWeights(path, "CKP", strict=True, names=names_of("torchvision")).load(network)
        for mode in MODES:
            made = step_of(network.construct, mode)(x)[0]
            distances[stem, mode] = float(np.abs(made - expected).max() / np.abs(expected).max())
    assert max(distances["torchvision", mode] for mode in MODES) < 1e-4
    assert min(distances["imagenet", mode] for mode in MODES) > 1e-3  # another padding of the max-pool
