"""What the site has besides the files of docs/: the reference, made from the code, and new pictures.

A hook of MkDocs. Keys and their meanings come from the fields of the schema and the comments beside them, commands,
flags and exit codes from the table of commands, operators from their registry.
"""

import dataclasses
import importlib
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from runner import cli, ops, register
from runner.config import schema
from runner.config.groups import GROUPS, NAMED
from runner.config.groups.entries import CALLBACKS, METRICS, default_callbacks, direction
from runner.core.operators import ComposedOperator, Primitive
from runner.dataset.catalog import CATALOG, DatasetEntry
from runner.importer.file import operators_of_onnx
from runner.importer.refusals import NEWEST_OPSET, reason_of
from runner.importer.rules import RULES
from runner.mindspore.addresses import coverage
from runner.validation.rules import Frozen, Invalid, rule_of, show, validate

PICTURES = Path(__file__).parents[1] / "build" / "images"  # from docs/screenshots.py


def on_files(files: Any, config: Any) -> Any:
    """What MkDocs calls before it reads pages: add those that are made here, and pictures that were just taken."""
    generated = importlib.import_module("mkdocs.structure.files").File.generated
    for name, text in pages().items():
        files.append(generated(config, f"reference/{name}.md", content=text))
    for picture in sorted(PICTURES.glob("*")):
        if old := files.get_file_from_path(f"images/{picture.name}"):
            files.remove(old)
        files.append(generated(config, f"images/{picture.name}", abs_src_path=str(picture)))
    return files


def pages() -> dict[str, str]:
    """The Markdown of each page, by its name."""
    return {
        "keys": keys(),
        "commands": commands(),
        "operators": operators(),
        "onnx-operators": onnx_operators(),
        "mindspore": mindspore_names(),
    }


def keys() -> str:
    """A table for each group of keys."""
    parts = ["# Keys of a run", "Every key with its default. `runner ... --cfg job` shows those of one run.", ""]
    for path, owner in sections(schema.RunConfig, ""):
        title = f"`{_title(path, owner)}`" if path else "The run"
        parts += [f"## {title}", "", inspect.cleandoc(owner.__doc__ or ""), "", *_table(owner, path), ""]
        parts += CHOICES[path]() if path in CHOICES else []
    return "\n".join([*parts, _callbacks(), _expect()])


def sections(owner: type[Any], path: str) -> Iterator[tuple[str, type[Any]]]:
    """The classes of the schema with the dotted key at which each stands, the outermost first."""
    yield path, owner
    for field in dataclasses.fields(owner):
        place = f"{path}.{field.name}" if path else field.name
        if field.type in NAMED:  # its name decides which keys it has; all other parts of the schema are one class
            for number, kind in enumerate(NAMED[field.type].values()):
                below = sections(kind, place)
                yield next(below)
                if number == 0:  # what stands below is the same for all options
                    yield from below
        elif dataclasses.is_dataclass(field.type):
            yield from sections(field.type, place)  # type: ignore[arg-type]


def meanings(owner: type[Any]) -> dict[str, str]:
    """The comments beside the fields of a class and of those that it inherits from, by field."""
    found = {}
    if hasattr(owner, "entry"):
        found.update({name: key.help for name, key in owner.entry.keys.items()})
    for kind in reversed(owner.__mro__[: owner.__mro__.index(Frozen)]):
        if kind.__dict__.get("entry"):
            continue  # made from a signature
        source = inspect.getsource(kind)
        lines = source.splitlines()
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and (field := re.match(r"    (\w+):", lines[token.start[0] - 1])):
                found[field[1]] = token.string.lstrip("# ")
    return found


def allowed(owner: type[Any], field: dataclasses.Field[Any]) -> str:
    """What the error for a value of a wrong type says is allowed."""
    try:
        validate(field.type, rule_of(owner, field.name), object())
    except Invalid as invalid:
        return invalid.allowed
    return "any value"


