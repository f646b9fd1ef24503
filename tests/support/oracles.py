"""The same mathematics again, in float64 and in loops over single elements; nothing is shared with runner."""

import itertools
import math

import numpy as np


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """(before, after) so that ceil(size / stride) windows fit, with the odd one after."""
    windows = math.ceil(size / stride)
    missing = max(0, (windows - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return missing // 2, missing - missing // 2


def out_size(size: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int = 1) -> int:
    """Number of windows that lie within the padded image."""
    starts = range(0, size + sum(pads) - (kernel - 1) * dilation, stride)
    return len(starts)


class Convolution:
    """Every multiplication of a convolution, one at a time."""

    def __init__(self, x_shape, out_channels, kernel, mode, pad, stride, dilation, group):
        self.x_shape, self.group, self.kernel = x_shape, group, kernel
        self.stride, self.dilation = stride, dilation
        top_bottom, left_right = (pad[0], pad[1]), (pad[2], pad[3])
        if mode == "same":
            top_bottom = same_padding(x_shape[2], kernel[0], stride[0], dilation[0])
            left_right = same_padding(x_shape[3], kernel[1], stride[1], dilation[1])
        self.before = top_bottom[0], left_right[0]
        rows = out_size(x_shape[2], kernel[0], stride[0], top_bottom, dilation[0])
        columns = out_size(x_shape[3], kernel[1], stride[1], left_right, dilation[1])
        self.out_shape = x_shape[0], out_channels, rows, columns
        self.w_shape = out_channels, x_shape[1] // group, *kernel

    def products(self):
        """(element of y, element of x, element of w) for each multiplication: y += x * w."""
        n_x, _, height, width = self.x_shape
        filters_per_group = self.w_shape[0] // self.group
        for n, k, i, j in itertools.product(range(n_x), *map(range, self.out_shape[1:])):
            first = (k // filters_per_group) * self.w_shape[1]
            for c, u, v in itertools.product(*map(range, self.w_shape[1:])):
                row = i * self.stride[0] + u * self.dilation[0] - self.before[0]
                column = j * self.stride[1] + v * self.dilation[1] - self.before[1]
                if 0 <= row < height and 0 <= column < width:
                    yield (n, k, i, j), (n, first + c, row, column), (k, c, u, v)

    def all_three(self, x, w, dout):
        """y, the gradient for x, and the gradient for w."""
        y, dx, dw = np.zeros(self.out_shape), np.zeros(self.x_shape), np.zeros(self.w_shape)
        x, w, dout = (dict(np.ndenumerate(a.astype(np.float64))) for a in (x, w, dout))
        for at_y, at_x, at_w in self.products():
            y[at_y] += x[at_x] * w[at_w]
            dx[at_x] += dout[at_y] * w[at_w]
            dw[at_w] += dout[at_y] * x[at_x]
        return y, dx, dw


def pool(x, kernel, stride, mode, dout):
    """Maximum, its gradient (to the first maximum in row-major order), mean over what is not padding, its gradient."""
    pads = [
        same_padding(s, k, t) if mode == "same" else (0, 0) for s, k, t in zip(x.shape[2:], kernel, stride, strict=True)
    ]
    return padded_pool(x, kernel, stride, pads, dout)


def pooled_size(size: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int, ceil_mode: bool) -> int:
    """Number of windows; incomplete ones at the end count if they begin before the end of the image."""
    count = out_size(size, kernel, stride, pads, dilation)
    whole_extent = (kernel - 1) * dilation + 1
    missing = count == 0 or (count - 1) * stride + whole_extent < size + sum(pads)
    return count + 1 if ceil_mode and missing and count * stride < size + pads[0] else count


def padded_pool(x, kernel, stride, pads, dout, dilation=(1, 1), ceil_mode=False, counted=False):
    """As `pool`, for (before, after) of both axes; `counted` divides by the elements of the padding as well."""
    n, c, height, width = x.shape
    windows = zip((height, width), kernel, stride, pads, dilation, strict=True)
    sizes = [pooled_size(*window, ceil_mode) for window in windows]
    most, mean = np.zeros((n, c, *sizes)), np.zeros((n, c, *sizes))
    most_back, mean_back = np.zeros(x.shape), np.zeros(x.shape)
    for at in np.ndindex(n, c, *sizes):
        first = [at[2 + k] * stride[k] - pads[k][0] for k in (0, 1)]
        rows, columns = (range(first[k], first[k] + kernel[k] * dilation[k], dilation[k]) for k in (0, 1))
        places = [(*at[:2], i, j) for i in rows for j in columns if 0 <= i < height and 0 <= j < width]
        elements = [float(x[place]) for place in places]
        inside = [(i, j) for i in rows for j in columns if i < height + pads[0][1] and j < width + pads[1][1]]
        count = len(inside) if counted else len(places)
        most[at], mean[at] = max(elements), math.fsum(elements) / count
        most_back[places[elements.index(max(elements))]] += dout[at]
        for place in places:
            mean_back[place] += dout[at] / count
    return most, most_back, mean, mean_back


def cross_entropy(logits, labels):
    """(loss per sample, gradient for the logits) of distributions, from the definition."""
    losses, gradients = [], []
    for row, wanted in zip(logits.astype(np.float64).tolist(), labels.astype(np.float64).tolist(), strict=True):
        exponentials = [math.exp(value) for value in row]
        total = math.fsum(exponentials)
        losses.append(-math.fsum(w * math.log(e / total) for e, w in zip(exponentials, wanted, strict=True)))
        gradients.append([e / total - w for e, w in zip(exponentials, wanted, strict=True)])
    return np.array(losses), np.array(gradients)


def momentum(w, v, g, rate, factor, nesterov):
    """(w, v) after a step, as MindSpore's description of Momentum says."""
    v = factor * v + g
    return w - rate * (g + factor * v if nesterov else v), v


def sgd(w, a, g, rate, factor, stat, dampening, decay, nesterov):
    """(w, accum, stat) after a step, as PyTorch documents its SGD."""
    g = g + decay * w
    a = g if stat == 0 and a is None else factor * a + (1 - (dampening if stat > 0 else 0)) * g
    return w - rate * (g + factor * a if nesterov else a), a, stat + 1


def adam(w, m, v, g, rate, b1, b2, eps, t):
    """(w, m, v) after step t (from 1), in the order of computation at the end of section 2 of Kingma and Ba."""
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
    return w - rate * math.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps), m, v


def scrambled(number: int) -> int:
    """The integer hash behind Dropout, in Python's unbounded integers."""
    for _ in range(2):
        number = ((number ^ (number >> 16)) * 0x45D9F3B) % 2**32
    return number ^ (number >> 16)


def dropout_mask(size, keep_prob, seed, counter):
    """Which elements are kept."""
    start = scrambled((counter + scrambled(seed)) % 2**32)
    return [scrambled(number ^ start) < round(keep_prob * 2**32) for number in range(size)]
