"""The Print operator: its output on the screen or in a file of the format of the reference."""
