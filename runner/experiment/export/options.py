"""The options of `runner export`."""

from runner.validation.rules import Frozen


class ExportOptions(Frozen):
    """`steps`: of a second training model that makes several in one call; `quantize`: also write the network in 8 bits;
    `opset`: the version of the ONNX operators. None: not given."""

    steps: int | None = None
    quantize: bool = False
    opset: int | None = None
