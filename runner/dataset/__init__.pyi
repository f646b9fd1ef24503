from runner.dataset import transforms as transforms, vision as vision
from runner.dataset.batches import *
from runner.dataset.formats.download import *
from runner.dataset.pipeline import *
from runner.dataset.preprocessing import *
from runner.dataset.readers.arrays import *
from runner.dataset.readers.csv import *
from runner.dataset.readers.image_folder import *
from runner.dataset.samplers import *
from runner.dataset.sources import *
from runner.mindspore.dataset import config as config
from runner.mindspore.dataset.files import (
    CelebADataset as CelebADataset,
    Cifar100Dataset as Cifar100Dataset,
    ImageFolderDataset as ImageFolderDataset,
    ManifestDataset as ManifestDataset,
)
from runner.mindspore.dataset.records import (
    MindDataset as MindDataset,
    Schema as Schema,
    TFRecordDataset as TFRecordDataset,
)
from runner.mindspore.dataset.text import (
    CSVDataset as CSVDataset,
    Shuffle as Shuffle,
    TextFileDataset as TextFileDataset,
)
