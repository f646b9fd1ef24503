from runner.experiment.results.results import WorstPredictions as WorstPredictions, write_networks as write_networks
