from runner.dataset import config as config, transforms as transforms, vision as vision
from runner.dataset.annotated_sources import *
from runner.dataset.batches import *
from runner.dataset.file_sources import *
from runner.dataset.formats.download import *
from runner.dataset.memory_sources import *
from runner.dataset.pipeline import *
from runner.dataset.preprocessing import *
from runner.dataset.readers.array_preprocessing import *
from runner.dataset.readers.csv_table import *
from runner.dataset.readers.image_folder import *
from runner.dataset.readers.npz_arrays import *
from runner.dataset.readers.stored_preprocessing import *
from runner.dataset.record_sources import *
from runner.dataset.samplers import *
from runner.dataset.schema import *
from runner.dataset.sources import *
from runner.dataset.text_sources import *
