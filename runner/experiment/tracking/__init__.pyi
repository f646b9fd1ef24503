from runner.experiment.tracking.attach import with_tracking as with_tracking
