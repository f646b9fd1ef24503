from runner.nn.metrics.base import (
    Metric as Metric,
    rearrange_inputs as rearrange_inputs,
)
from runner.nn.metrics.by_name import (
    get_metric_fn as get_metric_fn,
    get_metrics as get_metrics,
    names as names,
)
from runner.nn.metrics.classification import (
    F1 as F1,
    ROC as ROC,
    Accuracy as Accuracy,
    ConfusionMatrix as ConfusionMatrix,
    ConfusionMatrixMetric as ConfusionMatrixMetric,
    Fbeta as Fbeta,
    Precision as Precision,
    Recall as Recall,
    Top1CategoricalAccuracy as Top1CategoricalAccuracy,
    Top5CategoricalAccuracy as Top5CategoricalAccuracy,
    TopKCategoricalAccuracy as TopKCategoricalAccuracy,
    auc as auc,
)
from runner.nn.metrics.images import (
    Dice as Dice,
    HausdorffDistance as HausdorffDistance,
    MeanSurfaceDistance as MeanSurfaceDistance,
    OcclusionSensitivity as OcclusionSensitivity,
    RootMeanSquareDistance as RootMeanSquareDistance,
)
from runner.nn.metrics.regression import (
    MAE as MAE,
    MSE as MSE,
    R2 as R2,
    CosineSimilarity as CosineSimilarity,
    Loss as Loss,
)
from runner.nn.metrics.text import (
    BleuScore as BleuScore,
    Perplexity as Perplexity,
)
