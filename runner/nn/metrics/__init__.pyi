from runner.nn.metrics.base import *
from runner.nn.metrics.by_name import *
from runner.nn.metrics.classification import *
from runner.nn.metrics.others import *
