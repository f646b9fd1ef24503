from runner.experiment.tracking.attach import followed as followed
