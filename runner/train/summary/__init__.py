"""Summaries of a training in event files: `SummaryRecord`, at the address of MindSpore r1.2."""

from functools import partial

from runner.host.lazy import reference_attribute
from runner.train.summary.summary_record import SummaryRecord as SummaryRecord

__getattr__ = partial(reference_attribute, __name__)
