from runner.nn.loss.base import *
from runner.nn.loss.binary import *
from runner.nn.loss.cross_entropy import *
from runner.nn.loss.focal import *
from runner.nn.loss.overlap import *
from runner.nn.loss.sampled_softmax import *
from runner.nn.loss.similarity import *
from runner.nn.loss.values import *
