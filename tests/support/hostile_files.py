"""Config files of someone who wants a run to write elsewhere, run code, hang, or fill the memory. From fixed seeds."""

import gzip
import itertools
import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

COUNT = 300
VALID = {"epochs": 1, "seed": 3, "optimizer": {"learning_rate": 0.1, "momentum": 0.5}, "network": {"name": "lenet5"}}


@dataclass(frozen=True)
class Place:
    """Folders of one attack: `configs/experiment` has the file, the run starts in `here`, the rest must not change."""

    root: Path

    @property
    def here(self) -> Path:
        return self.root / "here"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    @property
    def marker(self) -> Path:
        return self.root / "MARKER"

    @property
    def experiment(self) -> Path:
        return self.root / "configs" / "experiment"

    def create(self) -> None:
        for folder in (self.here, self.outside, self.root / "home", self.experiment):
            folder.mkdir(parents=True)
        (self.here / "link").symlink_to(self.outside)


@dataclass(frozen=True)
class Attack:
    """A hostile file: `write` creates `evil.*` in a place; `codes` are the exit codes that a run may have."""

    name: str
    write: Callable[[Place], None]
    codes: tuple[int, ...] = (0, 2)


def attacks() -> list[Attack]:
    """All attacks, each from its number."""
    kinds = [_elsewhere, _code, _bomb, _encoding, _mutation, _special_file, _path_text]
    return [kinds[number % len(kinds)](random.Random(number), number) for number in range(COUNT)]


def _text(values: dict, rng: random.Random, defaults: list | None = None) -> tuple[str, str]:
    """The suffix and text of a file with values, as YAML or JSON (in which YAML is written, too)."""
    whole = {**({"defaults": defaults} if defaults else {}), **values}
    if rng.random() < 0.5:
        return ".json", json.dumps({"@package": "_global_", **whole})
    return ".yaml", "# @package _global_\n" + "".join(f"{name}: {json.dumps(one)}\n" for name, one in whole.items())


def _file(name: str, suffix: str, content: str | bytes, codes: tuple[int, ...] = (0, 2)) -> Attack:
    data = content.encode() if isinstance(content, str) else content
    return Attack(name, lambda place: (place.experiment / f"evil{suffix}").write_bytes(data) and None, codes)


def _set(key: str, value: object) -> dict:
    names = key.split(".")
    for name in reversed(names):
        value = {name: value}
    return value


def _merged(*groups: dict) -> dict:
    whole: dict = {}
    for group in groups:
        for name, value in group.items():
            both = isinstance(value, dict) and isinstance(whole.get(name), dict)
            whole[name] = _merged(whole[name], value) if both else value
    return whole


def _targets(place: Place, key: str) -> list[tuple[str, dict]]:
    """Ways to name a place outside of the working directory, and the values that they need."""
    path = str(place.outside)
    return [
        (path, {}),
        (f"${{now:{path}}}", {}),
        (f"${{oc.env:NOTHING_SET,{path}}}".replace("NOTHING_SET", "RUNNER_NOT_SET"), {}),
        ("${oc.env:HOME}/x" if key not in EXISTING else "${oc.env:HOME}", {}),
        ("${oc.env:PWD}/../outside", {}),
        ("${dataset.url}", _set("dataset.url", path)),
        ("${oc.select:dataset.url}", _set("dataset.url", path)),
        ("${oc.select:nothing.here,${dataset.url}}", _set("dataset.url", path)),
        ("${dataset.data_dir}/outside", _set("dataset.data_dir", str(place.root))),
        ("${oc.env:PWD}/link", {}),
        (f"{place.here}/link/../outside", {}),
    ]


EXISTING = ("dump.dump_path", "profiling.result_path", "profiling.output")
PATHS = [
    ("hydra.run.dir", [], {}),
    ("hydra.output_subdir", [], {}),
    ("print_file_path", [], {}),
    ("save_graphs_path", [], {"save_graphs": True, "mode": "graph"}),
    ("dump.path", [{"override /dump": "async"}], {}),
    ("dump.dump_path", [{"override /dump": "ge"}], {}),
    ("profiling.result_path", [{"override /profiling": "trace"}], {}),
    ("profiling.output", [{"override /profiling": "trace"}], {}),
    ("tracking.uri", [{"override /tracking": "mlflow"}], {}),
    ("dataset.data_dir", [], {"dataset": {"name": "mnist", "download": True, "url": "file:///nothing"}}),
]


