"""Parts of tensors: slices, rows, scattered elements, and what Python writes as `x[...]`."""
