from runner.nn.optim.optimizer import (
    Optimizer as Optimizer,
)
from runner.nn.optim.rules import (
    FTRL as FTRL,
    LARS as LARS,
    SGD as SGD,
    Adagrad as Adagrad,
    Adam as Adam,
    AdamOffload as AdamOffload,
    AdamWeightDecay as AdamWeightDecay,
    Lamb as Lamb,
    LazyAdam as LazyAdam,
    Momentum as Momentum,
    ProximalAdagrad as ProximalAdagrad,
    RMSProp as RMSProp,
)
