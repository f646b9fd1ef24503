"""Networks from ONNX files: `file` reads one, `rules/` has what each operator becomes, `node_call` applies a rule, and
`network` is the cell. Only `file` knows the package `onnx`.
"""
