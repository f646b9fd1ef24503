"""The receiver operating characteristic, and the area under a curve."""

from typing import Any

import numpy as np

from runner.errors import ConfigError, ShapeError
from runner.nn.metrics.base import Metric, of_arrays, require_data, require_shapes
from runner.validation.arguments import flag, whole

__all__ = ["ROC", "auc"]

Curve = tuple[np.ndarray, np.ndarray, np.ndarray]


class ROC(Metric):
    """The receiver operating characteristic: false and true positive rates, and the scores from which on they hold.

    Outputs and targets of one shape are scores, of which large ones mean the class `pos_label` (default 1), and class
    numbers; `eval` returns three arrays. Outputs (N, C, ...) for targets (N, ...) are scores of `class_num` classes;
    `eval` returns three lists with an array for each class against the others. The first score is above all others by
    1: there nothing is positive. The curve is that of all batches; MindSpore r1.2 keeps the last one only.

    Raises ConfigError for arguments that do not fit the shapes, and for a class of which there are no samples, or only.
    """

    is_scalar = False

    def __init__(self, class_num: int | None = None, pos_label: int | None = None) -> None:
        for name, value, least in (("class_num", class_num, 1), ("pos_label", pos_label, -(2**63))):
            if value is not None:
                whole({}, least, **{name: value})
        self.class_num, self.pos_label = class_num, pos_label
        self.clear()

    def clear(self) -> None:
        self.outputs: list[np.ndarray] = []  # (M,) or (M, C) of each batch
        self.targets: list[np.ndarray] = []  # (M,)

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        is_one = output.ndim == target.ndim
        fits = output.shape == target.shape if is_one else output.shape[:1] + output.shape[2:] == target.shape
        require_shapes(self, fits, output, target, "targets (N, ...) for scores (N, ...) or (N, C, ...)")
        classes = 1 if is_one else output.shape[1]
        if (self.class_num or 1) != classes:
            rows = {"given": self.class_num, "classes": classes, "output": output.shape, "target": target.shape}
            raise ConfigError("class_num is not the number of classes", **rows)
        if not is_one and self.pos_label is not None:
            raise ConfigError("pos_label is for one score per sample", given=self.pos_label, output=output.shape)
        if self.outputs and self.outputs[0].ndim != (1 if is_one else 2):
            raise ShapeError("the number of axes changes between batches", output=output.shape)
        self.outputs.append(output.ravel() if is_one else np.moveaxis(output, 1, -1).reshape(-1, classes))
        self.targets.append(target.ravel())

    def eval(self) -> tuple[Any, Any, Any]:
        require_data(self, sum(map(len, self.targets)))
        outputs, targets = np.concatenate(self.outputs), np.concatenate(self.targets)
        if outputs.ndim == 1:
            label = 1 if self.pos_label is None else self.pos_label
            return _curve(outputs, targets == label, label)
        curves = [_curve(scores, targets == number, number) for number, scores in enumerate(outputs.T)]
        return tuple([list(parts) for parts in zip(*curves, strict=True)])  # type: ignore[return-value]


def _curve(scores: np.ndarray, is_positive: np.ndarray, label: int) -> Curve:
    """False positive rates, true positive rates and thresholds (K,), for falling thresholds."""
    order = np.argsort(-scores, kind="stable")
    scores, is_positive = scores[order], is_positive[order]
    last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)  # of equal scores
    true = np.append(0, np.cumsum(is_positive)[last])
    false = np.append(0, np.cumsum(~is_positive)[last])
    for count, what in ((true[-1], "has no samples"), (false[-1], "has all samples")):
        if not count:
            raise ConfigError(f"a class without a curve: it {what}", metric="ROC", label=label)
    return false / false[-1], true / true[-1], np.append(scores[0] + 1, scores[last])


def auc(x: np.ndarray, y: np.ndarray, reorder: bool = False) -> float:
    """The area under a curve through the points (x, y), each (N,) or (N, 1), by the trapezoidal rule.

    With the false and true positive rates of `ROC` it is that under the receiver operating characteristic. x rises or
    falls, or is sorted first with `reorder`. Raises ShapeError for other shapes or a single point, ConfigError for x
    that rises and falls, and for what is no array.
    """
    flag({}, reorder=reorder)
    for name, values in (("x", x), ("y", y)):
        if not isinstance(values, np.ndarray):
            allowed = "an array, of which nn.ROC with several classes returns a list"
            raise ConfigError(f"{name} is no array", given=type(values).__name__, allowed=allowed)
    if not (len(x) == len(y) > 1 and all(a.ndim == 1 or a.shape[1:] == (1,) for a in (x, y))):
        raise ShapeError("no curve", x=x.shape, y=y.shape, allowed="(N,) for both, with N of at least 2")
    x, y = x.ravel(), y.ravel()
    if reorder:
        order = np.lexsort((y, x))
        x, y = x[order], y[order]
    steps = np.diff(x)
    if (steps < 0).any() and (steps > 0).any():
        raise ConfigError("x rises and falls", repair="auc(x, y, reorder=True)")
    return float((np.abs(steps) * (y[1:] + y[:-1]) / 2).sum())
