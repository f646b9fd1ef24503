from runner.experiment.tracking.attach import (
    TrackedRun as TrackedRun,
    tracked as tracked,
    with_tracking as with_tracking,
)
