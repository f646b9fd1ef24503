from runner.dataset.vision import c_transforms as c_transforms, py_transforms as py_transforms
from runner.dataset.vision.image import Border as Border, ImageBatchFormat as ImageBatchFormat, Inter as Inter
