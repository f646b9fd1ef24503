"""The scripts that make `models/` need torch and others, which tests do without."""

collect_ignore = ["make_models.py", "make_foreign_models.py", "making"]
