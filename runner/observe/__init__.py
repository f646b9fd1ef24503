"""Observers: callbacks that write down what a run does. None of them changes its numbers."""
