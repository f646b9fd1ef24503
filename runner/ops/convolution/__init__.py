"""Lowerings of operators for values in batch-last layout, (C, H, W, N) in memory, on the CPU."""
