"""Dumps: what operators take and make, as files; and the commands that read, convert and compare them."""

VARIABLE = "MINDSPORE_DUMP_CONFIG"  # of the environment: the absolute path of a JSON file that asks for a dump
