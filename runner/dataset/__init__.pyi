from runner.dataset import transforms as transforms, vision as vision
from runner.dataset.batches import (
    open_dataset as open_dataset,
)
from runner.dataset.pipeline import (
    Dataset as Dataset,
    Preprocessing as Preprocessing,
    zip as zip,
)
from runner.dataset.readers.arrays import (
    ArrayPreprocessing as ArrayPreprocessing,
    npz_arrays as npz_arrays,
)
from runner.dataset.readers.csv import (
    TablePreprocessing as TablePreprocessing,
    csv_table as csv_table,
)
from runner.dataset.readers.image_folder import ImagePreprocessing as ImagePreprocessing, image_folder as image_folder
from runner.dataset.readers.mnist_cifar import download_mnist as download_mnist
from runner.dataset.readers.preprocessing import stored_preprocessing as stored_preprocessing
from runner.dataset.samplers import (
    DistributedSampler as DistributedSampler,
    PKSampler as PKSampler,
    RandomSampler as RandomSampler,
    Sampler as Sampler,
    SequentialSampler as SequentialSampler,
    SubsetRandomSampler as SubsetRandomSampler,
    SubsetSampler as SubsetSampler,
    WeightedRandomSampler as WeightedRandomSampler,
)
from runner.dataset.sources import (
    Cifar10Dataset as Cifar10Dataset,
    DigitsDataset as DigitsDataset,
    GeneratorDataset as GeneratorDataset,
    MnistDataset as MnistDataset,
    NumpySlicesDataset as NumpySlicesDataset,
    PaddedDataset as PaddedDataset,
    SyntheticDataset as SyntheticDataset,
)
from runner.mindspore.dataset import config as config
from runner.mindspore.dataset.sources import (
    CelebADataset as CelebADataset,
    Cifar100Dataset as Cifar100Dataset,
    CSVDataset as CSVDataset,
    ImageFolderDataset as ImageFolderDataset,
    ManifestDataset as ManifestDataset,
    MindDataset as MindDataset,
    Schema as Schema,
    Shuffle as Shuffle,
    TextFileDataset as TextFileDataset,
    TFRecordDataset as TFRecordDataset,
)
