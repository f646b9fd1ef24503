"""Run scripts for MindSpore r1.2: the package name replaced, the device the CPU, and the files that they expect.

    python benchmarks/scripts.py FOLDER DATA                       # every script of FOLDER
    python benchmarks/scripts.py FOLDER DATA tensor optim --timeout 120 --output outputs/scripts
    python benchmarks/scripts.py FOLDER DATA --package mindspore --python /other/bin/python

FOLDER has the release's tutorials as `tutorial__script.py`, other files beside them are modules; DATA has `mnist/` and
`cifar10/` with gzip files. Pictures, folders of images and the Python version of CIFAR-10 are made here. Prints a line
for each script: ok and its last line of output, or the last line of its error. `--output` keeps the whole output.
"""

import argparse
import gzip
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

RECORD, PICTURES, SIDE = 3073, 40, 96
FEW = 32  # records of CIFAR-10 for scripts that train ResNet-50 on images of 224 x 224
TRAINS_RESNET = ("notebook__mindspore_mixed_precision", "resnet__cifar_resnet50")
ARGUMENTS = {
    "resnet__cifar_resnet50": ["--device_target", "CPU", "--dataset_path", "datasets/cifar-10-batches-bin/train"]
}
DISPLAY = "class display:\n    @staticmethod\n    def clear_output(wait=False):\n        pass\n"


def port(text: str, package: str) -> str:
    """What a user does: another package name, another device."""
    text = re.sub(r"\bmindspore\b(?!\.cn|-website|_)", package, text)
    return re.sub(r"(device_target\s*=\s*)[\"'](Ascend|GPU)[\"']", r'\1"CPU"', text)


def data_sets(place: Path, source: Path, most: int | None) -> None:
    """MNIST, and CIFAR-10 in its binary and its Python version, with at most so many records in a file."""
    for split, prefix in (("train", "train"), ("test", "t10k")):
        folder = place / "MNIST_Data" / split
        folder.mkdir(parents=True)
        for kind in ("images-idx3", "labels-idx1"):
            name = f"{prefix}-{kind}-ubyte"
            (folder / name).write_bytes(gzip.decompress((source / "mnist" / f"{name}.gz").read_bytes()))
    for name, split in (("data_batch_1", "train"), ("test_batch", "test")):
        content = gzip.decompress((source / "cifar10" / f"{name}.bin.gz").read_bytes())
        content = content if most is None else content[: most * RECORD]
        for folder in (place / "cifar-10-batches-bin", place / "cifar-10-batches-bin" / split):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.bin").write_bytes(content)
        records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
        batch = {b"labels": records[:, 0].tolist(), b"data": records[:, 1:].copy()}
        (place / "cifar-10-batches-py").mkdir(exist_ok=True)
        (place / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch, protocol=2))


def pictures(place: Path) -> None:
    """Pictures of gradients and noise where the scripts would download some."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 255, 400)
    (place / "datasets" / "convert_dataset_to_mindrecord" / "datas_to_mindrecord").mkdir(parents=True)
    for path in ("banana.jpg", "datasets/convert_dataset_to_mindrecord/images/transform.jpg"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        levels = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, ::-1], ramp[:, None] / 2), -1)
        Image.fromarray(levels.astype(np.uint8)).save(place / path)
    faces = place / "data" / "celeba" / "img_align_celeba"
    faces.mkdir(parents=True)
    for number in range(PICTURES):
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(faces / f"{number:06}.jpg")


def prepare(script: Path, place: Path, data: Path, package: str) -> None:
    """A folder of its own for a script: its files, the modules beside it, and links to the data sets."""
    place.mkdir(parents=True)
    pictures(place)
    for entry in data.iterdir():
        (place / "datasets" / entry.name).symlink_to(entry)
    (place / "MNIST_Data").symlink_to(data / "MNIST_Data")
    for other in script.parent.iterdir():
        if other.is_dir():
            shutil.copytree(other, place / other.name)
        elif "__" not in other.name:
            (place / other.name).write_text(port(other.read_text(), package))
    (place / script.name).write_text(port(script.read_text(), package))
    if find_spec("IPython") is None:
        (place / "IPython.py").write_text(DISPLAY)


def run(script: Path, place: Path, python: str, timeout: float) -> tuple[str, str, str]:
    """`ok`, `FAILED` or `running`, and both outputs."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "DEVICE_ID": "0", "PYTHONHASHSEED": "0"}
    command = [python, script.name, *ARGUMENTS.get(script.stem, [])]
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=timeout, errors="replace"
        )
    except subprocess.TimeoutExpired as late:
        out = late.stdout if isinstance(late.stdout, str) else (late.stdout or b"").decode(errors="replace")
        return "running", out, ""
    return "ok" if done.returncode == 0 else "FAILED", done.stdout, done.stderr


def last_line(text: str) -> str:
    return ([line.strip() for line in text.splitlines() if line.strip()] or [""])[-1][:120]


def chosen(folder: Path, parts: list[str]) -> list[Path]:
    found = [path for path in sorted(folder.glob("*.py")) if "__" in path.name or path.stem == "linear_regression"]
    return [path for path in found if not parts or any(part in path.stem for part in parts)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("parts", nargs="*", help="parts of names; all scripts when left out")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each")
    parser.add_argument("--package", default="runner", help="what takes the place of mindspore")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--output", type=Path, help="a folder for the outputs of the scripts")
    o = parser.parse_args()
    good = 0
    scripts = chosen(o.folder, o.parts)
    with tempfile.TemporaryDirectory() as temporary:
        data = {most: Path(temporary) / f"data{most}" for most in (None, FEW)}
        for most, folder in data.items():
            data_sets(folder, o.data, most)
        for script in scripts:
            place = Path(temporary) / script.stem
            prepare(script, place, data[FEW if script.stem in TRAINS_RESNET else None], o.package)
            start = time.monotonic()
            result, out, error = run(script, place, o.python, o.timeout)
            good += result == "ok"
            text = last_line(error if result == "FAILED" else out)
            print(f"{result:<8}{script.stem}  {time.monotonic() - start:.0f} s  {text}", flush=True)
            if o.output is not None:
                o.output.mkdir(parents=True, exist_ok=True)
                (o.output / f"{script.stem}.txt").write_text(out + error)
            shutil.rmtree(place)
    print(f"{good} of {len(scripts)} scripts ran to their end")
    return 0 if good == len(scripts) else 1


if __name__ == "__main__":
    sys.exit(main())
