# mypy: ignore-errors
"""One training step in JAX on the CPU, compiled as a whole, as benchmarks/step.py measures runner's.

    pip install jax
    python benchmarks/peers/jax_jit.py lenet5 --threads 2

Images lie as JAX's own libraries lay them (batch, row, column, channel). The state is given away with each step, so
that XLA may update it in place. XLA counts the cores that it may use, so the process is confined to as many as it may
have threads. The first step compiles. Prints one JSON object.
"""

import os

import timing

OPTIONS = timing.parsed(timing.arguments(__doc__))
timing.confine(OPTIONS.threads)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402  (it starts its threads when it is imported)
import numpy as np  # noqa: E402
from jax import (  # noqa: E402
    lax,
    numpy as jnp,
)

LAYOUT = ("NHWC", "HWIO", "NHWC")
RNG = np.random.default_rng(0)


def uniform(*shape: int) -> np.ndarray:
    """Weights: the last axis is what is made."""
    bound = np.prod(shape[:-1]) ** -0.5
    return RNG.uniform(-bound, bound, shape).astype(np.float32)


def dense(given: int, made: int) -> dict:
    """A fully connected layer."""
    return {"w": uniform(given, made), "b": np.zeros(made, np.float32)}


def conv(size: int, given: int, made: int) -> dict:
    """A convolution and its normalisation."""
    return {"w": uniform(size, size, given, made), "g": np.ones(made, np.float32), "b": np.zeros(made, np.float32)}


def applied(x, p, padding, stride=1):
    """The convolution."""
    return lax.conv_general_dilated(x, p["w"], (stride, stride), padding, dimension_numbers=LAYOUT)


def normed(x, p, moving, stride=1):
    """A convolution, normalised with the statistics of the batch, which also move `moving` (mean, variance)."""
    x = applied(x, p, "SAME" if stride == 1 else [(p["w"].shape[0] // 2,) * 2] * 2, stride)
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    moved = 0.9 * moving[0] + 0.1 * mean, 0.9 * moving[1] + 0.1 * variance
    return (x - mean) * (p["g"] * lax.rsqrt(variance + 1e-5)) + p["b"], moved


def pool(x, size, kind, start):
    """Windows that touch each other."""
    return lax.reduce_window(x, start, kind, (1, size, size, 1), (1, size, size, 1), "VALID")


def lenet_parameters() -> dict:
    """`models/lenet.py`."""
    convs = {"c1": {"w": uniform(5, 5, 1, 6)}, "c2": {"w": uniform(5, 5, 6, 16)}}
    return convs | {"f1": dense(400, 120), "f2": dense(120, 84), "f3": dense(84, 10)}


def lenet(p, moving, x):
    """Images to logits, and the moved statistics: there are none."""
    for name in ("c1", "c2"):
        x = pool(jax.nn.relu(applied(x, p[name], "VALID")), 2, lax.max, -jnp.inf)
    x = x.reshape(len(x), -1)
    for name in ("f1", "f2"):
        x = jax.nn.relu(x @ p[name]["w"] + p[name]["b"])
    return x @ p["f3"]["w"] + p["f3"]["b"], moving


def blocks(net: str):
    """Name, channels taken, planes, channels made and stride of each block of a ResNet."""
    (bottleneck, counts), given = timing.BLOCKS[net], 64
    for number, count in enumerate(counts):
        for k in range(count):
            planes, stride = 64 << number, 2 if number and not k else 1
            made = planes * (4 if bottleneck else 1)
            yield f"{number}.{k}", given, planes, made, stride
            given = made


def resnet_parameters(net: str) -> dict:
    """`models/resnet.py` with the stem for images of 32 x 32."""
    p = {"stem": conv(3, 3, 64)}
    for name, given, planes, made, stride in blocks(net):
        inner = [(1, given, planes), (3, planes, planes), (1, planes, made)]
        for k, shape in enumerate(inner if timing.BLOCKS[net][0] else [(3, given, planes), (3, planes, made)]):
            p[f"{name}.{k}"] = conv(*shape)
        if stride > 1 or given != made:
            p[f"{name}.shortcut"] = conv(1, given, made)
    return p | {"linear": dense(made, 10)}


def resnet(net: str, p, moving, x):
    """Images to logits, and the moved statistics."""
    moved, last, strided = {}, *((2, 1) if timing.BLOCKS[net][0] else (1, 0))

    def layer(x, name, stride=1):
        made, moved[name] = normed(x, p[name], moving[name], stride)
        return made

    x = jax.nn.relu(layer(x, "stem"))
    for name, _, _, _, stride in blocks(net):
        y = x
        for k in range(last + 1):
            y = layer(y, f"{name}.{k}", stride if k == strided else 1)
            y = y if k == last else jax.nn.relu(y)
        shortcut = f"{name}.shortcut"
        x = jax.nn.relu(y + (layer(x, shortcut, stride) if shortcut in p else x))
    x = pool(x, 4, lax.add, 0.0).reshape(len(x), -1) / 16
    return x @ p["linear"]["w"] + p["linear"]["b"], moved


def step_of(network):
    """A training step: state and rows of the data to the new state and the loss."""

    def loss_of(p, moving, x, y):
        logits, moved = network(p, moving, x)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean(), moved

    def step(state, images, labels, rows):
        p, velocity, moving = state
        (loss, moved), gradient = jax.value_and_grad(loss_of, has_aux=True)(p, moving, images[rows], labels[rows])
        velocity = jax.tree.map(lambda v, g: timing.MOMENTUM * v + g, velocity, gradient)
        return (jax.tree.map(lambda w, v: w - timing.LEARNING_RATE * v, p, velocity), velocity, moved), loss

    return jax.jit(step, donate_argnums=0)


def main() -> None:
    """Measure."""
    o = OPTIONS
    large = o.net in timing.BLOCKS
    p = resnet_parameters(o.net) if large else lenet_parameters()
    moving = {k: (np.zeros_like(v["g"]), np.ones_like(v["g"])) for k, v in p.items() if "g" in v}
    step = step_of((lambda *given: resnet(o.net, *given)) if large else lenet)
    count, (channels, *size) = timing.rows_of(o.net, o.batch), timing.shape_of(o.net)
    images = jnp.asarray(RNG.standard_normal((count, *size, channels), np.float32))
    labels, order = jnp.asarray(RNG.integers(0, 10, count, np.int32)), RNG.permutation(count).astype(np.int32)
    state = jax.tree.map(jnp.asarray, (p, jax.tree.map(np.zeros_like, p), moving))

    def run(steps: int) -> None:
        nonlocal state
        for i in range(steps):
            start = timing.first_row(i, o.net, o.batch)
            state, loss = step(state, images, labels, order[start : start + o.batch])
        jax.block_until_ready((state, loss))

    parameters = sum(a.size for a in jax.tree.leaves(p))
    timing.report("jax", o, version=jax.__version__, parameters=parameters, **timing.timed(run, o.steps))


if __name__ == "__main__":
    main()
