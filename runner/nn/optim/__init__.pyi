from runner.nn.optim.optimizer import *
from runner.nn.optim.rules import *
