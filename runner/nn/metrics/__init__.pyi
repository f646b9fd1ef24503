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
from runner.nn.metrics.others import (
    MAE as MAE,
    MSE as MSE,
    R2 as R2,
    BleuScore as BleuScore,
    CosineSimilarity as CosineSimilarity,
    Dice as Dice,
    HausdorffDistance as HausdorffDistance,
    Loss as Loss,
    MeanSurfaceDistance as MeanSurfaceDistance,
    OcclusionSensitivity as OcclusionSensitivity,
    Perplexity as Perplexity,
    RootMeanSquareDistance as RootMeanSquareDistance,
)
