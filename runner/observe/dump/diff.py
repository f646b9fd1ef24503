"""The comparison of an operator, parameter or constant of two dumps, and the verdict on all of them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from runner.observe.dump.file_names import INPUT
from runner.observe.dump.metrics import Measures
from runner.types import TensorType

GROWTH = 4.0  # of the 573 operators of a step of ResNet-50, one mode against the other, none has more than 2.2
MAX_INPUT_DISTANCE = 0.1  # inputs with a larger distance are different data, so that the rest is not rounding
DISCONTINUOUS = {
    *("ReluGrad", "ReLU6Grad", "MaxPoolGrad", "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"),
    *("Sign", "Floor", "Cast", "Argmax", "Argmin"),
}
FLIPPED = 1e-3  # share of elements, but at least one
_TYPE = re.compile(r"([A-Za-z0-9]+)-op\d+$")


class DiffStatus(StrEnum):
    """The result of comparing an operator.

    DIFFERS: the operator is the cause. An output is outside of tolerance, and its |A - B| / |B| is more than GROWTH
    times that of the inputs. INPUTS: the inputs are outside of tolerance. GROWS: the inputs are within tolerance and
    the outputs are not, because rounding errors accumulate in deep networks. Rounding may flip a few elements of
    DISCONTINUOUS operators; that is GROWS, too.
    """

    SAME = "same"
    DIFFERS = "differs"
    INPUTS = "inputs differ"
    GROWS = "grows"


@dataclass(frozen=True)
class TensorPair:
    """A tensor of both dumps. `measures` is None if the types cannot be compared, which counts as a difference."""

    label: str
    types: tuple[TensorType, TensorType]
    formats: tuple[str, str]
    measures: Measures | None

    @property
    def differs(self) -> bool:
        """Whether an element is outside of tolerance."""
        return self.measures is None or self.measures.outside > 0

    @property
    def is_input(self) -> bool:
        """Whether it is an input of the operator; otherwise it is an output."""
        return self.label.startswith(INPUT)

    @property
    def distance(self) -> float:
        """|A - B| / |B|."""
        return math.inf if self.measures is None else self.measures.l2

    @property
    def has_few_differences(self) -> bool:
        """Whether so few elements differ that rounding may have flipped them."""
        return self.measures is not None and self.measures.outside <= max(1.0, FLIPPED * self.measures.elements)


@dataclass(frozen=True)
class EntryComparison:
    """An operator, or a parameter or constant (`is_value`), of both dumps.

    `only` are the labels of tensors that one of the dumps lacks, `foreign` those of inputs that come from operators
    which are not partners, because a network has an operator more.
    """

    iteration: int
    names: tuple[str, str]
    is_value: bool
    pairs: Sequence[TensorPair]
    only: Sequence[str]
    foreign: frozenset[str] = frozenset()

    @property
    def status(self) -> DiffStatus:
        """The status of its outputs relative to its inputs. Foreign inputs may differ if the outputs agree."""
        differing = [pair for pair in self.pairs if pair.differs]
        has_outputs = any(not pair.is_input for pair in self.pairs)
        if not differing or (has_outputs and all(pair.label in self.foreign for pair in differing)):
            return DiffStatus.SAME
        if any(self._is_cause(pair) for pair in differing if not pair.is_input):
            return DiffStatus.DIFFERS
        return DiffStatus.INPUTS if any(pair.is_input for pair in differing) else DiffStatus.GROWS

    def _is_cause(self, output: TensorPair) -> bool:
        inputs = max((pair.distance for pair in self.pairs if pair.is_input), default=0.0)
        if not inputs:
            return True
        is_discontinuous = (found := _TYPE.search(self.names[0])) is not None and found[1] in DISCONTINUOUS
        is_flip = is_discontinuous and output.has_few_differences
        return inputs <= MAX_INPUT_DISTANCE and output.distance > GROWTH * inputs and not is_flip


@dataclass
class Verdict:
    """The first difference among the comparisons added so far.

    `first` is the cause; `earlier` is an entry before it that is outside of tolerance without being a cause. `first`
    is None if the iteration of `earlier` has no cause: rounding errors accumulated, or the input data differ.
    """

    first: EntryComparison | None = None
    earlier: EntryComparison | None = None

    def add(self, found: EntryComparison) -> bool:
        """Add the next comparison. Returns whether later ones may still change the verdict."""
        if self.first is not None or (self.earlier is not None and found.iteration != self.earlier.iteration):
            return False  # later differences follow from this one
        if found.status is DiffStatus.DIFFERS:
            self.first = found
        elif found.status is not DiffStatus.SAME:
            self.earlier = self.earlier or found
        return self.first is None
