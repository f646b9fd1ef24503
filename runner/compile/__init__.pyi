from runner.compile.debug_program import DebugProgram as DebugProgram
from runner.compile.export import export_onnx as export_onnx
from runner.compile.kernel_meta import KernelMeta as KernelMeta
from runner.compile.onnx.builder import load_onnx as load_onnx
from runner.compile.ort.profiled_session import ProfiledProgram as ProfiledProgram
from runner.compile.ort.session import device_problem as device_problem
from runner.compile.passes import INFERENCE as INFERENCE
from runner.compile.program import (
    Executable as Executable,
    Program as Program,
    SunkProgram as SunkProgram,
    standalone_step as standalone_step,
)
from runner.compile.tuning.cache import parse_tuning as parse_tuning
from runner.compile.tuning.tuner import find_tuning as find_tuning, report_lines as report_lines
from runner.compile.work import estimated_seconds as estimated_seconds
