"""The coordinator of a federation: its folder, runs and queue, operators and certificates."""