def commands() -> str:
    """A table of the commands, and the help of each."""
    rows = [f"| `runner {name}` | {_escaped(command.summary)} |" for name, command in cli.COMMANDS.items()]
    parts = ["# Commands", "", "| command | does |", "|---|---|", *rows, ""]
    for name in (None, *cli.COMMANDS):
        title = f"runner {name} --help" if name else "runner --help"
        parts += [f"## `{title}`", "", "```text", cli.help_of(name).rstrip(), "```", ""]
    return "\n".join(parts)


def operators() -> str:
    """A row for each operator."""
    kinds = {name: getattr(ops, name) for name in ops.__all__ if name[0].isupper()}
    classes = sorted((name, kind) for name, kind in kinds.items() if isinstance(kind, type))
    first = [x for x in classes if issubclass(x[1], Primitive) and not issubclass(x[1], ComposedOperator)]
    text = "They apply operators of the table above, or compute Python values while a network is traced."
    head = "# Operators", "", "All of them run in both modes, under the same names."
    second = "", "## Composed operators", "", text
    return "\n".join(
        [*head, *_operator_table(first), *second, *_operator_table([x for x in classes if x not in first])]
    )


def _operator_table(classes: Sequence[tuple[str, type[Any]]]) -> list[str]:
    rows = [
        f"| `{name}` | {_attributes(kind)} | {_has_gradient(kind)} | {_what_it_does(name, kind)} |"
        for name, kind in classes
    ]
    return ["", "| operator | attributes | gradient | what it does |", "|---|---|---|---|", *rows, ""]


def onnx_operators() -> str:
    """A row for each operator of ONNX files that can be imported, and one for each of ONNX that cannot."""
    head = ["# Operators of ONNX files", "", "What [`network=onnx`](../how-to/train-onnx.md) imports.", ""]
    rows = [_rule_row(name) for name in sorted(RULES)]
    known = (
        f"{len(rows)} operators, opset 9 to {NEWEST_OPSET}. An attribute that a rule does not know is refused by name."
    )
    table = ["| operator | becomes | attributes without effect |", "|---|---|---|", *rows, ""]
    others = operators_of_onnx() - RULES.keys() - {"Constant"}
    reasons = [f"| `{name}` | {_escaped(reason_of(name))} |" for name in sorted(others)]
    refused = ["## Operators that are refused", "", "| operator | why |", "|---|---|", *reasons, ""]
    settings = [f"| {what} | {why} |" for what, why in SETTINGS]
    rest = ["## What else is refused", "", "| what | why |", "|---|---|", *settings]
    return "\n".join([*head, known, "", *table, *refused, *rest])


def _rule_row(name: str) -> str:
    ignored = ", ".join(f"`{attribute}`" for attribute in sorted(RULES[name].without_effect))
    return f"| `{name}` | {_escaped(RULES[name].summary)} | {ignored} |"


SETTINGS = (
    ("element types of 2, 4 and 8 bits that are no whole numbers, BFloat16, texts", "the engine has no such tensors"),
    ("masks of `Dropout`, statistics that `BatchNormalization` returns", "training computes other ones"),
    ("`Resize` with `tf_crop_and_resize`", "the region is data, and so is the shape of the result"),
    ("`GridSample` of volumes, or with cubic interpolation", "no rule has been written"),
    (
        "`MaxPool` with `storage_order=1`, `IsInf` of one sign, `FusedMatMul` of transposed batches",
        "no rule has been written",
    ),
    ("`Attention` with windows or a length of keys that data have", "no rule has been written"),
    ("inputs that shapes follow from, when data decide them", "shapes are known before a run"),
    (
        "extrema and products of no elements, `Pow` of whole numbers by whole numbers",
        "our operators have no such result",
    ),
    ("quotients and remainders of UInt64, `TopK` of UInt64", "onnxruntime has no kernel; numpy's mode would differ"),
)


def mindspore_names() -> str:
    """The public names of MindSpore r1.2 by module: how many runner has, and why it does not have the others."""
    head = ["# Names of MindSpore r1.2", "", "The public names of each module of the release that runner has.", ""]
    found = list(coverage())
    rows = [f"| [`{x.title}`](#{x.title.replace('.', '')}) | {len(x.present)} | {len(x.missing)} |" for x in found]
    parts = [*head, "| module | here | missing |", "|---|---|---|", *rows, ""]
    for one in found:
        parts += [f"## {one.title}", ""]
        parts += [f"Here: {', '.join(f'`{name}`' for name in one.present) or '-'}", ""]
        if one.missing:
            reasons = [f"| `{name}` | {_escaped(why)} |" for name, why in one.missing.items()]
            parts += ["| missing | why |", "|---|---|", *reasons, ""]
    return "\n".join(parts)


