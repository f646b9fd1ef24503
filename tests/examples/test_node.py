"""The exported step trains in Node as in Python; the modules of the page, in Node."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from drawn_digits import DRAWN
from exported_steps import TOLERANCE, evaluated, samples
from javascript import module, node
from safetensors.numpy import load_file, save_file

NODE = Path(__file__).parents[2] / "examples" / "node"


def test_node_trains_as_python(run, site, losses, tmp_path):
    if not (NODE / "node_modules" / "onnxruntime-node").is_dir():
        pytest.skip("onnxruntime-node is not installed: make web")
    printed = node(NODE / "train.js", site / "model", site / "digits.safetensors", folder=tmp_path)
    found = [float(loss) for loss in re.findall(r"^step \d+ loss (.*)$", printed, re.MULTILINE)]
    np.testing.assert_allclose(found, losses, rtol=0, atol=TOLERANCE)
    assert evaluated(run, tmp_path / "weights.safetensors", tmp_path / "evaluated") > 0.8


def test_arrays_travel_both_ways(tmp_path):
    rng = np.random.default_rng(0)
    kinds = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
    arrays = {f"a.{kind}": rng.integers(0, 2, (3, k)).astype(kind) for k, kind in enumerate(kinds)}
    arrays |= {"ein Name mit ä": np.array(1.5, np.float32), "one": np.array([7], np.int8)}
    save_file(arrays, tmp_path / "from.safetensors", metadata={"format": "np"})
    module(
        """import { readFile, writeFile } from "node:fs/promises";
        const { read, write } = await import(web + "/safetensors.js");
        const content = new Uint8Array(await readFile("from.safetensors")).buffer;
        await writeFile("to.safetensors", write(read(content)));""",
        tmp_path,
    )
    found = load_file(tmp_path / "to.safetensors")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def test_damaged_files_are_errors(tmp_path):
    """No cut file is read, and no array that is not inside of its file."""
    save_file({"weight": np.arange(6, dtype=np.float32)}, tmp_path / "whole.safetensors")
    whole = (tmp_path / "whole.safetensors").read_bytes()
    damaged = [whole[:size] for size in range(len(whole))]
    damaged += [whole.replace(b"[0,24]", b"[8,32]"), whole.replace(b"F32", b"F99"), whole.replace(b"[0,24]", b"[-8,4]")]
    (tmp_path / "damaged.json").write_text(json.dumps([list(content) for content in damaged]))
    printed = module(
        """import { readFile } from "node:fs/promises";
        const { read } = await import(web + "/safetensors.js");
        for (const bytes of JSON.parse(await readFile("damaged.json"))) {
          let text = "none";
          try { read(new Uint8Array(bytes).buffer); } catch (error) { text = error.message; }
          console.log(text);
        }""",
        tmp_path,
    )
    texts = printed.splitlines()
    assert len(texts) == len(damaged)
    assert "none" not in texts
    assert set(texts) <= {text for text in texts if re.match(r"this is not|weight (needs|has)", text)}


def test_preprocessing_has_the_numbers_of_the_training(site, tmp_path):
    printed = module(
        f"""import {{ readFile }} from "node:fs/promises";
        const {{ Digits }} = await import(web + "/digits.js");
        const signature = JSON.parse(await readFile({str(site / "model" / "signature.json")!r}));
        const content = new Uint8Array(await readFile({str(site / "digits.safetensors")!r})).buffer;
        for (const split of ["train", "test"]) {{
          const digits = new Digits(content, split, signature.preprocessing[0].steps);
          const [images, labels] = digits.batch(Array.from({{ length: digits.length }}, (_, k) => k));
          console.log(JSON.stringify([images.shape, [...images.data], [...labels.data]]));
        }}""",
        tmp_path,
    )
    for split, line in zip(("train", "test"), printed.splitlines(), strict=True):
        shape, data, labels = json.loads(line)
        images, numbers = samples(split)
        np.testing.assert_allclose(np.reshape(data, shape), images, atol=1e-6)
        assert labels == numbers.tolist()


def test_drawn_digits_look_like_those_of_the_data(tmp_path):
    """As high as the image, with as much ink, whatever their size and place on the paper."""
    strokes = [DRAWN[digit] for digit in range(10)]
    moved = [[[(0.2 * x + 300, 0.2 * y - 50) for x, y in line] for line in lines] for lines in strokes]
    printed = module(
        f"""const {{ digitOf }} = await import(web + "/strokes.js");
        for (const strokes of {json.dumps([*strokes, *moved, [], [[]], [[(5, 5)]]])})
          console.log(JSON.stringify([...digitOf(strokes)]));""",
        tmp_path,
    )
    images = np.array([json.loads(line) for line in printed.splitlines()]).reshape(-1, 8, 8)
    digits, small, empty, dot = images[:10], images[10:20], images[20:22], images[22]
    assert np.abs(digits - small).max() <= 16  # a level of ink
    assert (empty == 0).all()
    assert dot.max() == 255
    ink = digits.sum((1, 2)) / 255
    np.testing.assert_allclose(ink, 19.6, atol=1.5)
    assert (digits[:, [0, -1]].max(2) > 60).all()
    assert set(np.unique(digits)) <= {(255 * level + 8) // 16 for level in range(17)}
