"""ONNX's conformance suite in both modes: each output is the one that ONNX defines, or is refused by name."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from both_modes import MODES
from conformance import Case, cases
from one_node import node
from soak import SOAK, thinned
from tables import check_rows, table

from runner.errors import ConfigError, RunnerError, ShapeError
from runner.importer.refusals import NO_GRADIENT, REASONS

# What is refused: operators, element types, and by its error what else. Rows that no case needs fail in a soak.
OPERATORS = """
    Bernoulli BitCast BitShift BlackmanWindow CausalConvWithState CumProd DFT DeformConv Det
    HammingWindow HannWindow Hardmax ImageDecoder LinearAttention Loop MeanVarianceNormalization MelWeightMatrix
    NegativeLogLikelihoodLoss NonMaxSuppression Optional OptionalGetElement OptionalHasElement RandomUniformLike
    RegexFullMatch RoiAlign RotaryEmbedding STFT Scan SequenceEmpty SequenceErase
    SequenceInsert SequenceMap SoftmaxCrossEntropyLoss StringConcat StringNormalizer
    StringSplit SwiGLU TensorScatter TfIdfVectorizer ai.onnx.ml.ArrayFeatureExtractor ai.onnx.ml.Binarizer
    ai.onnx.ml.LabelEncoder ai.onnx.ml.TreeEnsemble ai.onnx.preview.FlexAttention ai.onnx.preview.training.Adagrad
    ai.onnx.preview.training.Adam ai.onnx.preview.training.Gradient ai.onnx.preview.training.Momentum
"""
TYPES = """
    BFLOAT16 FLOAT4E2M1 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0 INT2 INT4 STRING UINT2 UINT4
"""
NAMED = {*OPERATORS.split(), *TYPES.split()}
OTHERS = {
    "a value of an ONNX file is not computed": "test_*dropout*_mask* test_batchnorm_*_training*",
    "a setting is not supported": """
        test_attention_*window* test_gridsample_*cubic* test_isinf_* test_maxpool_with_argmax_2d_precomputed_strides
        test_resize_tf_crop_and_resize*""",
    "an input is not supported": "test_attention_*",
    "needs images (N, C, H, W) and positions (N, h, w, 2)": "test_gridsample_volumetric_*",
    "not an element type of tensors": "test_equal_string*",
    "onnxruntime has no kernel for an operator in this element type": "test_div_uint64 test_mod_uint64",
    "Pow: needs floats": "test_pow_types_int*",
    "the output of an ONNX file is a sequence": "test_if_seq test_split_to_sequence_*",
    "ReduceMax needs operands with elements": "test_reduce_max_empty_set* test_reduce_log_sum_exp_empty_set*",
    "ReduceMin needs operands with elements": "test_reduce_min_empty_set",
    "ReduceProd needs operands with elements": "test_reduce_prod_empty_set",
    "TopK: cannot order this element type": "test_top_k_uint64",
}
# Outputs that are other ones, in both modes.
RANDOM = "dropout draws other random numbers, and only where the network is trained"
SCALED = "the length of a resized axis is a whole number, as in onnxruntime; the suite divides by scale * length"
DIFFERENT = {
    **dict.fromkeys((f"test_training_dropout{x}" for x in ("", "_default", "_mask", "_default_mask")), RANDOM),
    "test_attention_local_window_ext_cache_float16_mask_expanded": "weights of Float16 are trained in Float32",
    "test_resize_downsample_scales_cubic_align_corners": SCALED,
    "test_resize_downsample_scales_linear_align_corners": SCALED,
}


def reasons(error: RunnerError) -> set[str]:
    """Operators, element types, or the error itself."""
    if error.what.endswith("of an ONNX file cannot be imported"):
        return {line.partition(",")[0] for line in str(error.rows["operators"]).split("\n")}
    if error.what == "an element type is not supported":
        return {str(error.rows["value"])}
    if error.what == NO_GRADIENT:
        return set(str(error.rows["operators"]).split(", ")) - {
            name for name, why in REASONS.items() if why == NO_GRADIENT
        }
    return {error.what}


def outcome(case: Case, folder: Path, number: int, mode: str) -> str | set[str]:
    try:
        case.check(folder, number, mode)
    except AssertionError:
        if case.name not in DIFFERENT:
            raise
        return "different"
    except (ConfigError, ShapeError) as error:
        return reasons(error)
    return "right"


def check_case(case: Case, folder: Path, seen: Counter[str]) -> None:
    """Every output in both modes: the right numbers, or a reason of the table."""
    for number in range(len(case.outputs)):
        for mode in MODES:
            found = outcome(case, folder, number, mode)
            if isinstance(found, str):
                seen[case.name if found == "different" else found] += 1
                continue
            for reason in found - NAMED:
                assert any(Path(case.name).match(names) for names in OTHERS.get(reason, "").split()), reason
            seen.update({f"refused {mode}", *found})


# Once other numbers (a mode of SpaceToDepth, norms of zeros, masked scores), or errors without a place: products of two
# vectors, axes without an axis, results that are known at import.
ONCE_WRONG = """
    test_spacetodepth_crd_mode_example test_l2normalization_axis_0 test_matmul_1d_1d test_affine_grid_2d_expanded
    test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal test_constantofshape_float_ones
    test_blackmanwindow_expanded test_eyelike_with_dtype
""".split()  # noqa: SIM905


@table("name", ONCE_WRONG)
def test_what_was_wrong_once_is_right(tmp_path, name):
    (case,) = [case for case in cases() if case.name == name]
    assert {outcome(case, tmp_path, k, mode) for k in range(len(case.outputs)) for mode in MODES} == {"right"}


def test_a_mask_of_dropout_is_refused_by_name(tmp_path):
    (case,) = [case for case in cases() if case.name == "test_dropout_default_mask"]
    for mode in MODES:
        with pytest.raises(ConfigError, match="a value of an ONNX file is not computed") as caught:
            case.check(tmp_path, 1, mode)
        assert caught.value.rows["value"] == "z"


@pytest.mark.parametrize("p", [1, 2])
def test_the_gradient_of_a_norm_of_zeros_is_finite(tmp_path, p):
    row = node("LpNormalization", np.array([[0, 0], [3, -4]], np.float32), axis=1, p=p)
    network = row.network(row.write(tmp_path))
    for mode in MODES:
        (slopes,) = network.gradients(np.ones((2, 2), np.float32), mode)
        assert np.isfinite(slopes).all()
        if p == 2:  # (1 - x * sum(x) / 25) / 5 in the second row
            np.testing.assert_allclose(slopes[1], [(1 + 3 / 25) / 5, (1 - 4 / 25) / 5], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_output_is_what_onnx_defines_or_refused_by_name(tmp_path):
    seen = Counter[str]()
    check_rows(list(thinned(cases(), 20)), lambda case: check_case(case, tmp_path, seen), name=lambda case: case.name)
    assert seen["right"] > seen["refused graph"]
    if SOAK:
        assert NAMED | {*OTHERS, *DIFFERENT} <= seen.keys()
        print("outputs in both modes:", *(f"{name} {count}" for name, count in sorted(seen.items())), sep="\n")
