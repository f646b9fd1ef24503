"""The table of rules."""

from pathlib import Path
from types import ModuleType

from runner.importer import rules


def test_every_file_with_rules_is_loaded_with_the_table():
    """Tests load all modules of runner, so a file that the package does not name would be missed by users only."""
    files = Path(rules.__file__).parent.glob("*.py")
    with_rules = {file.stem for file in files if "@onnx_operator(" in file.read_text()}
    assert with_rules == {name for name, value in vars(rules).items() if isinstance(value, ModuleType)}
