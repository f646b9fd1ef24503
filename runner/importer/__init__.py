"""Networks from ONNX files: `model_file` reads one, `graph` is its content, `table` has a rule for each operator, and
`network` is the cell. Only `model_file` and `graph` know the package `onnx`.
"""
