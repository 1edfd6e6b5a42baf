"""Measurements of quality and speed, and mutations for the tests: scripts, each run by its name."""
