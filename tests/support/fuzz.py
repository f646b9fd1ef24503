"""Hostile command lines and files: overrides by a grammar from the schema, arguments of commands, damaged JSON.

Everything is derived from a number, so that a failure is repeated with it.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from runner.cli import COMMANDS
from runner.config import gate
from runner.config.groups import NAMED
from runner.config.groups.search import SearchSettings
from runner.config.options import all_options, choices
from runner.config.schema import RunConfig

LONG = "a" * 300
NUMBERS = (
    *("0", "-1", "1", "2", "0.5", "1e3", "1e-320", "1e308", "-1e308", "1e999", "inf", "-inf", "nan", "9" * 400),
    *("-" + "9" * 400, "0x10", "1_000", "5000", "4294967296", "10000000000000", "1e12", "1" + "0" * 30),
    *(str(2**63 - 1), str(2**63), str(-(2**63)), "١٢", "1.", ".5", "+3", "--1"),
)
WORDS = (
    *("", "''", '""', "null", "true", "false", "on", "off", "a", "A B", "ü", "日本", "\udcff", "\ud800", "x\0y", "\0"),
    *(
        "'",
        '"',
        "\\",
        "\\'",
        "=",
        "==",
        ",",
        ":",
        "a:b",
        "a=b",
        "%",
        "#",
        "@x",
        "\t",
        "a\nb",
        "\x1b[2J",
        "*",
        "???",
        "~",
    ),
    *("-", "--", "&a", "<<", "()", "f()", "os.system(1)", "!!python/object:os.system", "class", "_target_"),
)
PATHS = (
    *(LONG, "b/" + LONG, "a/" * 2100, "a/" * 200, "..", "../..", ".", "~", "~root/x", "x/"),
    *("/proc/self/mem", "/proc/nope/x", "/proc/sys/kernel/random", "file", "file/x", "folder", "pipe"),
    *(
        "loop",
        "loop/x",
        "link",
        "x.json",
        "file.json",
        "sqlite://",
        "sqlite:///" + LONG,
        "http://",
        "http://[",
        "http://a:99999/",
    ),
)
COLLECTIONS = (
    *("[]", "{}", "[1]", "[[1]]", "[null]", "{a:1}", "{a:{b:[1,2]}}", "{1:2}", "{a}", "{a:}", "[" * 9 + "]" * 9),
    *("[" * 40 + "]" * 40, "[1,x,1e308]", "[a,", "{a:1", "[accuracy]", "[RL,GA]", "{name:adam}", "['" + LONG + "']"),
)
SWEEPS = (
    *(
        "1,2",
        "1,range(1,3)",
        "range(1,3)",
        "range(0,1,0)",
        "range(3,1)",
        "range(0,1e308)",
        "range(0,1,1e-9)",
        "range(a)",
    ),
    *("interval(0,1)", "interval(1,0)", "choice(1,2)", "choice(a)", "choice(choice(1,2),3)", "[range(1,3)]"),
    *("{a:choice(1,2)}", "glob(*)", "glob([a*],exclude=b)", "tag(x,choice(1,2))", "tag(log,interval(0,1))"),
    *("sort(2,1)", "shuffle(1,2)", "shuffle(range(1,3))", "int(3.5)", "int(x)", "str([1])", "float(1e999)", "bool(3)"),
    *("int(interval(1,9))", "a,b,", ",", "1,2,,3", "extend_list(1)", "json_str({a:1})"),
)
REFERENCES = (
    *("${seed}", "${network.name}", "${nope}", "${.name}", "${..seed}", "${...}", "${optimizer}", "${", "${}", "$"),
    *("${a${b}}", "\\${x}", "x${seed}y", "${oc.env:HOME}", "${oc.env:SECRET}", "${oc.env:HOME,a}", "${now:%Y}"),
    *("${now:}", "${now:" + "%Y" * 200 + "}", "${hydra:job.name}", "${hydra:runtime.output_dir}", "${hydra:nope}"),
    *("${oc.select:seed}", "${oc.select:nope,3}", "${oc.dict.keys:optimizer}", "${oc.dict.values:optimizer}"),
    *("${oc.dict.keys:seed}", "${python_version:}", "${hydra:}", "${seed:1}", "${oc.decode:1}", "${print_file_path}"),
)
VALUES = (*NUMBERS, *WORDS, *PATHS, *COLLECTIONS, *SWEEPS, *REFERENCES)
HYDRA = (
    *gate.HYDRA_KEYS,
    *(
        "hydra.verbose",
        "hydra.run",
        "hydra",
        "hydra.mode",
        "hydra.callbacks.x",
        "hydra.job.env_set.A",
        "hydra.searchpath",
    ),
    *("hydra.launcher._target_", "hydra.job.config.override_dirname.item_sep", "hydra.runtime.cwd", "hydra.nope"),
)
FLAGS = (
    *(("--cfg", part) for part in ("job", "hydra", "all", "nope", "")),
    *(("--info", topic) for topic in ("config", "defaults", "defaults-tree", "searchpath", "nope")),
    *(
        ("--package", "optimizer"),
        ("--resolve",),
        ("--junit", "folder/junit.xml"),
        ("--junit", LONG),
        ("--junit", "nope/x"),
    ),
    *(("--config-dir", "folder"), ("--config-dir", LONG), ("--config-dir", "pipe"), ("--config-path", "folder")),
    *(
        ("--config-name", "x"),
        ("--config-name", LONG),
        ("--config-name", "experiment/lenet"),
        ("--run",),
        ("--version",),
    ),
    *(("--help",), ("-sc", "query=bash"), ("-sc",), ("--nope",), ("--",), ("-",), ("",), ("-m",)),
)
JSON = {
    "empty": b"",
    "nothing": b"null",
    "a list": b"[]",
    "a number": b"3",
    "cut": b'{"a": ',
    "not UTF-8": b'{"status": "\xff"}',
    "UTF-16": '{"status": "ok"}'.encode("utf-16"),
    "deep": b"[" * 100_000,
    "deep groups": b'{"a":' * 100_000,
    "nested 90 times": b'{"a":' * 90 + b"1" + b"}" * 90,
    "nested 2000 times": b"[" * 2000 + b"]" * 2000,
    "long": b" " * (17 << 20),
    "zeros": b"\0" * 4096,
}
# Values at every place of a file that was whole.
LEAVES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**63 - 1, 2**63, 10**400, -(10**400), 0.5, 1e308, -1e308, 5e-324, float("nan"), float("inf")),
    *(
        "",
        "x",
        "\ud800",
        "\0",
        LONG,
        "\x1b[2J",
        "${seed}",
        "a/" * 2100,
        [],
        {},
        [[]],
        [None],
        {"": 1},
        {"a": {"b": {}}},
    ),
    *({"\ud800": 1}, [10**400], [1e308, -1e308], "2026-13-45", "1e308", "-1", "../..", "/"),
)


def rng(*seed: object) -> random.Random:
    """A generator for this seed, the same in every process."""
    return random.Random(":".join(map(str, seed)))


def keys(owner: type[Any] = RunConfig, path: str = "") -> Iterator[str]:
    """The dotted keys of a record and of all options of its groups."""
    for field in fields(owner):
        name = f"{path}{field.name}"
        yield name
        kinds = NAMED[field.type].values() if field.type in NAMED else (field.type, *get_args(field.type))
        for kind in kinds:
            if isinstance(kind, type) and is_dataclass(kind):
                yield from keys(kind, f"{name}.")


class Grammar:
    """Random overrides and command lines."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.keys = [*dict.fromkeys(keys()), *(f"hydra.sweeper.{name}" for name in keys(SearchSettings))]
        self.groups: Mapping[str, list[str]] = {
            **all_options(),
            "hydra/launcher": ["pool"],
            "hydra/sweeper": ["optuna"],
        }

    def override(self) -> str:
        """One override."""
        kind = self.random.random()
        if kind < 0.12:
            return self._option()
        if kind < 0.15:
            return "".join(self.random.choices("ab=.,:+~@${}[]()'\"\\/ \t-19", k=self.random.randint(0, 12)))
        key = self._key()
        return f"{self._sign()}{key}={self._valid_value(key) if self.random.random() < 0.5 else self._value()}"

    def words(self, most: int = 4) -> list[str]:
        """The words of a run or a sweep: overrides, and sometimes a flag."""
        words = [self.override() for _ in range(self.random.randint(1, most))]
        if self.random.random() < 0.15:
            words[self.random.randint(0, len(words)) :] = self.random.choice(FLAGS)
        return words

    def command(self) -> list[str]:
        """The words of one of the other commands."""
        name = self.random.choice([*COMMANDS])
        flags = {
            "compare": ["--rtol", "--atol", "--json", "--md", "--csv", "--all", "--dumps", "--metrics"],
            "convert": ["-d", "-out", "-f", "-s", "-t", "-i", "-o", "-v", "-c"],
            "golden": ["--update", "--check"],
            "ls": ["--status", "--where", "--sort", "--limit", "--best", "--json"],
            "rm": ["--force"],
            "report": ["-o"],
            "resume": ["--force"],
        }
        places = [*PATHS, *PATHS, "run", "run", "other", "golden.json", "sweep", *NUMBERS, *WORDS]
        words = self.random.choices(places, k=self.random.choice((0, 1, 1, 2, 2, 3)))
        for flag in self.random.sample(flags.get(name, []), k=min(len(flags.get(name, [])), self.random.randint(0, 3))):
            words += [flag, *self.random.choices(places, k=self.random.choice((0, 1, 1)))]
        if name == "resume":
            words += [self.override() for _ in range(self.random.randint(0, 2))]
        if name == "rm":
            words.append("--dry-run")  # other calls need the runs
        return [name, *words]

    def _option(self) -> str:
        group = self.random.choice([*self.groups])
        option = self.random.choice([*self.groups[group], *self.groups[group], self._value()])
        return f"{self._sign()}{group}={option}"

    def _sign(self) -> str:
        return self.random.choice(("", "", "", "", "", "+", "++", "~"))

    def _key(self) -> str:
        key = self.random.choice(self.keys if self.random.random() < 0.85 else HYDRA)
        kind = self.random.random()
        if kind < 0.7:
            return key
        place = self.random.randrange(len(key))
        wrong = (
            *(
                key[:place] + key[place + 1 :],
                key[:place] + "x" + key[place:],
                f"{key}.x",
                f"{key}.name.x",
                key.upper(),
            ),
            *(
                key.replace(".", "/"),
                key.replace(".", ".."),
                f".{key}",
                f"{key}.",
                f"{key}@x",
                f"{key}.{LONG}",
                f"{key}[0]",
            ),
            *(key.partition(".")[0], key.rpartition(".")[2], f"{key}.{'a.' * 300}b", f"{key}._target_", f"'{key}'"),
        )
        return self.random.choice(wrong)

    def _valid_value(self, key: str) -> str:
        """A value that a key may have, so that a config is often valid up to one of its overrides."""
        return self.random.choice((*choices(key), *choices(key), "1", "2", "0.5", "null", "true", "a", "folder"))

    def _value(self) -> str:
        return self.random.choice(VALUES)


def mutated(value: Any, random: random.Random) -> Any:
    """A JSON value with one of its leaves or groups replaced by a hostile one, or removed, or under another name."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        name = random.choice([*value])
        kind = random.random()
        if kind < 0.08:
            return {key: inner for key, inner in value.items() if key != name}
        if kind < 0.12:
            return {**value, random.choice(("", "\ud800", LONG, "a.b", "\0")): value[name]}
        return {**value, name: mutated(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.7:
        place = random.randrange(len(value))
        return [*value[:place], mutated(value[place], random), *value[place + 1 :]]
    return random.choice(LEAVES)