def _elsewhere(rng: random.Random, number: int) -> Attack:
    key, defaults, needed = PATHS[number // 7 % len(PATHS)]
    way = rng.randrange(11)

    def write(place: Place) -> None:
        value, more = _targets(place, key)[way]
        value = f"sqlite:///{value}/x.db" if key == "tracking.uri" else value
        suffix, text = _text(_merged(needed, more, _set(key, value)), rng, defaults)
        (place.experiment / f"evil{suffix}").write_text(text)

    return Attack(f"{key} by way {way}", write, (2,))


def _code(rng: random.Random, number: int) -> Attack:
    shapes = [
        lambda m: {"dataset": {"_target_": "os.mkdir", "path": m}},
        lambda m: {"hydra": {"callbacks": {"e": {"_target_": "os.mkdir", "path": m}}}},
        lambda m: {"hydra": {"job_logging": {"handlers": {"e": {"()": "os.mkdir", "path": m}}}}},
        lambda m: {"hydra": {"hydra_logging": {"handlers": {"e": {"class": "logging.FileHandler", "filename": m}}}}},
        lambda m: {"hydra": {"launcher": {"setup": [f"touch {m}"]}}},
        lambda m: {"hydra": {"launcher": {"_target_": "os.mkdir", "path": m}}},
        lambda m: {"hydra": {"searchpath": [f"file://{m}"]}},
        lambda m: {"hydra": {"job": {"env_set": {"LD_PRELOAD": m}}}},
        lambda m: {"optimizer": {"()": "os.mkdir", "path": m}},
        lambda m: {"network": {"name": "os.mkdir", "path": m}},
        lambda m: {"dataset": {"url": f"ext://os.mkdir('{m}')"}},
        lambda m: {"dataset": {"url": f"${{eval:open('{m}','w')}}"}},
        lambda m: {"eval": {"metrics": [{"_target_": "os.mkdir", "path": m}]}},
    ]
    tags = ["!!python/object/apply:os.mkdir [MARK]", "!!python/object/new:os.mkdir [MARK]", "!!python/name:os.mkdir"]
    shape, tag, tagged = rng.choice(shapes), rng.choice(tags), rng.random() < 0.25

    def write(place: Place) -> None:
        if tagged:
            text = f"# @package _global_\ndataset: {tag}\n".replace("MARK", json.dumps(str(place.marker)))
            (place.experiment / "evil.yaml").write_text(text)
            return
        suffix, text = _text(shape(str(place.marker)), rng)
        (place.experiment / f"evil{suffix}").write_text(text)

    return Attack("code", write, (2,))


def _bomb(rng: random.Random, number: int) -> Attack:
    head, size = "# @package _global_\n", rng.choice([12, 25, 60])
    names = [f"a{i}" for i in range(size)]
    pairs = list(itertools.pairwise(names))
    double = "".join(f"  {one}: ${{expect.{before}}}${{expect.{before}}}\n" for before, one in pairs)
    tree = "".join(f"  {one}: {{x: '${{expect.{before}}}', y: '${{expect.{before}}}'}}\n" for before, one in pairs)
    aliases = "".join(f"{one}: &{one} [{','.join([f'*{before}'] * 9)}]\n" for before, one in pairs)
    bombs = {
        "doubling text": head + "expect:\n  a0: x\n" + double,
        "doubling groups": head + "expect:\n  a0: {x: 1}\n" + tree,
        "aliases": head + "a0: &a0 [x]\n" + aliases,
        "unknown keys": head + "".join(f"k{i}: 1\n" for i in range(size * 40)),
        "unknown keys of a group": head + "optimizer:\n" + "".join(f"  k{i}: 1\n" for i in range(size * 40)),
        "itself": head + "defaults: [/experiment/evil]\n",
        "itself in packages": head + "defaults: [/experiment/evil@a, /experiment/evil@b]\n",
        "many defaults": head + "defaults:\n" + "".join(f"  - /optimizer/adam@k{i}\n" for i in range(size * 10)),
        "many options": head + f"defaults: [{{/callbacks@q: [{','.join(['quiet'] * size * 10)}]}}]\n",
        "deep": head + "a: " + "[" * size * 3 + "]" * size * 3 + "\n",
        "long text": head + f"dataset: {{data_dir: {'x' * 900_000}, url: '{'${dataset.data_dir}' * size}'}}\n",
        "long reference": head + f"dataset: {{url: '${{{'a.' * size * 50}a}}'}}\n",
        "nested arguments": head + f"dataset: {{url: '${{oc.select:mode,{'[' * size}{']' * size}}}'}}\n",
        "long chain": head
        + "dataset: {url: '${expect.a1}'}\nexpect:\n  a0: x\n"
        + "".join(f"  {one}: ${{expect.{before}}}\n" for before, one in pairs),
        "numbers": head + f"seed: {'9' * size * 100}\n",
        "long package": "# @package " + ".".join(["a"] * size * 10) + "\nx: 1\n",
        "kernels": head + f"defaults: [{{override /dump: async}}]\ndump: {{kernels: [{','.join('k' * size * 20)}]}}\n",
    }
    name = [*bombs][number // 7 % len(bombs)]
    return _file(f"bomb: {name}", ".yaml", bombs[name])


def _encoding(rng: random.Random, number: int) -> Attack:
    suffix, text = _text(VALID, rng)
    codecs = ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-7", "cp037", "shift_jis", "latin-1"]
    noise = rng.randbytes(rng.choice([1, 7, 400, 5000]))
    contents: dict[str, bytes] = {codec: f"{text}# \u00e9\n".encode(codec, "ignore") for codec in codecs}
    contents |= {
        "binary": noise,
        "gzip": gzip.compress(text.encode(), mtime=0),
        "NUL": text.encode() + b"\0" * 50,
        "NUL before": b"\0" + text.encode(),
        "CRLF": text.replace("\n", "\r\n").encode(),
        "CR": text.replace("\n", "\r").encode(),
        "line separators": text.replace("\n", "\u2028").encode(),
        "next line": text.replace("\n", "\u0085").encode(),
        "cut character": text.encode() + b"# \xe2\x82",
        "overlong": text.encode() + b"# \xc0\xaf",
        "surrogate": text.encode() + b"# \xed\xa0\x80",
        "two marks": b"\xef\xbb\xbf" * 2 + text.encode(),
        "form feeds": text.replace("\n", "\n\f").encode(),
        "bidirectional": text.replace("seed", "se\u202eed").encode(),
        "empty": b"",
        "white": b" \t\r\n" * 100,
    }
    name = [*contents][number // 7 % len(contents)]
    return _file(f"encoding: {name}", suffix, contents[name])


TOKENS = [b"&a ", b"*a", b"${", b"}", b"!!", b"- ", b"? ", b"<<: ", b"\\", b"'", b"|"]


def _mutation(rng: random.Random, number: int) -> Attack:
    suffix, text = _text(VALID, rng, [{"override /optimizer": "momentum"}])
    data = bytearray(text.encode())
    for _ in range(rng.choice([1, 1, 2, 5, 30])):
        place = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                del data[place : place + rng.randrange(1, 9)]
            case 2:
                data[place:place] = rng.choice(
                    [b"&a ", b"*a", b"${", b"}", b"!!", b"- ", b"? ", b"<<: ", b"\\", b"'", b"|"]
                )
            case _:
                data[place:place] = data[place : place + rng.randrange(1, 20)]
        data = data or bytearray(b"x")
    return _file("mutation", suffix, bytes(data))


def _special_file(rng: random.Random, number: int) -> Attack:
    suffix = rng.choice([".yaml", ".json"])
    kinds: dict[str, Callable[[Path, Place], None]] = {
        "FIFO": lambda file, place: os.mkfifo(file),
        "zeros": lambda file, place: file.symlink_to("/dev/zero"),
        "random": lambda file, place: file.symlink_to("/dev/urandom"),
        "terminal": lambda file, place: file.symlink_to("/dev/stdin"),
        "loop": lambda file, place: file.symlink_to(file),
        "nothing": lambda file, place: file.symlink_to(place.root / "nothing"),
        "outside": lambda file, place: file.symlink_to(__file__),
        "folder": lambda file, place: file.mkdir(),
        "holes": lambda file, place: _sparse(file),
        "unreadable memory": lambda file, place: file.symlink_to("/proc/self/mem"),
        "link to a FIFO": lambda file, place: _link_to_fifo(file),
    }
    name = [*kinds][number // 7 % len(kinds)]
    return Attack(f"{name}{suffix}", lambda place: kinds[name](place.experiment / f"evil{suffix}", place), (2,))


def _sparse(file: Path) -> None:
    with open(file, "wb") as opened:
        opened.truncate(1 << 40)


def _link_to_fifo(file: Path) -> None:
    os.mkfifo(file.with_name("fifo"))
    file.symlink_to(file.with_name("fifo"))


TEXTS = ["a\0b", "\ud800", "x" * 300, "y/" * 3000 + "y", "\n", " ", "\x1b]0;title\x07", "..", ".", "/", "~", "", "a//b"]


def _path_text(rng: random.Random, number: int) -> Attack:
    """Texts that are not usable as paths, or hardly."""
    key, defaults, needed = PATHS[number // 7 % len(PATHS)]
    texts = [
        "a\0b",
        "\ud800",
        "x" * 300,
        "y/" * 3000 + "y",
        "\n",
        " ",
        "\x1b]0;title\x07",
        "..",
        ".",
        "/",
        "~",
        "",
        "a//b",
    ]
    value = rng.choice(texts)
    if rng.random() < 0.3:
        key, defaults, needed = rng.choice(["hydra.sweep.dir", "hydra.sweep.subdir", "hydra.job.name"]), [], {}
    whole = _merged(needed, _set(key, value))
    suffix, text = _text(whole, rng, defaults)
    codes = (2,) if key in ("tracking.uri", "dataset.data_dir") else (0, 2)
    return _file(f"{key}: {value[:20]!r}", suffix, text, codes)
