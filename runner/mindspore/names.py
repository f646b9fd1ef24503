"""The public names of MindSpore r1.2, and why runner does not have some of them.

`names.txt` has the names by module; REASONS explains those that are missing.
"""

import re
from functools import cache
from importlib import resources
from typing import NamedTuple

PACKAGE = "runner"


class Reason(NamedTuple):
    """Why runner does not have a name of MindSpore, and what to use in its place."""

    pattern: str  # of the name with its module, as in `ops.ScatterNdAdd`
    why: str
    alternative: str | None = None


_ONNX_QUANTIZATION = "train in Float32 and quantize model/network.onnx, for example with onnxruntime.quantization"
_DATA_PARALLEL = 'context.set_auto_parallel_context(parallel_mode="data_parallel") and mpirun'
_OWN_READER = "ds.GeneratorDataset with a reader of this format"
REASONS = (
    Reason(
        r"nn\..*(Quant|FakeQuant|BnFold).*|ops\.PQC", "it belongs to quantization-aware training", _ONNX_QUANTIZATION
    ),
    Reason(
        r".*Thor|nn\.thor",
        "it belongs to the second-order optimizer THOR",
        "nn.Momentum, nn.Lamb or nn.AdamWeightDecay",
    ),
    Reason(
        r"ops\..*(Energy|Force|Crd|LeapFrog|MDTemp|MDIter|Geometry|NeighborList).*",
        "it belongs to molecular dynamics (SPONGE) on a GPU",
    ),
    Reason(
        r".*(BBox|BoundingBox|CropAndResize).*|ops\.(IOU|ROIAlign|NMSWithMask|CheckValid)",
        "it belongs to object detection",
        "a GeneratorDataset for the boxes, and operators such as ops.Gather",
    ),
    Reason(
        r".*(ps_context|ParameterServer|set_param_ps)|ops\.(Push|Pull)",
        "it belongs to the parameter server",
        _DATA_PARALLEL,
    ),
    Reason(
        r"parallel\..*|.*(build_searched_strategy|merge_sliced_parameter|load_distributed_checkpoint|VirtualDataset).*",
        "it belongs to automatic and hybrid parallelism; runner trains data-parallel",
        _DATA_PARALLEL,
    ),
    Reason(
        r"ops\.(AllGather|AllSwap|Broadcast|ReduceScatter|ParallelConcat)|communication\..*",
        "ranks of runner exchange gradients and losses only",
        "ops.AllReduce, or mpi4py outside of the network",
    ),
    Reason(
        r".*GraphKernel|ops\..*(RegOp|op_info_register|DataType)|.*op_selector",
        "it declares kernels of a device of MindSpore",
        "an operator of your own: docs/how-to/operator.md",
    ),
    Reason(
        r"ops\.(NPU.*|BNTraining.*|Ge.*|MakeRefKey|Merge|UpdateState|GetNext|DynamicShape|Partial)",
        "it belongs to MindSpore's own compiler or device",
    ),
    Reason(
        r".*(Sparse|RowTensor|COOTensor).*",
        "runner has dense tensors only",
        "the dense form: ops.Gather, nn.Embedding, nn.Adam",
    ),
    Reason(r".*(CTC|RNNT|EditDistance|CLUE|NoRepeatNGram).*", "it belongs to speech and text"),
    Reason(
        r"nn\.probability.*",
        "it belongs to probabilistic programming",
        "numpy's generators in a dataset",
    ),
    Reason(r"dataset\.(.*Dataset|GraphData|DatasetCache)", "runner does not read this data set", _OWN_READER),
    Reason(
        r".*(LSTM|RNN|GRU).*",
        "recurrent kernels of devices are missing",
        "nn.LSTM, or a loop over the steps in construct",
    ),
    Reason(r"ops\..*3D.*", "operators of images have one and two spatial axes", "nn.Conv3d, nn.BatchNorm3d"),
    Reason(
        r"nn\.IGamma",
        "the number of terms that it needs depends on its operands",
        "scipy.special.gammainc outside of the network",
    ),
    Reason(
        r"(train\.)?load|nn\.GraphCell",
        "it reads MindIR, the format of MindSpore's own compiler",
        "load_checkpoint and load_param_into_net, or export to ONNX and onnxruntime",
    ),
    Reason(
        r"monad|.*env_get|ops\.(Evolution|CheckBprop|.*vm_impl.*)|nn\.GetNextSingleOp|profiler\.ProfileOption",
        "it belongs to MindSpore's own compiler",
    ),
    Reason(
        r"ops\.(composite\.)?(hyper_add|tail|zip_operation)",
        "it belongs to MindSpore's own compiler",
        "ops.HyperMap, and zip and slices of Python",
    ),
    Reason(
        r"ops\.Primitive", "operators are declared by a decorator", "an operator of your own: docs/how-to/operator.md"
    ),
    Reason(r"ops\.(DropoutGenMask|DropoutDoMask)", "its masks have the format of a device of MindSpore", "ops.Dropout"),
    Reason(r"ops\.ReLUV2", "its masks have the format of a device of MindSpore", "ops.ReLU"),
    Reason(r"ops\.DataFormatDimMap", "images have the order NCHW here", "ops.Transpose"),
    Reason(r"ops\.(AdamNoUpdateParam|LARSUpdate)", "it is a part of an optimizer on devices", "nn.Adam, nn.LARS"),
    Reason(r"ops\.Assert", "a graph of ONNX cannot stop by itself", "assert with mode=pynative, or a callback"),
    Reason(
        r"ops\.(BesselI0e|BesselI1e|MatrixInverse|PopulationCount)",
        "ONNX has no such operator",
        "scipy.special or numpy in a dataset, outside of the network",
    ),
    Reason(
        r"ops\.(UniqueWithPad|HistogramFixedWidth|ComputeAccidentalHits)",
        "it searches and counts, which has no gradient",
        "numpy in a callback or a dataset, outside of the network",
    ),
)


@cache
def public_names() -> dict[str, tuple[str, ...]]:
    """The names of each module of r1.2, without `mindspore.`; those of the package itself are at ""."""
    found: dict[str, tuple[str, ...]] = {}
    module = ""
    for line in resources.files(__package__).joinpath("names.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            module = line.strip("[]")
        elif line and not line.startswith("#"):
            found[module] = (*found.get(module, ()), *line.split())
    return found


def modules_with(name: str) -> list[str]:
    """The modules of r1.2 that have a name."""
    return [module for module, names in public_names().items() if name in names]


def reason(module: str, name: str) -> Reason | None:
    """Why runner does not have this name of a module, if that is known."""
    full = f"{module}.{name}" if module else name
    return next((reason for reason in REASONS if re.fullmatch(reason.pattern, full)), None)
