"""Output of onnxruntime that is captured instead of printed."""

import os
import sys

from runner.compile.session import capture_output


def test_lines_of_python_and_of_native_code_keep_their_order():
    before = sys.stdout, os.fstat(1)
    with capture_output() as captured:
        print("\x1b[31mpython\x1b[0m")
        os.write(1, b"native\n")
        print("python again", file=sys.stderr)
        os.write(2, b"native again")
    assert captured.text == "python\nnative\npython again\nnative again"
    assert (sys.stdout, os.fstat(1)) == before
