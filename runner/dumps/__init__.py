"""Dumps: what operators take and make, as files; and the commands that read, convert and compare them."""
