"""Readers of the user's own data: a folder of images, arrays of numpy, a table in CSV."""
