from runner.common.initializer import Initializer as Initializer
from runner.core.parameter_tuple import ParameterTuple as ParameterTuple
from runner.core.value import Parameter as Parameter, Tensor as Tensor
