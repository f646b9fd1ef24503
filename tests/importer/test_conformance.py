"""ONNX's own conformance suite: a model of one node gives its numbers in both modes, or is refused with a reason."""

import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from both_modes import MODES, step_of
from onnx.backend.test.loader import load_model_tests
from soak import SOAK, thinned

from runner.errors import InternalError, RunnerError
from runner.importer.network import OnnxNetwork

KINDS = "epsilon", "example"
# Outputs that are not right yet: the reasons of `outcome`, which a repair removes from here.
NOT_RIGHT = {
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal:qk_matmul_output": "other numbers",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal:qk_matmul_output": "other numbers",
    "test_batchnorm_example_training_mode:y": "other numbers",
    "test_batchnorm_epsilon_training_mode:y": "other numbers",
    "test_l2normalization_axis_0:y": "other numbers",
    "test_spacetodepth_crd_mode_example:y": "other numbers",
    "test_dropout_default_mask:z": "KeyError",
    **{f"test_batchnorm_{kind}_training_mode:output_{name}": "KeyError" for kind in KINDS for name in ("mean", "var")},
    "test_matmul_1d_1d:c": "IndexError",
    "test_constant:values": "AttributeError",
    "test_eyelike_populate_off_main_diagonal:y": "AttributeError",
    "test_eyelike_with_dtype:y": "AttributeError",
}
PASSING = 720  # of 1,622 models: most others need operands that are known, or types that a network does not have


@cache
def cases() -> list[Any]:
    """The models whose operands are tensors of types that numpy has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, in the making of the models
        found = load_model_tests(kind="node")
    return [case for case in found if all(_is_tensor(x) for part in case.data_sets[0] for x in part)]


def _is_tensor(value: object) -> bool:
    return (isinstance(value, np.ndarray) or np.isscalar(value)) and np.asarray(value).dtype.kind in "biuf"


def outcome(case: Any, output: int, place: Path) -> str:
    """`right`, `refused`, `other numbers` or `another type`, or the name of an exception that is no error of runner."""
    given, expected = case.data_sets[0]
    arrays = {value.name: np.asarray(x) for value, x in zip(case.model.graph.input, given, strict=False)}
    wanted = np.asarray(expected[output])
    try:
        network = OnnxNetwork(str(place), case.model.graph.output[output].name, logits=False)
        network.set_train(False)
        operands = [arrays[value.name] for value in network.graph.inputs]
        results = [step_of(network.construct, mode)(*operands)[0] for mode in MODES]
    except InternalError as error:
        return type(error).__name__
    except RunnerError:
        return "refused"
    except Exception as error:  # what must not leave the importer
        return type(error).__name__
    if any((result.dtype, result.shape) != (wanted.dtype, wanted.shape) for result in results):
        return "another type"
    return "right" if all(_agree(result, wanted) for result in results) else "other numbers"


def _agree(result: np.ndarray, wanted: np.ndarray) -> bool:
    if wanted.dtype.kind != "f":
        return np.array_equal(result, wanted)
    least = 1e-2 if wanted.dtype == np.float16 else 1e-5
    return np.allclose(result.astype(np.float64), wanted.astype(np.float64), 1e-3, least, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
def test_every_model_is_right_or_refused(tmp_path):
    place, counts, wrong = tmp_path / "model.onnx", Counter[str](), {}
    for case in thinned(cases(), 30):
        onnx.save(case.model, place)
        for output, value in enumerate(case.model.graph.output):
            found = outcome(case, output, place)
            counts[found] += output == 0
            if found not in ("right", "refused"):
                wrong[f"{case.name}:{value.name}"] = found
    expected = NOT_RIGHT if SOAK else {name: NOT_RIGHT.get(name, "") for name in wrong}
    assert wrong == expected
    assert not SOAK or counts["right"] >= PASSING, counts
