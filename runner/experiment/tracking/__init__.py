"""Telling TensorBoard or MLflow of a run, from the files that it writes. No training waits for it."""
