from runner.experiment.tracking.tracking import (
    TrackedRun as TrackedRun,
    tracked as tracked,
    with_tracking as with_tracking,
)