def _attributes(kind: type[Any]) -> str:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return ", ".join(f"`{field.name}`" for field in fields) or "-"


def _has_gradient(kind: type[Any]) -> str:
    if issubclass(kind, ComposedOperator):
        return "composed"
    return "yes" if issubclass(kind, Primitive) and kind.grad is not Primitive.grad else "-"


def _what_it_does(name: str, kind: type[Any]) -> str:
    return _first_line(kind) if kind.__name__ == name else f"Another name of `{kind.__name__}`."


def _first_line(kind: type[Any]) -> str:
    return _escaped(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " "))


def _table(owner: type[Any], path: str) -> list[str]:
    comments = meanings(owner)
    rows = []
    for field in dataclasses.fields(owner):
        place = f"{path}.{field.name}" if path else field.name
        if field.type not in NAMED and not dataclasses.is_dataclass(field.type) and place not in BY_NAME:
            default = _escaped(show(field.default))
            rows.append(
                f"| `{place}` | `{default}` | {_escaped(allowed(owner, field))} | {_escaped(comments[field.name])} |"
            )
    return ["| key | default | allowed | meaning |", "|---|---|---|---|", *rows] if rows else []


def _title(path: str, owner: type[Any]) -> str:
    """The key, and for one of several options how it is chosen."""
    option = next((name for kinds in NAMED.values() for name, kind in kinds.items() if kind is owner), None)
    if option is None:
        return path
    return f"{path}={option}" if path in GROUPS else f"{path}.name={option}"


def _datasets() -> list[str]:
    rows = []
    for name, kind in register.dataset.items():
        built_in = CATALOG.get(name)
        folder = f"`{built_in.default_dir}`" if built_in and built_in.default_dir else "-"
        augment, download = (("yes" if built_in and flag else "-") for flag in _flags(built_in))
        about = _first_line(built_in.dataset) if built_in else _escaped(kind.summary)
        rows.append(f"| {name} | {about} | {folder} | {augment} | {download} |")
    head = "| dataset | what it is | usual `data_dir` | `augment` | `download` |"
    return [head, "|---|---|---|---|---|", *rows, ""]


def _flags(built_in: DatasetEntry | None) -> tuple[object, object]:
    return (built_in.augmentable, built_in.download) if built_in else (None, None)


def _metrics() -> list[str]:
    rows = [f"| {name} | {_escaped(register.metric[name].summary)} | {direction(name)} |" for name in METRICS]
    return ["| metric | what it is | in a search |", "|---|---|---|", *rows, ""]


def _callbacks() -> str:
    """A row for each callback, then one for each of its keys."""
    enabled = default_callbacks()
    rows = []
    for name, kind in CALLBACKS.items():
        default = show(kind().written if name in enabled else False)
        allowed_values = "true, false, or a value of its key" if kind.entry.keys else "true or false"
        rows.append(f"| `callbacks.{name}` | `{default}` | {allowed_values} | {_escaped(kind.entry.summary)} |")
    head = "| key | default | allowed | meaning |\n|---|---|---|---|\n"
    return f"## `callbacks`\n\nCallbacks of the training, by name.\n\n{head}" + "\n".join(rows) + "\n"


BY_NAME = ("expect", "metrics", "callbacks")  # sections whose keys are registered names
CHOICES: dict[str, Callable[[], list[str]]] = {"dataset": _datasets, "eval": _metrics}


def _expect() -> str:
    metrics = ", ".join(f"`expect.{name}.min`, `expect.{name}.max`" for name in METRICS)
    doc = inspect.cleandoc(schema.Expectation.__doc__ or "")
    return f"## `expect`\n\n{doc} {metrics}: numbers. A run that misses one ends with exit code 6.\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
