"""Runs by what they left in their folders: read, compared, shown."""
