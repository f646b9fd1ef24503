"""MindIR, the file format of MindSpore 2 for networks: `mindspore.load` reads it, `mindspore.nn.GraphCell` runs it."""
