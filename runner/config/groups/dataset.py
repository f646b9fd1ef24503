"""Keys of every dataset; those of its own come from its signature."""

from runner import register
from runner.config.groups.record import Records, Settings
from runner.dataset import catalog  # noqa: F401  registers datasets
from runner.dataset.prefetch import MAX_WORKERS
from runner.validation.rules import MAX_COUNT, key


class DatasetSettings(Settings):
    """The dataset and its batches. `inputs` and `target` null: the last column is the target, the others are inputs."""

    batch_size: int = key(32, low=1, high=MAX_COUNT)  # samples per step
    drop_remainder: bool = True  # omit the last batch if it is smaller
    shuffle: bool = True  # shuffle the training data anew in each epoch
    buffer_size: int = key(10000, low=2, high=MAX_COUNT)  # samples in the shuffle buffer
    num_parallel_workers: int = key(1, low=1, high=MAX_WORKERS)  # threads that prefetch batches
    inputs: tuple[str, ...] | None = None  # the columns that are the network's inputs, in order
    target: str | None = None  # the column that is the target

    @property
    def selects_columns(self) -> bool:
        """Whether `inputs` and `target` are names of columns: a dataset may have keys of these names."""
        return not {"inputs", "target"} & self.entry.keys.keys()


# What another dataset keeps of the one that it replaces in the config of a run.
KEPT_KEYS = ("batch_size", "drop_remainder", "shuffle", "buffer_size", "num_parallel_workers")

DATASETS = Records(register.dataset, DatasetSettings, "digits")
