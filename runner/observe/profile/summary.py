"""The summary of a profiled training on the console: its step, the largest operators, and one recommendation."""

from collections.abc import Iterator

from runner.observe.profile.distribution import Distribution
from runner.observe.profile.figures import ProfileFigures
from runner.observe.profile.ranking import RankedOperator

TOP = 10


def lines(figures: ProfileFigures) -> Iterator[str]:
    """The summary, line by line."""
    whole = figures.step or 1.0
    samples = figures.spread.samples
    spread = f" (quartiles of {samples}: {_quartiles(figures.spread)})" if samples > 1 else ""
    timed = f"operators were timed in {figures.timed} of them"
    yield f"{figures.title}: {figures.steps} steps, {figures.step / 1e6:.3f} ms each{spread}; {timed}"
    for name, part in figures.parts.items():
        yield f"  {name:22} {part.value / 1e6:10.3f} ms  {part.value / whole:6.1%}  {_spread(part)}"
    if figures.ranked:
        yield f"largest of {figures.operators} operators, with the quartiles of {figures.timed} steps:"
    for one in figures.ranked[:TOP]:
        time = one.operator.distribution
        figure = f"{time.value / 1e6:10.3f} ms  {time.value / whole:6.1%}  {_quartiles(time)}"
        yield f"  {one.places:>5} {figure}  {_name(one)}"
    yield from figures.sentences
    yield from (f"note: {note}" for note in figures.notes)
    yield f"next: {figures.next}"


def _spread(time: Distribution) -> str:
    """The kind of average with the number of samples, and the quartiles."""
    if time.samples < 2:
        return "one sample"
    return f"{'mean' if time.is_mean else 'median'} of {time.samples}, quartiles {_quartiles(time)}"


def _quartiles(time: Distribution) -> str:
    return f"{time.low / 1e6:.3f} to {time.high / 1e6:.3f} ms"


def _name(one: RankedOperator) -> str:
    others = [name.rpartition("/")[2] for name in one.operator.shared_with]
    return one.label + (f" (with parts of {', '.join(others[:3])})" if others else "")
