"""The kinds of networks, with few channels, and the files that are made of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from making.narrow import narrow
from making.networks import TCN, Autoencoder, LeNet, UNet
from torch import nn
from torchvision import models

CLASSES = 4


@dataclass(frozen=True)
class Export:
    """How a file is made. `free` names the axis of the batch; `training` is a TrainingMode of the legacy exporter."""

    exporter: str
    opset: int
    free: bool = False
    training: str = "EVAL"
    folding: bool = True
    variant: str = ""


@dataclass(frozen=True)
class Kind:
    """A network, a batch for it, its loss, and the files to make. `rate` is a learning rate with which it trains."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[np.random.RandomState], dict[str, np.ndarray]]
    exports: tuple[Export, ...]
    loss: str = "cross_entropy"
    targets: Callable[[np.random.RandomState, np.ndarray], np.ndarray] | None = None
    rate: float = 0.01
    settings: dict[str, Any] = field(default_factory=dict)


def images(random: np.random.RandomState, rows: int, channels: int, size: int, block: int = 4) -> dict[str, np.ndarray]:
    """Images of blocks, which a .npz stores in little space."""
    small = np.round(random.standard_normal((rows, channels, size // block, size // block)), 2)
    return {"x": np.kron(small, np.ones((block, block))).astype(np.float32)}


def large_images(random: np.random.RandomState) -> dict[str, np.ndarray]:
    """Two images of 224 pixels; in blocks of one color, a pool of equal elements would choose one by rounding."""
    small = random.randint(-4, 4, (2, 3, 14, 14)) / 4 * 1.5
    pattern = (7 * np.arange(224)[:, None] + 5 * np.arange(224)) % 16 / 16
    return {"x": (np.kron(small, np.ones((16, 16))) + pattern).astype(np.float32)}


def pictures(rows: int = 8, channels: int = 3, size: int = 32, block: int = 4) -> Any:
    return partial(images, rows=rows, channels=channels, size=size, block=block)


def series(random: np.random.RandomState) -> dict[str, np.ndarray]:
    return {"x": random.standard_normal((8, 3, 40)).astype(np.float32)}


def sentences(random: np.random.RandomState) -> dict[str, np.ndarray]:
    """Tokens, and masks of which some end early."""
    mask = np.ones((6, 12), np.int64)
    mask[1, 9:] = mask[4, 5:] = 0
    return {"input_ids": random.randint(0, 60, (6, 12)), "attention_mask": mask}


def tokens(random: np.random.RandomState) -> dict[str, np.ndarray]:
    return {"input_ids": random.randint(0, 60, (4, 12))}


def next_tokens(random: np.random.RandomState, outputs: np.ndarray) -> np.ndarray:
    return random.randint(0, outputs.shape[-1], outputs.shape[:-1]).astype(np.int32)


def smooth(random: np.random.RandomState, outputs: np.ndarray) -> np.ndarray:
    """Values from 0 to 1 of the outputs' shape, in blocks."""
    small = np.round(random.random_sample((*outputs.shape[:2], *(size // 4 for size in outputs.shape[2:]))), 2)
    return np.kron(small, np.ones((4, 4))).astype(np.float32)


def efficientnet() -> nn.Module:
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    parts = partial(MBConvConfig, width_mult=0.2, depth_mult=0.2)
    rows = ((1, 3, 1, 32, 16, 1), (4, 3, 2, 16, 24, 2), (4, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3))
    return EfficientNet([parts(*row) for row in rows], 0.0, stochastic_depth_prob=0.0, num_classes=CLASSES)


def mobilenet_v3() -> nn.Module:
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    parts = partial(InvertedResidualConfig, width_mult=0.5)
    rows = (
        *((16, 3, 16, 16, True, "RE", 2, 1), (16, 3, 72, 24, False, "RE", 2, 1), (24, 5, 40, 32, True, "HS", 2, 1)),
        (32, 5, 64, 32, True, "HS", 1, 1),
    )
    return MobileNetV3([parts(*row) for row in rows], 48, num_classes=CLASSES, dropout=0.0)


def convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(8, 16, 1), CNBlockConfig(16, 24, 2), CNBlockConfig(24, None, 1)]
    return ConvNeXt(blocks, stochastic_depth_prob=0.0, layer_scale=0.5, num_classes=CLASSES)


def swin(depths: list[int]) -> nn.Module:
    sizes = {"patch_size": [4, 4], "embed_dim": 12, "depths": depths, "num_heads": [2, 3], "window_size": [4, 4]}
    return models.SwinTransformer(**sizes, stochastic_depth_prob=0.0, num_classes=CLASSES)


def vit() -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 24, "mlp_dim": 48}
    return models.VisionTransformer(**sizes, num_classes=CLASSES)


def bert(attention: str) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes: dict[str, Any] = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    config = BertConfig(
        **sizes, intermediate_size=48, max_position_embeddings=16, num_labels=CLASSES, attn_implementation=attention
    )
    return BertForSequenceClassification(config)


def gpt2(attention: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"vocab_size": 60, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 2}
    sizes |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False, attn_implementation=attention))


def resnext() -> nn.Module:
    block = models.resnet.Bottleneck
    return models.ResNet(block, [2, 2, 2, 2], num_classes=CLASSES, groups=32, width_per_group=4)


def densenet() -> nn.Module:
    return models.DenseNet(
        growth_rate=4, block_config=(2, 3, 4, 2), num_init_features=8, bn_size=2, num_classes=CLASSES
    )


def shufflenet() -> nn.Module:
    return models.ShuffleNetV2([2, 3, 2], [8, 16, 24, 32, 48], num_classes=CLASSES)


def mobilenet_v2() -> nn.Module:
    rows = [[1, 8, 1, 1], [4, 8, 2, 2], [4, 16, 2, 2], [4, 16, 2, 1]]
    network = models.MobileNetV2(CLASSES, width_mult=0.25, inverted_residual_setting=rows, dropout=0.0)
    network.features[-1][0] = nn.Conv2d(8, 64, 1, bias=False)
    network.features[-1][1] = nn.BatchNorm2d(64)
    network.classifier[1] = nn.Linear(64, CLASSES)
    return network


def legacy(opset: int, **settings: Any) -> Export:
    return Export("legacy", opset, **settings)


def dynamo(opset: int, **settings: Any) -> Export:
    return Export("dynamo", opset, **settings)


KINDS = (
    Kind(
        "lenet",
        LeNet,
        pictures(8, 1, 28),
        (legacy(9, free=True), legacy(13, training="TRAINING"), dynamo(18, free=True)),
    ),
    Kind(
        "alexnet",
        lambda: narrow(models.AlexNet(CLASSES, dropout=0.0), 16, 256),
        large_images,
        (legacy(9), dynamo(18, free=True)),
        rate=0.003,
    ),
    Kind(
        "vgg11",
        lambda: narrow(models.vgg11(num_classes=CLASSES, dropout=0.0), 24, 256),
        large_images,
        (legacy(10, free=True), dynamo(20)),
        rate=0.003,
    ),
    Kind(
        "resnet18",
        lambda: narrow(models.resnet18(num_classes=CLASSES), 20),
        pictures(size=64),
        (legacy(11, free=True), legacy(13, training="TRAINING", folding=False), dynamo(18, free=True)),
    ),
    Kind(
        "resnet50",
        lambda: narrow(models.resnet50(num_classes=CLASSES), 32),
        pictures(size=64),
        (legacy(12), legacy(14, training="PRESERVE", folding=False), dynamo(21, free=True)),
    ),
    Kind(
        "resnext",
        lambda: narrow(resnext(), 32, groups=2),
        pictures(size=64),
        (legacy(13, free=True), dynamo(20)),
    ),
    Kind("densenet", densenet, pictures(size=64), (legacy(12, free=True), dynamo(18, free=True))),
    Kind("mobilenetv2", mobilenet_v2, pictures(size=64), (legacy(10, free=True), dynamo(18))),
    Kind("mobilenetv3", mobilenet_v3, pictures(size=64), (legacy(14, free=True), dynamo(20, free=True))),
    Kind("shufflenet", shufflenet, pictures(size=64), (legacy(11, free=True), dynamo(18))),
    Kind("efficientnet", efficientnet, pictures(size=64), (legacy(15, free=True), dynamo(18, free=True))),
    Kind("convnext", convnext, pictures(size=32), (legacy(17), dynamo(20, free=True))),
    Kind("vit", vit, pictures(), (legacy(14, free=True), dynamo(18, free=True), dynamo(23)), rate=0.003),
    Kind("swin", partial(swin, [2, 1]), pictures(), (dynamo(20, free=True),), rate=0.003),
    Kind("swin", partial(swin, [1, 1]), pictures(), (legacy(17),), rate=0.003),
    Kind("swin", partial(swin, [2]), pictures(), (legacy(14, free=True),)),
    Kind("bert", partial(bert, "eager"), sentences, (legacy(12, free=True),), rate=0.003),
    Kind("bert", partial(bert, "sdpa"), sentences, (legacy(17), dynamo(20, free=True)), rate=0.003),
    Kind("gpt2", partial(gpt2, "eager"), tokens, (legacy(13, free=True),), targets=next_tokens),
    Kind("gpt2", partial(gpt2, "sdpa"), tokens, (legacy(17), dynamo(20, free=True)), targets=next_tokens),
    Kind(
        "tcn",
        partial(TCN, 3, CLASSES, (8, 12, 16)),
        series,
        (legacy(11, free=True), legacy(12, training="TRAINING", folding=False), dynamo(18, free=True)),
    ),
    Kind(
        "autoencoder", Autoencoder, pictures(8, 1, 28), (legacy(13), dynamo(18, free=True)), loss="mse", targets=smooth
    ),
    Kind(
        "unet",
        partial(UNet, 3, 2, 4, ("transposed", "bilinear")),
        pictures(4),
        (legacy(11, free=True), dynamo(18)),
        loss="mse",
        targets=smooth,
    ),
    Kind(
        "unet",
        partial(UNet, 3, 2, 4, ("nearest", "transposed")),
        pictures(4),
        (legacy(18, variant="nearest"), dynamo(20, variant="nearest", free=True)),
        loss="mse",
        targets=smooth,
    ),
)
