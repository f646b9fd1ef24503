from runner.compile.debug_program import DebugProgram as DebugProgram
from runner.compile.export import (
    export_network as export_network,
    export_onnx as export_onnx,
    export_step as export_step,
    quantize as quantize,
)
from runner.compile.kernel_meta import KernelMeta as KernelMeta
from runner.compile.mindir import export_mindir as export_mindir
from runner.compile.onnx.builder import free_names as free_names, load_onnx as load_onnx
from runner.compile.onnx.lower import repeat_step as repeat_step
from runner.compile.onnx.model import (
    OPSET as OPSET,
    ModelValue as ModelValue,
    model_values as model_values,
    parse_model as parse_model,
    require_opset as require_opset,
    with_opset as with_opset,
)
from runner.compile.passes import INFERENCE as INFERENCE
from runner.compile.profiled_session import ProfiledProgram as ProfiledProgram
from runner.compile.program import (
    Executable as Executable,
    Program as Program,
    SunkProgram as SunkProgram,
    estimated_seconds as estimated_seconds,
    standalone_step as standalone_step,
)
from runner.compile.session import Session as Session, device_problem as device_problem
from runner.compile.tuning import find_tuning as find_tuning, parse_tuning as parse_tuning, report_lines as report_lines
