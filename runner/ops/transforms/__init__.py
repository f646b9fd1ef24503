"""Transforms that save multiplications: numbers for kernels in numpy and for lowerings alike."""
