"""Continuous integration: golden files, JUnit files, GitHub annotations."""
