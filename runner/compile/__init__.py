"""Graph mode: passes over the graph, lowering to ONNX, onnxruntime sessions, and programs that combine the three."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
