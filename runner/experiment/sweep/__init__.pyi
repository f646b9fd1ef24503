from runner.experiment.sweep.sweep import resume as resume, start as start
