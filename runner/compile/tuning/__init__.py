"""Tuning: search for the fastest form of each operator of a step by measurement (`session.auto_tune_mode`)."""
