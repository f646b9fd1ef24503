"""What of an ONNX file cannot be imported, with a reason for each operator: `require_supported`."""

from collections import defaultdict
from collections.abc import Mapping

from runner.errors import ConfigError, some
from runner.importer.file import OnnxGraph, OnnxNode, changed_since
from runner.importer.node_call import refuse
from runner.importer.rules import RULES

NEWEST_OPSET = 28  # with which the rules were compared; what ONNX has not changed since is newer opsets' too
NO_GRADIENT = "a quantized model: rounding has no gradient, so it cannot be trained"
NO_RULE = "no rule has been written"
SEQUENCES = "values are tensors here, and sequences of tensors that are made once: no others, no optionals or maps"
TEXT = "values are numbers here: no texts, images as files or words"
RANDOM = "draws other numbers in each run, which no seed of a run decides"
LOOPS = "the number of its rounds is known in a run only, and a sink needs it before"
SHAPES = "the shape of its result depends on data"
TREES = "models of ai.onnx.ml but neural networks have no gradient"
TRAINING = "an optimizer or a gradient: runner makes the training step itself"
LOSSES = "a loss: the key `loss` has it, and the file's output is what it takes"
SIGNALS = "complex numbers and windows of signals are no types of tensors here"

REASONS: Mapping[str, str] = {
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv"), NO_GRADIENT),
    **dict.fromkeys(("QLinearMatMul", "ConvInteger", "MatMulInteger", "QLinearAdd", "QLinearMul"), NO_GRADIENT),
    **dict.fromkeys(("QLinearGlobalAveragePool", "QLinearConcat"), NO_GRADIENT),
    **dict.fromkeys(("SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceMap"), SEQUENCES),
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement", "ai.onnx.ml.ZipMap"), SEQUENCES),
    **dict.fromkeys(("ai.onnx.ml.CastMap", "ai.onnx.ml.DictVectorizer"), SEQUENCES),
    **dict.fromkeys(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"), TEXT),
    **dict.fromkeys(("ImageDecoder", "ai.onnx.ml.CategoryMapper", "ai.onnx.ml.LabelEncoder"), TEXT),
    **dict.fromkeys(("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"), RANDOM),
    **dict.fromkeys(("RandomUniform", "RandomUniformLike"), RANDOM),
    **dict.fromkeys(("Loop", "Scan"), LOOPS),
    "NonMaxSuppression": SHAPES,
    **dict.fromkeys(("SVMClassifier", "SVMRegressor", "TreeEnsemble", "TreeEnsembleClassifier"), TREES),
    **dict.fromkeys(("TreeEnsembleRegressor", "LinearClassifier", "LinearRegressor", "Scaler", "Normalizer"), TREES),
    **dict.fromkeys(("ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "OneHotEncoder"), TREES),
    **dict.fromkeys(("Adagrad", "Adam", "Gradient", "Momentum"), TRAINING),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), LOSSES),
    **dict.fromkeys(("DFT", "STFT", "MelWeightMatrix", "BlackmanWindow", "HammingWindow", "HannWindow"), SIGNALS),
}


def reason_of(operator: str) -> str:
    """Why an operator, with its domain, has no rule."""
    return REASONS.get(operator) or REASONS.get(operator.rpartition(".")[2], NO_RULE)


def unsupported(graph: OnnxGraph) -> dict[str, list[OnnxNode]]:
    """The nodes without a rule, by operator."""
    found = defaultdict[str, list[OnnxNode]](list)
    for node in graph.all_nodes():
        if node.operator not in RULES:
            found[node.operator].append(node)
    return dict(found)


def require_supported(graph: OnnxGraph) -> None:
    """Raise ConfigError that lists all operators without a rule, with their nodes and reasons, or collect it."""
    if missing := unsupported(graph):
        refuse(_missing(missing))
    nodes = [(node, changed_since(node, NEWEST_OPSET)) for node in graph.all_nodes()]
    if newer := [f"{node.name}: {node.operator}, opset {since}" for node, since in nodes if since]:
        what, known = "operators of an ONNX file are newer than their rules", f"up to opset {NEWEST_OPSET}"
        refuse(ConfigError(what, nodes=some(newer, 5), known=known, repair="the model exported with an older opset"))


def _missing(missing: Mapping[str, list[OnnxNode]]) -> ConfigError:
    if NO_GRADIENT in map(reason_of, missing):
        rows = {"operators": ", ".join(sorted(missing)), "repair": "import the model from before quantization"}
        return ConfigError(NO_GRADIENT, **rows)
    lines = [_line(operator, nodes) for operator, nodes in sorted(missing.items())]
    repair = "`runner inspect FILE` lists all operators; a model exported with other ones"
    what = f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of an ONNX file cannot be imported"
    return ConfigError(what, operators="\n".join(lines), repair=repair)


def _line(operator: str, nodes: list[OnnxNode]) -> str:
    return f"{operator}, opset {nodes[0].opset}: {some([node.name for node in nodes], 3)}; {reason_of(operator)}"
