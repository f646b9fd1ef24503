from runner.dataset.vision import c_transforms as c_transforms, py_transforms as py_transforms
from runner.dataset.vision.border import Border as Border, ImageBatchFormat as ImageBatchFormat
from runner.dataset.vision.inter import Inter as Inter
