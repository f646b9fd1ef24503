from runner.common.initializer import Initializer as Initializer
from runner.core.values import Parameter as Parameter, ParameterTuple as ParameterTuple, Tensor as Tensor
