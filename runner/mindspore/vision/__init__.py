"""Image transforms of MindSpore r1.2 that only its scripts use; `runner.dataset.vision` has their names."""
