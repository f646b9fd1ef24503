from runner.mindspore.dataset.transforms import (
    Compose as Compose,
    OneHotOp as OneHotOp,
    RandomApply as RandomApply,
    RandomChoice as RandomChoice,
    RandomOrder as RandomOrder,
)
