from runner.experiment.results.model_files import write_networks as write_networks
from runner.experiment.results.worst_predictions import WorstPredictions as WorstPredictions
