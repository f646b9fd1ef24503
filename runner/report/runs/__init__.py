"""Commands about the runs in a folder: list, select, remove, follow."""
