"""Trackers (TensorBoard, MLflow): they follow the files of a run."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
