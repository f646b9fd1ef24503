"""Tuning: the fastest form of each operator of a step, measured (`session.auto_tune_mode`)."""
