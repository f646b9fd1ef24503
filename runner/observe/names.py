"""Full names of operators, which match with and without the scope that data sinking adds."""

SUNK_ROOT = "network-TrainOneStepCell/"  # the cell that MindSpore wraps around a sunk step


def without_root(name: str) -> str:
    """The full name that the operator has where steps run one by one.

    >>> without_root("Gradients/Default/network-TrainOneStepCell/fc-Dense/MatMul-op3")
    'Gradients/Default/fc-Dense/MatMul-op3'
    """
    return name.replace(SUNK_ROOT, "", 1)
