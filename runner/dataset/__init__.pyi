from runner.dataset import transforms as transforms, vision as vision
from runner.dataset.batches import *
from runner.dataset.formats.download import *
from runner.dataset.pipeline import *
from runner.dataset.sources import *
